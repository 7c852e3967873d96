"""What the SDK's errors mean (facts: Anthropic API, section 4).

Classified by the error's own type where that says enough, then by status: a gateway may put the one into the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from compaction_app.engine.overflow import READ_CHARS, OverflowKind, read_overflow
from compaction_app.engine.ports import ProviderError, ProviderProblem
from compaction_app.llm.anthropic_text import storable_name

LONGEST_ID = 128  # the column's
LONGEST_CODE = 60  # twice the longest that the API has
LONGEST_RETRY_AFTER_SECONDS = 86_400.0  # a day; who says more is not understood
_BY_TYPE = {
    "authentication_error": ProviderProblem.CREDENTIALS,
    "permission_error": ProviderProblem.CREDENTIALS,
    "billing_error": ProviderProblem.CREDENTIALS,
    "rate_limit_error": ProviderProblem.RATE_LIMITED,
    "overloaded_error": ProviderProblem.OVERLOADED,
    "timeout_error": ProviderProblem.TIMEOUT,
    "not_found_error": ProviderProblem.REFUSED,
    "conflict_error": ProviderProblem.SERVER_ERROR,
}
_BY_STATUS = {
    401: ProviderProblem.CREDENTIALS,
    402: ProviderProblem.CREDENTIALS,
    403: ProviderProblem.CREDENTIALS,
    408: ProviderProblem.TIMEOUT,
    409: ProviderProblem.SERVER_ERROR,
    413: ProviderProblem.TOO_LARGE,
    429: ProviderProblem.RATE_LIMITED,
    504: ProviderProblem.TIMEOUT,
    529: ProviderProblem.OVERLOADED,
}
# Types that are given to much, so the status says more where it is one of those above.
_BY_BROAD_TYPE = {
    "invalid_request_error": ProviderProblem.REFUSED,
    "api_error": ProviderProblem.SERVER_ERROR,
}
IN_STREAM = 200  # the status of an `error` event
_CODE = re.compile(r"^[a-z0-9_]+$")  # what else stands there may be somebody's words
_NO_CREDENTIALS = "Could not resolve authentication method"  # the SDK's TypeError, before anything is sent


@contextmanager
def provider_errors() -> Iterator[None]:
    """Within it, what the SDK raises becomes ProviderError, without its text and without what it came from."""
    import anthropic  # noqa: PLC0415
    import httpx2  # noqa: PLC0415

    try:
        yield
    except anthropic.APIStatusError as error:
        raise of_status(error) from None
    except (anthropic.APITimeoutError, httpx2.TimeoutException):
        raise ProviderError(problem=ProviderProblem.TIMEOUT) from None
    except httpx2.DecodingError:
        raise ProviderError(problem=ProviderProblem.UNREADABLE) from None
    except (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL):
        raise ProviderError(problem=ProviderProblem.UNREACHABLE) from None
    except anthropic.CredentialsError:
        raise ProviderError(problem=ProviderProblem.CREDENTIALS) from None
    except TypeError as error:
        missing = str(error).strip('"').startswith(_NO_CREDENTIALS)
        problem = ProviderProblem.CREDENTIALS if missing else ProviderProblem.UNREADABLE
        raise ProviderError(problem=problem) from None
    except (anthropic.AnthropicError, ValueError, AttributeError, LookupError, AssertionError, RecursionError):
        # A 200 that is no JSON, or JSON of another shape, meets the SDK in several ways.
        raise ProviderError(problem=ProviderProblem.UNREADABLE) from None


def of_status(error: Any) -> ProviderError:
    """The error of a status, or of an `error` event in a stream (whose status is 200)."""
    status, kind = int(error.status_code), _text(getattr(error, "type", None))
    overflow = read_overflow(status=status, kind=kind, message=_message(error))
    if overflow is not None:
        is_bytes = overflow.kind is OverflowKind.BYTES
        problem = ProviderProblem.TOO_LARGE if is_bytes else ProviderProblem.TOO_LONG
    else:
        problem = problem_of(status=status, kind=kind)
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return ProviderError(
        problem=problem,
        status=status,
        request_id=storable_name(error.request_id, most=LONGEST_ID),
        overflow=overflow,
        retry_after=retry_after(headers=headers),
        code=_code(error),
    )


def _code(error: Any) -> str:
    """The API's own name of the cause, `error.details.error_code`."""
    code = storable_name(getattr(error, "error_code", None), most=LONGEST_CODE)
    return code if _CODE.match(code) else ""


def problem_of(*, status: int, kind: str) -> ProviderProblem:
    """The problem of an error that is no overflow, or whose text is not known. `kind`: `error.type`, "" for none."""
    told = _BY_TYPE.get(kind) or _BY_STATUS.get(status) or _BY_BROAD_TYPE.get(kind)
    if told is not None:
        return told
    if status >= 500 or status == IN_STREAM:
        return ProviderProblem.SERVER_ERROR
    return ProviderProblem.REFUSED if status >= 400 else ProviderProblem.UNREADABLE


def _message(error: Any) -> str:
    """All that an error says in words. Gateways have shapes of their own, and pages in place of JSON."""
    body = getattr(error, "body", None)
    if isinstance(body, str):
        return body[:READ_CHARS]
    parts = [getattr(error, "api_message", None)]
    if isinstance(body, Mapping):
        inner = body.get("error")
        parts += [body.get(name) for name in ("error", "message", "detail", "code")]
        parts += [inner.get("code")] if isinstance(inner, Mapping) else []
    told = " ".join(text[:READ_CHARS] for text in map(_text, parts) if text)
    return told or str(body or "")[:READ_CHARS]  # no words are not the same as nothing at all


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def retry_after(*, headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait; None where it does not say, or says what makes no sense."""
    in_ms, told = headers.get("retry-after-ms"), headers.get("retry-after")
    milliseconds = _number(in_ms)
    if milliseconds is not None and (seconds := _plausible(milliseconds / 1_000)) is not None:
        return seconds
    number = _number(told)
    return _plausible(number) if number is not None else _until(told)


def _number(value: str | None) -> float | None:
    try:
        return float(value or "")
    except ValueError:
        return None


def _until(value: str | None) -> float | None:
    """Seconds until an HTTP date."""
    try:
        moment = parsedate_to_datetime(value or "")
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _plausible((moment - datetime.now(tz=UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return None


def _plausible(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 < seconds <= LONGEST_RETRY_AFTER_SECONDS else None

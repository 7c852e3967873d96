"""The API's own errors, and which of them an error of a lower layer becomes.

Apart from errors.py, because REST framework loads the parsers, which raise these, while it loads its views.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.db import IntegrityError, OperationalError
from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, NotFound, ParseError

from compaction_app import actions
from sessions_app.models import Session

ERASED = "The session was erased meanwhile."

logger = logging.getLogger(__name__)


class ApiError(APIException):
    """An error of ours: its status, its stable code, and `extra` top-level fields of the answer."""

    status_code: int = status.HTTP_400_BAD_REQUEST
    default_code = "invalid"

    def __init__(self, detail: str | list[str], *, attr: str | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.attr = attr
        self.extra = extra


class UuidTaken(ApiError):
    status_code = status.HTTP_409_CONFLICT
    default_code = "uuid_conflict"


class RunActive(ApiError):
    status_code = status.HTTP_409_CONFLICT
    default_code = "active_run"


class NothingToCompact(ApiError):
    default_code = "nothing_to_compact"


class Refused(ApiError):
    """What is asked for can't be done here; `code` says why."""

    def __init__(self, detail: str, *, code: str, attr: str | None = None, **extra: Any) -> None:
        super().__init__(detail, attr=attr, **extra)
        self.detail = ErrorDetail(detail, code=code)


class Conflict(Refused):
    """The same where it can't be done any more, or not yet."""

    status_code = status.HTTP_409_CONFLICT


class Unanswered(Conflict):
    """The same call is under way."""

    def __init__(self, exc: actions.CallInProgress) -> None:
        super().__init__(str(exc), code="idempotency_in_progress", attr="Idempotency-Key")
        self.wait = exc.retry_after  # becomes Retry-After


class BodyTooLarge(ApiError):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "body_too_large"


class Busy(ApiError):
    """The database does not answer in time; nothing was stored, and the same call may be sent again."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "busy"
    wait = 5  # seconds; becomes Retry-After


def translate(exc: Exception) -> Exception:
    """The API's error for one that a lower layer raised; others are given back as they are."""
    for kind, made in TRANSLATIONS.items():
        if isinstance(exc, kind):
            return made(exc)
    return exc


def _uuid_taken(exc: actions.UuidConflict) -> ApiError:
    details = [f'The uuid "{uuid}" is stored already with other content.' for uuid in exc.conflicts]
    return UuidTaken(details, attr="uuid", uuids=list(exc.conflicts))


def _busy(exc: OperationalError) -> ApiError:
    logger.error("the database does not answer: %s", type(exc).__name__)
    return Busy("The database is busy. Nothing was stored; try again.")


def _gone(exc: IntegrityError) -> Exception:
    """A row that refers to what was erased meanwhile; any other is a bug of ours."""
    is_reference = "foreign key" in str(exc).lower()
    return NotFound(ERASED) if is_reference else exc


TRANSLATIONS: Mapping[type[Exception], Callable[[Any], Exception]] = {
    actions.UuidConflict: _uuid_taken,
    actions.ActiveRun: lambda exc: RunActive(str(exc), run=str(exc.run.uuid)),
    actions.NothingToCompact: lambda exc: NothingToCompact(str(exc)),
    actions.PartialRefused: lambda exc: Refused(str(exc), code=exc.code, attr=exc.scope or None),
    actions.ImportRefused: lambda exc: Refused(f"This can not be imported: {exc}.", code="import_refused", attr="file"),
    actions.WrongStatus: lambda exc: Conflict(str(exc), code=exc.code, run=str(exc.run.uuid)),
    actions.RevertRefused: lambda exc: Conflict(str(exc), code=exc.code),
    actions.ReactiveRefused: lambda exc: Refused(str(exc), code=exc.code, attr="mode"),
    actions.KeyConflict: lambda exc: Conflict(str(exc), code="idempotency_conflict", attr="Idempotency-Key"),
    actions.CallInProgress: Unanswered,
    RequestDataTooBig: lambda exc: BodyTooLarge("The request's body is too large."),
    TooManyFieldsSent: lambda exc: ParseError("These are too many fields."),
    TooManyFilesSent: lambda exc: ParseError("These are too many files."),
    OperationalError: _busy,
    IntegrityError: _gone,
    Session.DoesNotExist: lambda exc: NotFound(ERASED),
}

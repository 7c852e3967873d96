"""The header `Idempotency-Key`: the same call sent again is answered with the first answer, and not done again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from django.core.files import File
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions
from compaction_app.api.base import ApiView
from compaction_app.api.codec import JsonRenderer
from compaction_app.api.exceptions import Refused, translate

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
LONGEST_KEY = 255
# Letters, digits and signs that every client can send in a header; spaces only between them.
KEY = re.compile(r"^[!-~]([ -~]*[!-~])?$")

IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    type={"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": KEY.pattern},
    location=OpenApiParameter.HEADER,
    description=f"Makes the call safe to repeat: any text of yours, 1 to {LONGEST_KEY} characters of ASCII. The same "
    f"call with the same key gives the first answer again, to the letter and with `{REPLAYED}: true`, for a day. "
    "With another body: 409 `idempotency_conflict`; while the first is not answered: 409 "
    "`idempotency_in_progress`, with `Retry-After`. After an error the key is free again.",
)


class RepeatableView(ApiView):
    """A view whose POST may carry a key."""

    def once(
        self, request: Request, do: Callable[[actions.HeldCall | None], Response], *, body: Any = None
    ) -> Response:
        """`do(call)` where the call is new, else the answer that it was given. `call`: None without a key; what it
        makes is noted on it, and where it has a `subject`, that is made already and only to be answered with.

        `body`: what the request asks for, as JSON has it; default: its body.
        """
        key = _key_of(request)
        if key is None:
            return do(None)
        digest = _digest(request, request.data if body is None else body)
        taken = actions.take_call(team=self.team, key=key, digest=digest, now=timezone.now())
        if isinstance(taken, actions.KeptAnswer):
            return Response(taken.body, status=taken.status, headers={REPLAYED: "true"})
        try:
            answer = do(taken)
            body_sent = json.loads(JsonRenderer().render(answer.data))
        except Exception as error:
            _let_go(taken, error)
            raise
        actions.keep_answer(call=taken, status=answer.status_code, body=body_sent)
        if taken.subject is not None:
            answer.headers[REPLAYED] = "true"
        return answer


def digest_of_file(file: File[Any]) -> str:
    """Of what an upload holds, read in pieces; it stands at its beginning before and after."""
    found = hashlib.sha256()
    file.seek(0)
    for piece in file.chunks():
        found.update(piece)
    file.seek(0)
    return found.hexdigest()


def _let_go(call: actions.HeldCall, error: Exception) -> None:
    """What was refused is as if it had not been asked; of what broke off, something may be there."""
    known = translate(error)
    if isinstance(known, APIException) and not status.is_server_error(known.status_code):
        actions.free_key(call=call)
    else:
        actions.hand_back_call(call=call, now=timezone.now())


def _key_of(request: Request) -> str | None:
    """Raises Refused."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if len(key) > LONGEST_KEY or not KEY.fullmatch(key):
        told = f"A key has 1 to {LONGEST_KEY} characters of ASCII, none of them a control character."
        raise Refused(told, code="invalid", attr=HEADER)
    return key


def _digest(request: Request, body: Any) -> str:
    """SHA-256 of all that makes it the same call. Of a body it is what it says that counts, not how it is spaced."""
    told = json.dumps([request.method, request.get_full_path(), body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()

"""sessions/{id}/compact/: ask for a compaction, and wait for it a little."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import NothingToCompact
from compaction_app.api.fields import PlainText, StrictSerializer
from compaction_app.api.runs import RunBody
from compaction_app.api.schema import error
from compaction_app.engine.command import LONGEST_INSTRUCTIONS
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import ACTIVE, CompactionRun
from sessions_app.models import Session

LONGEST_WAIT = 60  # seconds
LOOK_EVERY = 0.1  # seconds

ACTIVE_RUN = error(
    "`active_run`: the session has a run that is not finished; `run` is its id.",
    code="active_run",
    detail="Run 0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f of this session is not finished (running).",
    run="0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f",
)
NOTHING = error(
    "The body is wrong; `not_supported_yet` for what comes with a later version; `nothing_to_compact`.",
    code="nothing_to_compact",
    detail="The session has no messages.",
)


class CompactRequest(StrictSerializer):
    refused = dict.fromkeys(
        ("up_to", "from", "mode", "summarizer", "dry_run"),
        ("not_supported_yet", "This comes with a later version."),
    )

    instructions = PlainText(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="What the summary should mind.",
    )
    command = PlainText(
        required=False,
        allow_null=True,
        allow_blank=True,
        help_text="All of it as a person would type it, in place of `instructions`: `/compact keep the SQL`.",
    )
    wait = serializers.FloatField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=LONGEST_WAIT,
        help_text="Seconds to wait for the run's end before answering; default 0.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("command") is not None and attrs.get("instructions"):
            told = "`command` holds the instructions: give one of the two."
            raise serializers.ValidationError({"instructions": told}, code="invalid")
        return attrs


def wait_for(*, run_id: int, seconds: float) -> None:
    """Until the run has ended, at most `seconds`. Holds no transaction, so the worker is not kept waiting."""
    until = time.monotonic() + seconds
    active = CompactionRun.objects.filter(pk=run_id, status__in=ACTIVE)
    while (left := until - time.monotonic()) > 0 and active.exists():
        time.sleep(min(LOOK_EVERY, left))


class CompactView(ApiView):
    def queue(self, session: Session, given: dict[str, Any]) -> CompactionRun:
        asked: dict[str, Any] = {"session": session, "now": timezone.now(), "source": CompactionRun.Source.API}
        command = given.get("command")
        try:
            if command is not None:
                return actions.request_command(text=command, **asked)
            return actions.request_compaction(instructions=given.get("instructions") or "", **asked)
        except actions.NothingToCompact as nothing:
            raise NothingToCompact(str(nothing)) from nothing
        except actions.CommandError as wrong:
            raise serializers.ValidationError({"command": str(wrong)}, code="invalid") from wrong
        except actions.NotSupportedYet as later:
            raise serializers.ValidationError({"command": str(later)}, code="not_supported_yet") from later

    @extend_schema(
        summary="Compact the session",
        description="Queues a run. One run at a time: while the session has one that is not finished, the answer is "
        "409. With `wait`, a run that ends in time is answered with 200, whether it succeeded or failed.",
        request=CompactRequest,
        responses={
            200: OpenApiResponse(RunBody, description="`wait` sufficed: the finished run."),
            202: OpenApiResponse(RunBody, description="The run, queued or running."),
            400: NOTHING,
            409: ACTIVE_RUN,
        },
        examples=[
            OpenApiExample(
                "wait for it", value={"instructions": "Keep the API design.", "wait": 10}, request_only=True
            ),
            OpenApiExample("as typed", value={"command": "/compact keep the SQL"}, request_only=True),
        ],
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        given: dict[str, Any] = self.body(CompactRequest)
        queued = self.queue(session, given)
        wait_for(run_id=queued.pk, seconds=given.get("wait") or 0)
        run = self.one(selectors.runs_of(team=self.team), queued.uuid, name="run")
        waited = bool(given.get("wait"))
        if waited and run.failure_reason == FailureReason.NOTHING_TO_COMPACT:
            raise NothingToCompact(run.detail or "There is nothing to compact.", run=str(run.uuid))
        code = status.HTTP_200_OK if waited and not run.is_active else status.HTTP_202_ACCEPTED
        return Response(RunBody(run).data, status=code)

"""runs/{id}/retry/ and runs/{id}/cancel/: another run in the place of one that came to nothing, and the end of one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.compact import LONGEST_WAIT, NOTHING, answer, wait_for
from compaction_app.api.exceptions import Refused
from compaction_app.api.fields import NO_FIELDS, NoFields, Number, PlainText, StrictSerializer
from compaction_app.api.idempotency import IDEMPOTENCY_KEY, RepeatableView
from compaction_app.api.runs import RunBody
from compaction_app.api.schema import error
from compaction_app.engine.command import LONGEST_INSTRUCTIONS
from compaction_app.llm.factory import CHOICES
from compaction_app.models import CompactionRun

NO_RETRY = error(
    "`not_finished`: the run has not ended; `run_succeeded`: there is nothing to try again; `active_run`: the session "
    "has another run that is not finished. `run` is the id of the run that is meant.",
    code="run_succeeded",
    detail="Run 0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f has succeeded: there is nothing to try again. Ask for another "
    "compaction.",
    run="0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f",
)
ENDED = error(
    "`run_ended`: the run has succeeded or failed; `run` is its id.",
    code="run_ended",
    detail="Run 0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f has ended: it is succeeded.",
    run="0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f",
)


class RetryRequest(StrictSerializer):
    instructions = PlainText(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="In place of the run's own; empty for none, null or left out: as they were.",
    )
    summarizer = serializers.ChoiceField(
        choices=CHOICES,
        required=False,
        allow_null=True,
        help_text="What writes the summary; null or left out: as it was.",
    )
    wait = Number(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=LONGEST_WAIT,
        help_text="Seconds to wait for the new run's end before answering; default 0.",
    )


class _OfARun(ApiView):
    def run_of(self, run_id: UUID) -> CompactionRun:
        run: CompactionRun = self.one(selectors.runs_of(team=self.team), run_id, name="run")
        return run


class RetryView(_OfARun, RepeatableView):
    @extend_schema(
        summary="Try a run again",
        description="Queues another run of the same session that is to do the same: instructions, summariser where one "
        "was named, and the same part, cut anew as the session is now. Only where the run has failed or was cancelled. "
        "A reactive run keeps what the provider told, unless reactive compaction is switched off by now. Answers as "
        "`compact/` does.",
        parameters=[IDEMPOTENCY_KEY],
        request=RetryRequest,
        responses={
            200: OpenApiResponse(RunBody, description="`wait` sufficed: the new run, finished."),
            202: OpenApiResponse(RunBody, description="The new run, queued or running."),
            400: NOTHING,
            409: NO_RETRY,
        },
        examples=[
            OpenApiExample("as it was", value={}, request_only=True),
            OpenApiExample("by another one", value={"summarizer": "extractive", "wait": 10}, request_only=True),
        ],
    )
    def post(self, request: Request, run_id: UUID) -> Response:
        tried, given = self.run_of(run_id), self.body(RetryRequest)
        tried.session = self.session(tried.session.uuid)
        return self.once(request, lambda call: self.retried(tried, given, call))

    def retried(self, tried: CompactionRun, given: dict[str, Any], call: actions.HeldCall | None) -> Response:
        queued, seconds = self.queue(tried, given, call), given.get("wait") or 0
        wait_for(run_id=queued, seconds=seconds)
        return answer(run=self.run_of(queued), waited=bool(seconds))

    def queue(self, tried: CompactionRun, given: dict[str, Any], call: actions.HeldCall | None) -> UUID:
        """The new run's uuid; that of an earlier try of the same call, where it came so far."""
        if call is not None and call.subject is not None:
            return call.subject
        try:
            return actions.retry_run(
                run=tried,
                instructions=given.get("instructions"),
                summarizer=given.get("summarizer"),
                now=timezone.now(),
                source=CompactionRun.Source.API,
                requested_by=self.caller.user,
                call=call,
            ).uuid
        except actions.PartialRefused as refused:
            raise Refused(str(refused), code=refused.code) from refused  # the part is no field of this body


class CancelView(_OfARun):
    @extend_schema(
        summary="Cancel a run",
        description="Ends it at once; nothing of it is stored. A worker that has it notices within a second or so; "
        "what its calls of a model have cost is kept. A run that waits for approval ends as if it were rejected. Safe "
        "to repeat: one that is cancelled already is answered unchanged.",
        request=NO_FIELDS,
        responses={200: RunBody, 409: ENDED},
        examples=[OpenApiExample("nothing to say", value={}, request_only=True)],
    )
    def post(self, request: Request, run_id: UUID) -> Response:
        run = self.run_of(run_id)
        self.body(NoFields)
        actions.cancel_run(run=run, by=self.caller.decider, now=timezone.now())
        return Response(RunBody(self.run_of(run_id)).data)

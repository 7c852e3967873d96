"""sessions/{id}/compact/: ask for a compaction, and wait for it a little."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, PolymorphicProxySerializer, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.context import ContextBody
from compaction_app.api.exceptions import NothingToCompact, Refused
from compaction_app.api.fields import Number, PlainText, StrictSerializer, Switch
from compaction_app.api.idempotency import IDEMPOTENCY_KEY, RepeatableView
from compaction_app.api.plans import PlanBody, plan_body
from compaction_app.api.runs import RunBody
from compaction_app.api.schema import error
from compaction_app.engine.command import LONGEST_INSTRUCTIONS, LONGEST_UUID, Scope
from compaction_app.engine.outcome import FailureReason
from compaction_app.llm.factory import CHOICES
from compaction_app.models import AT_WORK, CompactionRun, RunStatus
from sessions_app.models import Session

LONGEST_WAIT = 60  # seconds
LOOK_EVERY = 0.1  # seconds
REACTIVE = "reactive"
REACTIVE_WAIT = 30  # seconds; the client has nothing else to do than to wait
LONGEST_ERROR = 2_000  # characters; more than any message that names figures
# What does not go together in one body.
EXCLUDES = {
    "command": {"instructions", "up_to", "from", "mode"},
    "up_to": {"from", "mode"},
    "from": {"mode"},
}

ACTIVE_RUN = error(
    "`active_run`: the session has a run that is not finished; `run` is its id.",
    code="active_run",
    detail="Run 0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f of this session is not finished (running).",
    run="0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f",
)
NOTHING = error(
    "The body is wrong; `nothing_to_compact`. For `up_to` and "
    "`from`: `unknown_uuid` (no session of the team has such a message), `foreign_session` (another one has it), "
    "`not_on_live_path` (it was left behind, or is no part of the conversation), `already_compacted` (a summary tells "
    "it), `nothing_on_that_side` (there is no legal cut that leaves anything to compact there, or too little).",
    code="nothing_to_compact",
    detail="The session has no messages.",
)


class CompactedBody(RunBody):
    """The run; with `mode` also what to send again."""

    context = ContextBody(  # type: ignore[assignment]
        required=False,
        allow_null=True,
        help_text="With `mode` alone: what `context/` answers now, to be sent at once; null where the run failed.",
    )

    class Meta(RunBody.Meta):
        fields = (*RunBody.Meta.fields, "context")
        read_only_fields = RunBody.Meta.fields


class CompactRequest(StrictSerializer):
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
        help_text="All of it as a person would type it, in place of `instructions`: `/compact keep the SQL`, or with "
        "`up_to:UUID` or `from:UUID` as its second word. Begins with `/compact`.",
    )
    up_to = PlainText(
        required=False,
        allow_null=True,
        max_length=LONGEST_UUID,
        help_text="uuid of a message: what is before it is compacted; it and all later ones stay.",
    )
    mode = serializers.ChoiceField(
        choices=[REACTIVE],
        required=False,
        allow_null=True,
        help_text="`reactive`: the provider has refused a request as too long; the run leaves a context that fits.",
    )
    error = PlainText(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=LONGEST_ERROR,
        help_text="With `mode`: the provider's message, for the figures in it.",
    )
    summarizer = serializers.ChoiceField(
        choices=CHOICES,
        required=False,
        allow_null=True,
        help_text="What writes the summary, in place of the one that the service is set to.",
    )
    dry_run = Switch(
        required=False,
        help_text="Only tell what would be done, what it would cost, and why nothing would be: nothing is stored.",
    )
    wait = Number(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=LONGEST_WAIT,
        help_text=f"Seconds to wait for the run's end before answering; default 0, with `mode` {REACTIVE_WAIT}.",
    )

    def get_fields(self) -> dict[str, Any]:
        """`from` is a word of the language, so the field can't be an attribute."""
        fields = super().get_fields()
        fields["from"] = PlainText(
            required=False,
            allow_null=True,
            max_length=LONGEST_UUID,
            help_text="uuid of a message: it and all that follows are compacted; what is before it stays.",
        )
        return fields

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = {name for name, value in attrs.items() if value not in (None, "")}
        for name, others in EXCLUDES.items():
            if name in given and (too_many := sorted(others & given)):
                told = f"`{name}` and `{too_many[0]}` do not go together: give one of the two."
                raise serializers.ValidationError({too_many[0]: told}, code="invalid")
        if "error" in given and "mode" not in given:
            raise serializers.ValidationError({"error": "`error` belongs to `mode`."}, code="invalid")
        return attrs


def wanted(given: dict[str, Any]) -> actions.Wanted:
    """What the body asks for. Raises CommandError."""
    summarizer = given.get("summarizer") or ""
    if given.get("command"):
        return actions.Wanted.from_command(given["command"], summarizer=summarizer)
    scope = next((scope for scope in (Scope.UP_TO, Scope.FROM) if given.get(scope.value)), Scope.WHOLE)
    return actions.Wanted(
        instructions=given.get("instructions") or "",
        scope=scope,
        scope_uuid=given.get(scope.value) or "",
        summarizer=summarizer,
        reported=actions.reported(error=given.get("error") or "") if given.get("mode") else None,
    )


def wait_for(*, run_id: UUID, seconds: float) -> None:
    """Until the run has ended, at most `seconds`. Holds no transaction, so the worker is not kept waiting; and between
    two looks no connection, of which there are ten, so that many may wait."""
    until = time.monotonic() + seconds
    active = CompactionRun.objects.filter(uuid=run_id, status__in=AT_WORK)
    while (left := until - time.monotonic()) > 0 and active.exists():
        if not connection.in_atomic_block:
            connection.close()
        time.sleep(min(LOOK_EVERY, left))


def answer(*, run: CompactionRun, waited: bool) -> Response:
    """What is answered with a run that was asked for: 200 where waiting for its end sufficed, else 202."""
    if waited and run.failure_reason == FailureReason.NOTHING_TO_COMPACT:
        raise NothingToCompact(run.detail or "There is nothing to compact.", run=str(run.uuid))
    code = status.HTTP_200_OK if waited and not run.is_at_work else status.HTTP_202_ACCEPTED
    return Response(RunBody(run).data, status=code)


class CompactView(RepeatableView):
    def queue(self, session: Session, given: dict[str, Any], call: actions.HeldCall | None) -> UUID:
        """The run's uuid; that of an earlier try of the same call, where it came so far."""
        if call is not None and call.subject is not None:
            return call.subject
        try:
            return actions.request_compaction(
                session=session,
                wanted=wanted(given),
                now=timezone.now(),
                source=CompactionRun.Source.API,
                requested_by=self.caller.user,
                call=call,
            ).uuid
        except actions.CommandError as wrong:
            raise serializers.ValidationError({"command": str(wrong)}, code="invalid") from wrong
        except actions.PartialRefused as refused:
            attr = "command" if given.get("command") else refused.scope
            raise Refused(str(refused), code=refused.code, attr=attr) from refused

    def context_of(self, session_id: UUID, run: CompactionRun) -> Any:
        """What can be sent after a reactive run; also where that found the context compacted, and small enough."""
        if run.status != RunStatus.SUCCEEDED and run.failure_reason != FailureReason.NOTHING_TO_COMPACT:
            return None
        return ContextBody(selectors.context(session=self.session(session_id))).data

    def plan(self, session: Session, given: dict[str, Any]) -> dict[str, Any]:
        try:
            plan = actions.plan_compaction(session=session, wanted=wanted(given))
        except actions.CommandError as wrong:
            raise serializers.ValidationError({"command": str(wrong)}, code="invalid") from wrong
        return plan_body(plan=plan, session=session)

    @extend_schema(
        summary="Compact the session",
        description="Queues a run. One run at a time: while the session has one that is not finished, the answer is "
        "409. With `wait`, a run that ends in time is answered with 200, whether it succeeded or failed. A part of "
        "the session is cut at the nearest place where one may cut: `cut` tells where, and whether that is elsewhere. "
        "With `mode` (`reactive`, off unless REACTIVE_COMPACT or the figure reactive_compact is set) the run leaves a "
        "context that fits, which is answered beside it; where none is to be had, `detail` names what is too large. It "
        "takes the place of a run that started by itself and only waits, and of one that waits for approval. With "
        "`dry_run` the answer is the plan alone: nothing is stored, no model called, and every refusal is told in it.",
        parameters=[IDEMPOTENCY_KEY],
        request=CompactRequest,
        responses={
            200: OpenApiResponse(
                PolymorphicProxySerializer(
                    component_name="CompactedOrPlan",
                    serializers=[CompactedBody, PlanBody],
                    resource_type_field_name=None,
                ),
                description="`wait` sufficed: the finished run; with `dry_run` the plan.",
            ),
            202: OpenApiResponse(RunBody, description="The run, queued or running."),
            400: NOTHING,
            409: ACTIVE_RUN,
        },
        examples=[
            OpenApiExample(
                "wait for it", value={"instructions": "Keep the API design.", "wait": 10}, request_only=True
            ),
            OpenApiExample("as typed", value={"command": "/compact keep the SQL"}, request_only=True),
            OpenApiExample("only tell", value={"dry_run": True}, request_only=True),
            OpenApiExample("a part", value={"up_to": "u200", "wait": 10}, request_only=True),
            OpenApiExample(
                "the provider refused a request",
                value={"mode": REACTIVE, "error": "prompt is too long: 204123 tokens > 200000 maximum"},
                request_only=True,
            ),
        ],
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        given: dict[str, Any] = self.body(CompactRequest)
        return self.once(request, lambda call: self.compacted(session, given, call))

    def compacted(self, session: Session, given: dict[str, Any], call: actions.HeldCall | None) -> Response:
        if given.get("dry_run"):
            return Response(self.plan(session, given))
        queued, is_reactive = self.queue(session, given, call), bool(given.get("mode"))
        seconds = given["wait"] if given.get("wait") is not None else REACTIVE_WAIT if is_reactive else 0
        wait_for(run_id=queued, seconds=seconds)
        run = self.one(selectors.runs_of(team=self.team), queued, name="run")
        waited = bool(seconds)
        if waited and is_reactive and not run.is_at_work:
            return Response({**RunBody(run).data, "context": self.context_of(session.uuid, run)})
        return answer(run=run, waited=waited)

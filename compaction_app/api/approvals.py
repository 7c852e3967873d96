"""runs/{id}/candidate/, accept/ and reject/: a summary that waits for somebody (approve mode)."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import Conflict, Refused
from compaction_app.api.fields import Described, JsonObject, PlainText, StrictSerializer
from compaction_app.api.runs import RunBody
from compaction_app.api.schema import error
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.summary import SECTIONS, heading
from compaction_app.models import CompactionCandidate, CompactionRun

LONGEST_SUMMARY = 400_000  # characters; far more than any context takes
LONGEST_REASON = 2_000  # characters
NINE = "\n\n".join(f"{heading(number)}\n- …" for number in range(1, len(SECTIONS) + 1)).replace(
    "…", "mend the parser", 1
)

BAD_EDIT = error(
    "The body is wrong; `blank`, `missing_sections`, `signed_block`: the text can not stand for the summary; "
    "`not_smaller`, `invalid_context`, `compaction_disabled`: it can not be stored as it is, and goes on waiting.",
    code="missing_sections",
    detail="The summary lacks sections, each of which needs its numbered heading: Pending Tasks.",
)
NOT_AWAITING = error(
    "`not_awaiting`: the run does not wait, or somebody has decided; `stale_view`: what it was made of has changed "
    "since, so that it can not be stored. After `accept/` the run has failed then; after an edit it goes on waiting. "
    "Both come before anything that is wrong with the text.",
    code="not_awaiting",
    detail="Run 0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f does not wait for approval: it is succeeded.",
)


class CandidateBody(Described, serializers.ModelSerializer[CompactionCandidate]):
    """What a run proposes, and waits with."""

    meanings = {
        "run": "The run that waits.",
        "kind": "Of the boundary that it would become.",
        "summary": "The summary as it stands now.",
        "original_summary": "The summary as it was written.",
        "audit": "What was found by looking at it, without a model.",
        "tokens_before": "The context before.",
        "tokens_after": "The context as it would be.",
        "stale": "Whether what it was made of has changed since, so that it can not be accepted any more.",
        "created_at": "Since when it waits.",
        "edited_at": "When somebody last put another text in its place; null where nobody has.",
        "decision": "`accepted` or `rejected`; null while it waits, and where it was stale.",
        "decided_at": "When that was.",
        "decided_as": "Who it was.",
        "reason": "Why it was rejected.",
    }

    run = serializers.UUIDField(source="run.uuid", read_only=True)
    kind = serializers.SerializerMethodField()
    audit = JsonObject(read_only=True)
    decision = serializers.SerializerMethodField()
    stale = serializers.SerializerMethodField()

    class Meta:
        model = CompactionCandidate
        fields = (
            "run",
            "kind",
            "summary",
            "original_summary",
            "audit",
            "tokens_before",
            "tokens_after",
            "stale",
            "created_at",
            "edited_at",
            "decision",
            "decided_at",
            "decided_as",
            "reason",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=CompactionCandidate.Decision.values, allow_null=True))
    def get_decision(self, candidate: CompactionCandidate) -> str | None:
        return candidate.decision or None

    def get_kind(self, candidate: CompactionCandidate) -> str:
        return str(candidate.draft["kind"])

    def get_stale(self, candidate: CompactionCandidate) -> bool:
        return not candidate.decision and selectors.is_stale(candidate=candidate)


class EditRequest(StrictSerializer):
    is_whole = True
    summary = PlainText(max_length=LONGEST_SUMMARY, help_text="Takes the place of the summary, with all its sections.")


class AcceptRequest(StrictSerializer):
    summary = PlainText(
        required=False,
        allow_null=True,
        max_length=LONGEST_SUMMARY,
        help_text="Takes the place of the summary before it is stored; default: as it stands.",
    )


class RejectRequest(StrictSerializer):
    reason = PlainText(
        required=False, allow_null=True, allow_blank=True, max_length=LONGEST_REASON, help_text="Why, for the record."
    )


class _OfARun(ApiView):
    def run_of(self, run_id: UUID) -> CompactionRun:
        run: CompactionRun = self.one(selectors.runs_of(team=self.team), run_id, name="run")
        return run

    def by(self) -> actions.Decider:
        return self.caller.decider

    def shown(self, run_id: UUID) -> Response:
        return Response(RunBody(self.run_of(run_id)).data)


def _conflict(run_error: Exception) -> Exception:
    if isinstance(run_error, actions.NotAwaiting):
        return Conflict(str(run_error), code="not_awaiting", run=str(run_error.run.uuid))
    if isinstance(run_error, actions.StaleView):
        return Conflict(f"It can not be stored any more: {run_error}.", code="stale_view")
    if isinstance(run_error, actions.BadEdit):
        return Refused(str(run_error), code=run_error.code, attr="summary")
    if isinstance(run_error, actions.CannotAccept):
        kind = Conflict if run_error.code == FailureReason.STALE_VIEW else Refused
        return kind(str(run_error), code=run_error.code)
    return run_error


PROBLEMS = (actions.NotAwaiting, actions.StaleView, actions.BadEdit, actions.CannotAccept)


class CandidateView(_OfARun):
    @extend_schema(summary="What a run proposes and waits with", responses=CandidateBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        return self._candidate(run_id)

    @extend_schema(
        summary="Edit what a run proposes",
        description="It goes on waiting, with this text.",
        request=EditRequest,
        responses={200: CandidateBody, 400: BAD_EDIT, 409: NOT_AWAITING},
        examples=[OpenApiExample("another text", value={"summary": NINE}, request_only=True)],
    )
    def patch(self, request: Request, run_id: UUID) -> Response:
        run, given = self.run_of(run_id), self.body(EditRequest)
        try:
            actions.edit_candidate(run=run, summary=given["summary"], by=self.by(), now=timezone.now())
        except PROBLEMS as problem:
            raise _conflict(problem) from problem
        return self._candidate(run_id)

    def _candidate(self, run_id: UUID) -> Response:
        candidate = selectors.candidate_of(run=self.run_of(run_id))
        if candidate is None:
            raise NotFound(f"Run {run_id} has no candidate.")
        return Response(CandidateBody(candidate).data)


class AcceptView(_OfARun):
    @extend_schema(
        summary="Accept what a run proposes",
        description="Stores it as the run would have. Of two that decide at once one wins.",
        request=AcceptRequest,
        responses={200: RunBody, 400: BAD_EDIT, 409: NOT_AWAITING},
        examples=[OpenApiExample("as it stands", value={}, request_only=True)],
    )
    def post(self, request: Request, run_id: UUID) -> Response:
        run, given = self.run_of(run_id), self.body(AcceptRequest)
        try:
            actions.accept_candidate(run=run, by=self.by(), now=timezone.now(), summary=given.get("summary"))
        except PROBLEMS as problem:
            raise _conflict(problem) from problem
        return self.shown(run_id)


class RejectView(_OfARun):
    @extend_schema(
        summary="Reject what a run proposes",
        description="Ends the run; nothing of it is stored.",
        request=RejectRequest,
        responses={200: RunBody, 409: NOT_AWAITING},
        examples=[OpenApiExample("with a reason", value={"reason": "the rules are missing"}, request_only=True)],
    )
    def post(self, request: Request, run_id: UUID) -> Response:
        run, given = self.run_of(run_id), self.body(RejectRequest)
        try:
            actions.reject_candidate(run=run, reason=given.get("reason") or "", by=self.by(), now=timezone.now())
        except PROBLEMS as problem:
            raise _conflict(problem) from problem
        return self.shown(run_id)

"""Which legal cut a message stands for (S7), or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_app import telemetry
from compaction_app.engine.command import Scope
from compaction_app.engine.parts import part_budget_tokens, part_segment, shown_tokens
from sessions_app import selectors
from sessions_app.models import Message, Session
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from sessions_app.transcript.messages import MessageKind
from sessions_app.transcript.view import ContextView

SIDES = {Scope.UP_TO: "before", Scope.FROM: "from"}
NOTHING_THERE = {
    Scope.UP_TO: "Nothing can be compacted before this message: nothing is shown there, or there is no legal cut.",
    Scope.FROM: "Nothing can be compacted from this message on: it waits for an answer or a result, and so does what "
    "follows.",
}


class PartialRefused(Exception):
    """The part that is asked for can't be compacted: `code` for programs, the message for people, `scope` for the
    field that it was asked by."""

    def __init__(self, *, code: str, detail: str, scope: str = "") -> None:
        self.code, self.scope = code, scope
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Cut:
    """`position`: where the cut stands; `uuid`: of the message there; `moved`: whether that is another one than was
    asked for."""

    position: int
    uuid: str
    moved: bool


def find_cut(*, session: Session, scope: Scope, uuid: str) -> Cut:
    """Where the part that `uuid` names is cut. Reads what is shown, whatever the history's length. Raises
    PartialRefused: unknown_uuid, foreign_session, not_on_live_path, already_compacted, nothing_on_that_side.

    `session`: with its team loaded.
    """
    view = selectors.context_view(session=session)
    asked = next((m for m in view.messages if m.uuid == uuid), None)
    if asked is None:
        raise _not_shown(session=session, scope=scope, uuid=uuid, view=view)
    policy = selectors.effective_policy(team=session.team, session=session).policy
    segment = part_segment(view=view, scope=scope, position=asked.position, waiting_tokens=policy.waiting_round_tokens)
    if segment is None:
        raise PartialRefused(code="nothing_on_that_side", detail=NOTHING_THERE[scope], scope=scope.value)
    if part_budget_tokens(policy=policy, view=view, segment=segment) < policy.summary_least_tokens:
        few, side = shown_tokens(view=view, segment=segment), SIDES[scope]
        detail = f"The {few:,} tokens {side} this message are too few for a summary."
        raise PartialRefused(code="nothing_on_that_side", detail=detail, scope=scope.value)
    there = next(m for m in view.messages if m.position == segment.cut)
    return Cut(position=segment.cut, uuid=there.uuid, moved=there.position != asked.position)


def cut_values(*, scope: str, draft: BoundaryDraft, view: ContextView | None) -> dict[str, str]:
    """Where the cut of a boundary stands that was made for a part, as the run's row tells it. What came since the run
    was asked for may have moved it. `view`: what the draft was made of; None where that is not known any more."""
    if scope == Scope.WHOLE or view is None or not draft.kind.is_part:
        return {}
    last = draft.covers_to
    if draft.preserved and draft.kind is BoundaryKind.PARTIAL_UP_TO and draft.base:
        last = draft.preserved.first - 1  # an earlier summary stands within what is kept
    elif draft.kind is BoundaryKind.PARTIAL_FROM:
        last = draft.preserved.last if draft.preserved else 0
    there = next((m.uuid for m in view.messages if m.position > last), None)
    return {"cut_uuid": there} if there else {}


def _not_shown(*, session: Session, scope: Scope, uuid: str, view: ContextView) -> PartialRefused:
    """Why a message is not among what is shown: told of this team's sessions only."""

    def refused(code: str, detail: str) -> PartialRefused:
        return PartialRefused(code=code, detail=detail, scope=scope.value)

    own = Message.objects.filter(session=session, uuid=uuid).only("position", "left_path_at", "is_sidechain", "kind")
    row = own.first()
    if row is None:
        if Message.objects.filter(session__team=session.team, uuid=uuid).exists():
            return refused("foreign_session", "This message belongs to another session.")
        return refused("unknown_uuid", "There is no message with this uuid.")
    if row.left_path_at is not None or row.is_sidechain or row.kind != MessageKind.NORMAL:
        return refused("not_on_live_path", "This message is not part of the conversation as it goes on.")
    covered = view.boundary.covers_to if view.boundary else 0
    return refused(
        "already_compacted",
        f"This message (position {row.position}) is compacted already: all up to position {covered} is told by a "
        "summary.",
    )


def tell_refused(*, session: Session, refused: PartialRefused, source: str, now: datetime) -> None:
    """The telemetry event of a part that was refused before there was a run (S18)."""
    payload = {"reason": refused.code, "direction": refused.scope, "query_source": source, "thread": session.thread}
    name = telemetry.PARTIAL_COMPACT_FAILED
    telemetry.emit_of_session(name=name, session=session, payload=payload, now=now)

"""Plan mode and the plan, as they are at the boundary (known failure C16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compaction_app.engine.attachments.calls import Call
from compaction_app.engine.attachments.fitting import Purse, fit_lines
from compaction_app.engine.client_state import StateValue
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.file_tools import PLAN_TOOL

PLAN_MODE = (
    "The session is in plan mode now, as its client tells. While it is, nothing is changed: files are read and "
    "searched, a plan is worked out and put before the user for approval, and edits or commands that change anything "
    "wait until the user has approved it."
)
DECIDED = "The plan that was approved. It is decided: it is not to be planned or put to the user again"
OPEN = "The plan so far. It is not approved"
UNKNOWN = "The plan, as the session's client tells it. The session is not in plan mode, so planning is over"


@dataclass(frozen=True, slots=True)
class Plan:
    """`decided`: whether the person has approved it; None where nobody tells."""

    text: str
    decided: bool | None
    source: str


def plan_mode_attachment(*, state: StateValue, purse: Purse) -> Iterator[AttachmentValue]:
    """Only where the client says so of now: what the history says may be over."""
    tokens = purse.cost(PLAN_MODE)
    if state.plan_mode and tokens <= purse.tokens:
        value = AttachmentValue(kind="plan_mode", text=PLAN_MODE, payload={}, tokens=tokens)
        purse.pay(value)
        yield value


def plan_attachment(
    *, calls: Sequence[Call], state: StateValue, policy: Policy, purse: Purse
) -> Iterator[AttachmentValue]:
    plan = _plan(calls=calls, state=state)
    if plan is None:
        return
    value = fit_lines(
        kind="plan",
        label=_label(plan=plan, planning=state.plan_mode),
        text=plan.text,
        payload={"decided": plan.decided, "source": plan.source},
        purse=purse,
        most=policy.attached_plan_tokens,
        least=policy.attached_least_tokens,
    )
    if value:
        yield value


def _label(*, plan: Plan, planning: bool) -> str:
    if plan.decided:
        return DECIDED
    return UNKNOWN if plan.decided is None and not planning else OPEN


def _plan(*, calls: Sequence[Call], state: StateValue) -> Plan | None:
    """The client's, else the last that was put to the person and not refused; None where the tail holds it."""
    put = next((c for c in reversed(calls) if c.name == PLAN_TOOL and c.argument("plan").strip()), None)
    if state.plan:
        same = put if put and put.argument("plan").strip() == state.plan.strip() else None
        if same and same.in_tail:
            return None
        decided = state.plan_approved
        if decided is None and same and same.result is not None:
            decided = same.succeeded
        return Plan(text=state.plan, decided=decided, source="state")
    if put is None or put.in_tail or put.failed:
        return None
    return Plan(text=put.argument("plan"), decided=put.succeeded, source="history")

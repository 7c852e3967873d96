"""Composed reads of the transcript. Nothing here writes, and nothing reads more history than the view shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db.models import F, Prefetch, Q, QuerySet
from django.db.models.functions import Coalesce

from sessions_app.catalog import ModelInfo, ToldLimits, limits, tokenizer_family
from sessions_app.models import Attachment, CompactBoundary, Message, PathAbsence, Session, Team, ToolCall
from sessions_app.models.boundaries import BoundaryQuerySet
from sessions_app.models.messages import MessageQuerySet
from sessions_app.policy import Policy, ResolvedPolicy, resolve
from sessions_app.transcript import messages as values
from sessions_app.transcript.boundary import Boundary, BoundaryKind
from sessions_app.transcript.calibration import Calibration
from sessions_app.transcript.file_tools import FILE_TOOLS, PLAN_TOOL, SKILL_TOOL
from sessions_app.transcript.view import ContextView, ViewItem, fold, head_of, stream_items

logger = logging.getLogger(__name__)

# {"fetched_at": seconds since 1970, "models": {id: [context window, longest output]}}: what the provider told last.
MODEL_LIMITS_KEY = "model-limits"


class UnknownBoundary(Exception):
    """The boundary is not one of this session."""


def effective_policy(*, team: Team, session: Session | None = None) -> ResolvedPolicy:
    """Default < environment < team < session, with the origin of each value that is not the default."""
    return resolve(
        environment=settings.COMPACTION_POLICY,
        team=team.policy_overrides,
        session=session.policy_overrides if session else None,
    )


class _Told:
    """What the cache holds of models, as this process read it last.

    An append and a prepare ask several times, and a cache that is silent makes each look-up wait for its timeout: so
    what was read, or that nothing was, is held for some seconds.
    """

    _models: Mapping[str, ToldLimits]
    _until: float

    def __init__(self) -> None:
        self.forget()

    def models(self) -> Mapping[str, ToldLimits]:
        if monotonic() >= self._until:
            self._read()
        return self._models

    def _read(self) -> None:
        policy = Policy()
        try:
            self._models = (cache.get(MODEL_LIMITS_KEY) or {}).get("models", {})
            held = policy.catalog_held_seconds
        except Exception as error:
            logger.warning("the cache does not answer (%s); windows of models stay as they are", type(error).__name__)
            held = policy.catalog_pause_seconds
        self._until = monotonic() + held

    def forget(self) -> None:
        self._models, self._until = {}, float("-inf")


_told = _Told()


def model_limits(*, model: str | None) -> ModelInfo:
    """Context window and longest output of `model`, in tokens: as the provider told them, else as the table has them.

    Costs one look-up in the cache each few seconds, and no query. A cache that does not answer never stops an append:
    what it told before, else the table, stands.
    """
    return limits(model=model, told=_told.models())


def forget_model_limits() -> None:
    """Look into the cache again with the next call of `model_limits` (in this process)."""
    _told.forget()


def head_boundary(*, session: Session) -> CompactBoundary | None:
    """The boundary that the view starts from: the newest that summarises and is in force. One index look-up."""
    return _with_attachments(session=session).summarizing().filter(reverted_at__isnull=True).order_by("-id").first()


def estimate_ratio(*, session: Session) -> float:
    """Billed tokens per estimated one, as this session's responses have shown; 1 while nothing is known."""
    calibration = Calibration.from_json(session.calibration)
    return calibration.ratio(figures=Policy()) if calibration else 1.0


def shown_ratio(*, session: Session) -> float:
    """Tokens of the context, as far as they are told, per estimated token of what is shown now."""
    if not session.view_tokens:
        return estimate_ratio(session=session)
    return max(session.context_tokens - session.overhead_tokens, 0) / session.view_tokens


def newest_boundary(*, session: Session) -> CompactBoundary | None:
    """The newest boundary in force, of any kind. One index look-up."""
    return _newest_first(session=session).defer("facts").select_related("base").first()


def newest_boundary_id(*, session: Session) -> int | None:
    """Primary key of the newest boundary in force, of any kind. One index look-up."""
    return _newest_first(session=session).values_list("pk", flat=True).first()


def _newest_first(*, session: Session) -> BoundaryQuerySet:
    return CompactBoundary.objects.filter(session=session, reverted_at__isnull=True).order_by("-id")


def gone_stale(*, session: Session, head_id: int | None, as_of: int) -> str:
    """Why what was made of the context up to position `as_of`, through the head boundary `head_id` (None: without one),
    can't stand any more; "" where it can. At most three index look-ups."""
    head = head_boundary(session=session)
    if (head.pk if head else None) != head_id:
        return "another boundary was written meanwhile"
    left = Message.objects.filter(session=session, left_path_at__gt=as_of, position__lte=as_of)
    return "the conversation was taken back to an earlier message meanwhile" if left.exists() else ""


def _with_attachments(*, session: Session) -> BoundaryQuerySet:
    """Without the facts: only a compaction wants them, and each view would have to read them."""
    return (
        CompactBoundary.objects.filter(session=session)
        .defer("facts")
        .prefetch_related(Prefetch("attachments", queryset=Attachment.objects.order_by("ordinal")))
    )


def context_view(*, session: Session, edits_at_api: bool = False) -> ContextView:
    """What the model sees now. Rows read: what is shown, whatever the history's length.

    `edits_at_api`: as a request shows it that carries the edits which clear results on the API's side.
    """
    boundaries = _in_force(session=session)
    shown = _shown_rows(session=session, head=head_of(boundaries)).filter(left_path_at__isnull=True)
    family = tokenizer_family(session.model)
    return fold(messages=_values(shown), boundaries=boundaries, family=family, edits_at_api=edits_at_api)


def _in_force(*, session: Session) -> list[Boundary]:
    """The head boundary, if there is one, and the micro ones whose clearing still holds. Two index look-ups, and their
    attachments; two more for each earlier summary that the head keeps in view."""
    row = head_boundary(session=session)
    head = row.as_value() if row else None
    others = _with_attachments(session=session).filter(
        Q(reverted_at__isnull=True, kind=BoundaryKind.MICROCOMPACT.value, pk__gt=head.clears_from if head else 0)
        | _told_by_thinking(head)
    )
    # Ordered here: asked for the order, SQLite looks through all boundaries of the session.
    return [*([head] if head else []), *sorted((b.as_value() for b in others), key=lambda one: one.sequence)]


def _told_by_thinking(head: Boundary | None) -> Q:
    """Boundaries that were taken back after responses had been made through them, which are shown still: their thinking
    is bound to a context that is none any more."""
    shown_from = head.covers_to if head and not head.preserved else 0
    return Q(reverted_position__gt=F("committed_at_position")) & Q(reverted_position__gt=shown_from)


@dataclass(frozen=True, slots=True)
class StreamedView:
    """A view that is read once, item by item: `boundary` is the one at its head."""

    items: Iterator[ViewItem]
    boundary: Boundary | None


_ROLES = {role.value: role for role in values.Role}
# Of a stored message, what is read to look at many of them.
_STREAMED = ("position", "uuid", "role", "content", "tokens", "message_id", "is_meta")


def stream_view(*, session: Session) -> StreamedView:
    """What the model sees now, as the session's row tells it, without holding it: for views of any length.

    The messages come without model, usage and time.
    """
    boundaries = _in_force(session=session)
    head = head_of(boundaries)
    shown = _shown_rows(session=session, head=head).filter(
        left_path_at__isnull=True, kind=values.MessageKind.NORMAL, position__lte=session.last_position
    )
    rows = shown.order_by("position").values_list(*_STREAMED).iterator(chunk_size=500)
    items = stream_items(messages=map(_streamed, rows), boundaries=boundaries, family=tokenizer_family(session.model))
    return StreamedView(items=items, boundary=head)


def _streamed(row: tuple[Any, ...]) -> values.Message:
    position, uuid, role, content, tokens, message_id, is_meta = row
    return values.Message(
        position=position,
        uuid=uuid,
        role=_ROLES[role],
        content=content,
        tokens=tokens,
        message_id=message_id,
        is_meta=is_meta,
    )


def context_view_at(*, session: Session, boundary_uuid: str) -> ContextView:
    """What the model saw right after a boundary, exactly. Raises UnknownBoundary. Rows read: what was shown."""
    row = _boundary(session=session, boundary_uuid=boundary_uuid)
    return _view_then(session=session, row=row, at=row.as_value())


def context_view_before(*, session: Session, boundary_uuid: str) -> ContextView:
    """What the model saw right before a boundary was written, exactly. Raises UnknownBoundary."""
    row = _boundary(session=session, boundary_uuid=boundary_uuid)
    changes_nothing = Boundary(
        id=str(row.uuid),
        kind=BoundaryKind.MICROCOMPACT,
        covers_to=row.covers_to,
        committed_at=row.committed_at_position,
        created_at=row.created_at,
        sequence=row.pk,
    )
    return _view_then(session=session, row=row, at=changes_nothing)


def _boundary(*, session: Session, boundary_uuid: str) -> CompactBoundary:
    row = _with_attachments(session=session).filter(uuid=boundary_uuid).first()
    if row is None:
        raise UnknownBoundary(boundary_uuid)
    return row


def _view_then(*, session: Session, row: CompactBoundary, at: Boundary) -> ContextView:
    """The view at the moment of a boundary: through the head of then, and what was cleared then."""
    timed = Q(reverted_after__isnull=True, reverted_at__gt=row.created_at)
    held = Q(reverted_at__isnull=True) | Q(reverted_after__gte=row.pk) | timed
    earlier = _with_attachments(session=session).filter(pk__lt=row.pk)
    head = at if at.kind.summarizes else None
    if head is None:
        head_row = earlier.filter(held).summarizing().order_by("-id").first()
        head = head_row.as_value() if head_row else None
    others = earlier.filter(
        held & Q(kind=BoundaryKind.MICROCOMPACT.value, pk__gt=head.clears_from if head else 0)
        | ~held & _told_by_thinking(head)
    )
    boundaries = [*([head] if head and head is not at else []), *(b.as_value() for b in others.order_by("id")), at]
    shown = _shown_rows(session=session, head=head).live_at(at.committed_at)
    away = _away_at(session=session, position=at.committed_at)
    messages = [message for message in _values(shown) if message.position not in away]
    return fold(messages=messages, boundaries=boundaries, family=tokenizer_family(session.model), at=at)


def _away_at(*, session: Session, position: int) -> set[int]:
    """Positions of the messages that had left the live path when the session had `position` messages, and are back."""
    rows = PathAbsence.objects.filter(session=session, left_at__lte=position, back_at__gt=position)
    return {one for positions in rows.values_list("positions", flat=True) for one in positions}


def _shown_rows(*, session: Session, head: Boundary | None) -> MessageQuerySet:
    rows = Message.objects.filter(session=session, is_sidechain=False)
    if head is None:
        return rows
    return rows.filter(_shown_by(head))


def _shown_by(boundary: Boundary) -> Q:
    """Where the messages stand that a boundary shows: what it keeps is read through the one below."""
    after, kept = Q(position__gt=boundary.covers_to), boundary.preserved
    if kept is None:
        return after
    within = Q(position__range=(kept.first, kept.last))
    return after | (within & _shown_by(boundary.base) if boundary.base else within)


def _values(rows: QuerySet[Message]) -> list[values.Message]:
    return [row.as_value() for row in rows.order_by("position").defer("envelope").iterator(chunk_size=500)]


def covered_history(*, session: Session, up_to: int, most_messages: int) -> list[values.Message]:
    """The originals on the live path at positions 1..up_to, oldest first: what a summary is made from.

    Never more than `most_messages` entries: then every human prompt and the newest others, so that the cost has
    a bound however long the session is.
    """
    live = Message.objects.filter(
        session=session, position__lte=up_to, is_sidechain=False, left_path_at__isnull=True
    ).defer("envelope")
    newest = list(live.order_by("-position")[:most_messages])
    if len(newest) == most_messages and newest[-1].position > 1:
        older_prompts = live.filter(is_prompt=True, position__lt=newest[-1].position).order_by("-position")
        newest += list(older_prompts[:most_messages])
    return [row.as_value() for row in reversed(newest)]


def touched_files(*, session: Session, up_to: int, most_calls: int) -> list[values.Message]:
    """Messages on the live path at positions 1..up_to that hold the newest `most_calls` calls on files and of skills,
    the last plan that was put to the person, their results, and the texts of skills; oldest first.

    One index look-up a tool, and at most three rows a call, whatever the history's length. Where the newest calls were
    left behind by a rewind, fewer are found.
    """
    names = sorted(FILE_TOOLS | {SKILL_TOOL})
    calls = [(*place, name) for name in names for place in _calls_of(session, name, up_to)[:most_calls]]
    calls = sorted(calls, reverse=True)[:most_calls]
    calls += [(*place, PLAN_TOOL) for place in _calls_of(session, PLAN_TOOL, up_to)[:1]]
    wanted = {position for use, result, _ in calls for position in (use, result)}
    # A skill's text comes in the entry behind its result.
    wanted |= {result + 1 for _, result, name in calls if name == SKILL_TOOL and result}
    positions = {position for position in wanted if 0 < position <= up_to}
    live = Message.objects.filter(
        session=session,
        position__in=positions,
        left_path_at__isnull=True,
        is_sidechain=False,
        kind=values.MessageKind.NORMAL,
    )
    return _values(live)


def _calls_of(session: Session, name: str, up_to: int) -> Any:
    """(position of the use, position of the result or 0) of a tool's calls, newest first, by one index."""
    calls = ToolCall.objects.filter(session=session, name=name, use_position__lte=up_to).order_by("-use_position")
    return calls.values_list("use_position", Coalesce("result_position", 0))

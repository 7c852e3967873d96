"""Whatever is done to a session, in whatever order: each context is valid, nothing that was given is lost, what is
taken back leaves what was there before, and every earlier context can be had again, byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from compaction_app import actions
from compaction_app.engine.command import Scope
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.llm.extractive import ExtractiveSummarizer
from compaction_app.llm.factory import make_summarizer
from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import situations
from sessions_app import selectors as transcripts
from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.policy import Policy
from sessions_app.services import accounting
from sessions_app.services.append import append_messages
from sessions_app.services.exports import export_session
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.transcripts import import_transcript
from sessions_app.transcript.exported import copy_uuid
from sessions_app.transcript.messages import Role
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import ContextView
from tests.build import res, text, thinking, use
from tests.factories import NOW, make_session, make_team
from tests.resume import chain_of, read

pytestmark = pytest.mark.django_db

# Figures that let everything happen on histories of a few messages.
SMALL = {
    "time_based_keep_results": 1,
    "time_based_least_tokens": 0,
    "cache_edit_keep_results": 1,
    "cache_edit_trigger_results": 2,
    "clear_least_tokens": 0,
    "full_budget_floor_tokens": 400,
    "full_tail_share": 0.6,
    "memory_tail_least_tokens": 300,
    "memory_tail_least_texts": 1,
    "memory_tail_tokens": 5_000,
    "reactive_compact": True,
    "context_window": 60_000,
}
SENTENCE = {
    "en": "Please look at src/app.py and fix the failing test in tests/test_login.py, then tell me what it was. ",
    "zh": "请查看 src/登录.py 并修复失败的测试，然后告诉我原因。",
    "odd": "x\x00y \ud800 🎉\u200d ## 7. Pending Tasks ``` ",
}
WORDS = st.builds(lambda kind, count: SENTENCE[kind] * count, st.sampled_from(sorted(SENTENCE)), st.integers(1, 60))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
TOOLS = st.sampled_from(["Read", "Bash", "Grep", "AskUserQuestion", "ExitPlanMode", "mcp__x"])
TURN = st.fixed_dictionaries(
    {
        "prompt": WORDS,
        "calls": st.lists(TOOLS, max_size=3),
        "size": st.integers(1, 80),
        "thinks": st.booleans(),
        "image": st.booleans(),
        "apart": st.booleans(),
        "answered": st.sampled_from([True, True, True, False]),
        "closing": st.booleans(),
        "usage": st.sampled_from([None, None, 3_000, 30_000]),
    }
)
TURNS = st.lists(TURN, max_size=2)
SUMMARY = "summary"
MEMORY = "# Session Title\nLogin\n\n# Current State\nThe test tests/test_login.py fails in src/app.py.\n"


class Native:
    """Answers as the provider's own compaction does."""

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        block = {"type": "compaction", "content": "What was \x00 so far.", "signature": "c2ln" * 4, "z": {"a": [None]}}
        return SummaryResult(text=str(block["content"]), summarizer="anthropic_native", blocks=(block,))


class Down:
    """A provider that does not answer."""

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        raise CompactionRefused(reason=FailureReason.API_ERROR, detail="unreachable")


class Blank:
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        return SummaryResult(text="  ", summarizer="blank")


WRITERS: dict[str, Any] = {"own": ExtractiveSummarizer, "native": Native, "down": Down, "blank": Blank}


def turn_of(number: int, told: dict[str, Any]) -> list[IncomingMessage]:
    """A prompt, a response with parallel calls (in one entry or one each), results, and an answer perhaps."""
    blocks: list[Any] = [thinking("hm", f"sig{number}")] if told["thinks"] else []
    calls = [use(f"c{number}-{i}", name, file_path=f"/srv/f{i}.py") for i, name in enumerate(told["calls"])]
    blocks += [text("Looking."), *calls]
    parts = [[one] for one in blocks] if told["apart"] else [blocks]
    usage = {"input_tokens": told["usage"], "output_tokens": 9} if told["usage"] else None
    prompt: Any = [text(told["prompt"]), IMAGE] if told["image"] else told["prompt"]
    entries = [IncomingMessage(role=Role.USER, content=prompt, uuid=f"u{number}")]
    entries += [
        IncomingMessage(role=Role.ASSISTANT, content=part, uuid=f"a{number}-{i}", message_id=f"m{number}", usage=usage)
        for i, part in enumerate(parts)
    ]
    if calls and told["answered"]:
        results = [res(one["id"], f"{one['id']} line\n" * told["size"]) for one in reversed(calls)]
        entries.append(IncomingMessage(role=Role.USER, content=results, uuid=f"r{number}"))
    if told["closing"] and (told["answered"] or not calls):
        entries.append(
            IncomingMessage(role=Role.ASSISTANT, content="Done.", uuid=f"z{number}", message_id=f"n{number}")
        )
    return entries


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def shown(view: ContextView) -> list[tuple[Any, ...]]:
    """What stands in the view, item by item; not which thinking is still valid, which what follows may change."""
    items = [(item.position, item.role, digest(item.content), item.cleared, item.edited) for item in view.items]
    # What a boundary puts in has another uuid in a copy of it, and nothing else.
    return items


def messages_of(view: ContextView) -> list[str]:
    """The request's blocks in order, each with its role, to the letter."""
    messages = build_request(view=view).messages
    return [json.dumps([number, m["role"], block]) for number, m in enumerate(messages) for block in m["content"]]


@dataclass(frozen=True)
class Moment:
    """A context as it stood: right before a boundary was written, or right after."""

    items: list[tuple[Any, ...]]
    messages: list[str]
    last: int


class Clock:
    """Goes on by a little each time that somebody looks, so that nothing happens at one moment with something else."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        self.at += timedelta(milliseconds=1)
        return self.at


class OtherWays(RuleBasedStateMachine):
    clock = Clock()
    writer = "own"

    @initialize(turns=st.lists(TURN, min_size=2, max_size=5))
    def begin(self, turns: list[dict[str, Any]]) -> None:
        self.session = make_session(policy_overrides=SMALL)
        self.number = 0
        self.given: list[str] = []
        self.before: dict[str, Moment] = {}
        self.after: dict[str, Moment] = {}
        self.rewound_at = 0
        self.go_on(turns=turns)

    # What clients and people do

    def append(self, entries: Sequence[IncomingMessage]) -> None:
        append_messages(session_id=self.session.pk, incoming=entries, now=timezone.now())
        self.given += [digest([entry.role, entry.content]) for entry in entries]
        self.reload()

    def reload(self) -> None:
        self.session = Session.objects.select_related("team").get(pk=self.session.pk)

    def view(self) -> ContextView:
        return transcripts.context_view(session=self.session)

    def moment(self) -> Moment:
        view = self.view()
        return Moment(items=shown(view), messages=messages_of(view), last=self.session.last_position)

    @rule(turns=st.lists(TURN, min_size=1, max_size=4))
    def go_on(self, turns: list[dict[str, Any]]) -> None:
        for told in turns:
            self.number += 1
            self.append(turn_of(self.number, told))

    @rule(data=st.data())
    def answer_late(self, data: st.DataObject) -> None:
        """The result of a call that was open comes after all."""
        calls = transcripts.ToolCall.objects.filter(session=self.session, result_position__isnull=True)
        ids = list(calls.values_list("tool_use_id", flat=True))
        if not ids:
            return
        self.number += 1
        content = [res(data.draw(st.sampled_from(ids)), "late\n" * 40)]
        self.append([IncomingMessage(role=Role.USER, content=content, uuid=f"l{self.number}")])

    @rule(told=TURN, data=st.data())
    def rewind(self, told: dict[str, Any], data: st.DataObject) -> None:
        """The conversation goes on from an earlier message, on the path or on a branch that was left."""
        uuids = list(self.session.messages.order_by("position").values_list("uuid", flat=True))
        if not uuids:
            return
        self.number += 1
        first, *others = turn_of(self.number, told)
        self.append([replace(first, parent_uuid=data.draw(st.sampled_from(uuids))), *others])
        self.rewound_at = self.session.last_position

    @rule(cold=st.booleans())
    def prepare(self, cold: bool) -> None:
        self.clock.at += timedelta(hours=2) if cold else timedelta(seconds=1)
        before, known = self.moment(), self.known()
        prepared = actions.prepare(session=self.session, now=timezone.now())
        messages = prepared.context.context.messages if hasattr(prepared.context, "context") else []
        assert not messages or validate_messages(messages=messages) == []
        self.reload()
        self.note(before, known)

    @rule(turns=TURNS, writer=st.sampled_from(sorted(WRITERS)))
    def compact(self, turns: list[dict[str, Any]], writer: str) -> None:
        self.go_on(turns=turns)
        self.run(actions.Wanted(), writer=writer)

    @rule(turns=TURNS, data=st.data())
    def compact_by_memory(self, turns: list[dict[str, Any]], data: st.DataObject) -> None:
        self.go_on(turns=turns)
        live = self.session.messages.filter(left_path_at__isnull=True).order_by("position")
        uuids = list(live.values_list("uuid", flat=True))
        if not uuids:
            return
        covers = data.draw(st.sampled_from(uuids))
        actions.put_memory(session=self.session, content=MEMORY * 3, covers=covers, now=timezone.now())
        self.run(actions.Wanted())
        actions.put_memory(session=self.session, content="", covers="", now=timezone.now())

    @rule(data=st.data(), scope=st.sampled_from([Scope.UP_TO, Scope.FROM]), native=st.booleans())
    def compact_a_part(self, data: st.DataObject, scope: Scope, native: bool) -> None:
        uuids = list(self.session.messages.order_by("position").values_list("uuid", flat=True))
        if uuids:
            wanted = actions.Wanted(scope=scope, scope_uuid=data.draw(st.sampled_from(uuids)))
            self.run(wanted, writer="native" if native else "own")

    @rule(turns=TURNS, tokens=st.integers(4_000, 80_000))
    def compact_after_an_error(self, turns: list[dict[str, Any]], tokens: int) -> None:
        self.go_on(turns=turns)
        error = f"prompt is too long: {tokens + 1} tokens > {tokens} maximum"
        self.run(actions.Wanted(reported=actions.reported(error=error)))

    @rule(accepts=st.booleans(), edits=st.booleans(), later=TURNS, turns=TURNS)
    def compact_with_approval(
        self, accepts: bool, edits: bool, later: list[dict[str, Any]], turns: list[dict[str, Any]]
    ) -> None:
        self.go_on(turns=turns)
        self.override(approve_compactions=True)
        before, known = self.moment(), self.known()
        run = self.run(actions.Wanted(), noted=False)
        self.override(approve_compactions=None)
        if run is None or run.status != RunStatus.AWAITING_APPROVAL:
            self.note(before, known)
            return
        self.go_on(turns=later)
        before = self.moment()
        by = actions.Decider()
        if not accepts:
            actions.reject_candidate(run=run, reason="no", by=by, now=timezone.now())
            assert self.moment() == before
            return
        summary = run.candidate.summary.replace("Done.", "Finished.") if edits else None
        try:
            actions.accept_candidate(run=run, by=by, now=timezone.now(), summary=summary)
        except actions.CannotAccept:
            actions.reject_candidate(run=run, reason="no", by=by, now=timezone.now())
        self.reload()
        self.note(before, known)

    def override(self, **values: Any) -> None:
        actions.update_session(session=self.session, values={"policy_overrides": values})
        self.reload()

    @rule()
    def revert(self) -> None:
        head = transcripts.head_boundary(session=self.session)
        if head is None:
            return
        actions.revert_boundary(boundary=head, now=timezone.now())
        self.reload()
        now, then = self.moment(), self.before[str(head.uuid)]
        self.as_then(now, then, committed=head.committed_at_position)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        rows = CompactBoundary.objects.filter(session=self.session, reverted_at__isnull=False).summarizing()
        rows = list(rows.order_by("pk"))
        if not rows:
            return
        row = data.draw(st.sampled_from(rows))
        before, known = self.moment(), self.known()
        try:
            brought = actions.restore_boundary(boundary=row, now=timezone.now())
        except actions.RevertRefused:
            assert self.moment() == before
            return
        self.reload()
        self.note(before, known)
        then = self.after[str(row.uuid)]
        # The clearings that fell with it come back too.
        lights = CompactBoundary.objects.filter(session=self.session, pk__gt=brought.pk)
        if not lights.exists():
            self.as_then(self.moment(), then, committed=row.committed_at_position)

    def as_then(self, now: Moment, then: Moment, *, committed: int) -> None:
        """The context is that of then and what was appended since. Thinking aside, which may not verify any more."""
        if self.session.last_position == then.last:
            assert now.messages == then.messages, "byte for byte"
        if self.rewound_at <= committed:
            assert now.items[: len(then.items)] == then.items
            since = self.session.messages.filter(position__gt=then.last, left_path_at__isnull=True, kind="normal")
            added = list(since.order_by("position").values_list("position", flat=True))
            assert [item[0] for item in now.items[len(then.items) :]] == added

    def run(self, wanted: Any, *, writer: str = "own", noted: bool = True) -> CompactionRun | None:
        if not self.session.last_position:
            return None
        before, known = self.moment(), self.known()
        OtherWays.writer = writer
        try:
            run = actions.compact_now(session=self.session, wanted=wanted, now=timezone.now(), listener=lambda *_: None)
        except actions.PartialRefused:
            return None
        finally:
            OtherWays.writer = "own"
        self.reload()
        if noted:
            self.note(before, known)
        if run.status == RunStatus.FAILED and len(self.known()) == len(known):
            assert self.moment() == before, "a failure changes nothing"
        return run

    def known(self) -> set[str]:
        return {str(uuid) for uuid in self.session.boundaries.values_list("uuid", flat=True)}

    def note(self, before: Moment, known: set[str]) -> None:
        """Remember the contexts around each new boundary. What one run has written came one after the other."""
        new = self.session.boundaries.exclude(uuid__in=known).order_by("pk")
        rows = list(new)
        for row in rows:
            self.before[str(row.uuid)] = before
            last = row is rows[-1]
            view = (
                self.view() if last else transcripts.context_view_at(session=self.session, boundary_uuid=str(row.uuid))
            )
            before = Moment(items=shown(view), messages=messages_of(view), last=self.session.last_position)
            self.after[str(row.uuid)] = before

    # What must hold

    @invariant()
    def the_context_is_valid(self) -> None:
        for edits_at_api in (False, True):
            view = transcripts.context_view(session=self.session, edits_at_api=edits_at_api)
            messages = build_request(view=view).messages
            assert not messages or validate_messages(messages=messages) == []

    @invariant()
    def nothing_that_was_given_is_lost(self) -> None:
        rows = Message.objects.filter(session=self.session).order_by("position")
        assert [digest([row.role, row.content]) for row in rows] == self.given

    @invariant()
    def the_counters_are_what_a_recount_gives(self) -> None:
        self.reload()
        view = self.view()
        assert self.session.view_tokens == view.tokens
        assert self.session.view_bytes == view.content_bytes
        level, tokens = self.session.level, self.session.context_tokens
        accounting.settle(session=self.session)
        assert (self.session.level, self.session.context_tokens) == (level, tokens)

    @invariant()
    def every_earlier_context_can_be_had_again(self) -> None:
        for uuid, moment in list(self.after.items())[-4:]:
            self.look_back(uuid, moment)

    def look_back(self, uuid: str, moment: Moment) -> None:
        then = transcripts.context_view_at(session=self.session, boundary_uuid=uuid)
        assert messages_of(then) == moment.messages

    def teardown(self) -> None:
        if not getattr(self, "session", None) or not self.session.last_position:
            return
        for uuid, moment in self.after.items():
            self.look_back(uuid, moment)
        self.comes_back_from_an_export()

    def comes_back_from_an_export(self) -> None:
        export = export_session(session=self.session, format_name="claude-code", policy=Policy())
        data = b"".join(export.chunks)
        self.its_client_resumes(data)
        stream = BytesIO(data)
        report = import_transcript(team=make_team(), stream=stream, name=export.name, policy=Policy(), now=NOW)
        assert report.problems == []
        rows = Message.objects.filter(session=report.session).order_by("position")
        assert [digest([row.role, row.content]) for row in rows] == self.given
        back = transcripts.context_view(session=report.session)
        assert shown(back) == shown(self.view())
        if not self.session.boundaries.filter(reverted_at__isnull=False).exists():
            assert messages_of(back) == messages_of(self.view())
        self.comes_back_from_a_document()

    def comes_back_from_a_document(self) -> None:
        """Which tells what was taken back, too: every context is the same again."""
        self.session.refresh_from_db()
        export = export_session(session=self.session, format_name="anthropic", policy=Policy())
        stream = BytesIO(b"".join(export.chunks))
        report = import_transcript(team=make_team(), stream=stream, name=export.name, policy=Policy(), now=NOW)
        assert report.problems == []
        back = transcripts.context_view(session=report.session)
        assert messages_of(back) == messages_of(self.view())
        mine, theirs = (one.boundaries.order_by("pk") for one in (self.session, report.session))
        for uuid, copy in zip(mine.values_list("uuid"), theirs.values_list("uuid"), strict=True):
            then = transcripts.context_view_at(session=self.session, boundary_uuid=str(uuid[0]))
            again = transcripts.context_view_at(session=report.session, boundary_uuid=str(copy[0]))
            assert messages_of(again) == messages_of(then)

    def its_client_resumes(self, data: bytes) -> None:
        """The client's own walk gives our context: all but entries of a response, and results, that hang beside the
        chain, which it pulls in by their ids."""
        wanted = [item.uuid if item.position else SUMMARY for item in self.view().items if ":" not in item.uuid]
        original = {
            copy_uuid(boundary_line=str(boundary), uuid=uuid): uuid
            for boundary in self.session.boundaries.values_list("uuid", flat=True)
            for uuid in wanted
        }
        chain = [one for one in chain_of(read(data)) if one["type"] in ("user", "assistant")]
        got = [SUMMARY if one.get("isCompactSummary") else original.get(one["uuid"], one["uuid"]) for one in chain]
        rest = iter(wanted)
        assert all(uuid in rest for uuid in got), "in order, and nothing that is not shown"
        beside = self.session.messages.filter(uuid__in=set(wanted) - set(got))
        ids = {one["message"].get("id") for one in chain}
        assert all(row.message_id in ids if row.role == Role.ASSISTANT else not row.is_prompt for row in beside)


@pytest.mark.thorough
def test_any_order_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def written_by(*, name: str, outside: Any) -> Any:
        return WRITERS[OtherWays.writer]() if OtherWays.writer != "own" else make_summarizer(name=name, outside=outside)

    monkeypatch.setattr(timezone, "now", OtherWays.clock.now)
    monkeypatch.setattr(situations, "make_summarizer", written_by)
    run_state_machine_as_test(
        OtherWays,
        settings=settings(
            max_examples=25, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

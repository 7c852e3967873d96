"""Session memory on real transcripts (S6): what stays behind a memory, what of it is shown, when one is extracted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from compaction_app import actions
from compaction_app.engine.links.session_memory import NAME
from compaction_app.engine.memory import says_nothing
from compaction_app.models import CompactionState, RunStatus, SessionMemory
from sessions_app import selectors
from sessions_app.catalog import tokenizer_family
from sessions_app.models import Session
from sessions_app.policy import Policy
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.transcripts import import_transcript
from sessions_app.transcript.messages import Message, Role, text_of
from sessions_app.transcript.request import build_request
from sessions_app.transcript.rounds import call_spans, cut_points
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.window import window_of
from tests.factories import NOW, make_session, make_team
from tests.functional.test_auto_trigger import conversation
from tests.real_transcripts import CLAUDE_CODE, needs_transcripts

pytestmark = [pytest.mark.django_db, pytest.mark.transcripts, needs_transcripts]

LEAST_TOKENS, LEAST_TEXTS, MOST_TOKENS = 10_000, 5, 40_000  # S6, for what stays verbatim
SHOWN_TOKENS = 12_000  # of the memory itself (policy: memory_tokens)
SHARES = (0.4, 0.7, 0.95, 1.0)  # of the live path, that a memory covers
SMALL = "# Task\nMend what the person asked for.\n\n# Done\n- read the sources\n- ran the tests"
SECTIONS, LINES = 24, 160  # of a document that is far too large
MARK = re.compile(r"\[… about [\d,]+ tokens of this section left out\]")
# What these show is smaller than what S6 keeps verbatim, so a memory in front of it would only make it longer.
TOO_SMALL = {
    "agentcmd-v2-0-dangling",
    "entire-tiny-dangling-task",
    "entire-tiny-queue-op",
    "episodic-tiny-mcp",
    "gitsync-api-retry",
    "gitsync-cut-mid-line",
    "sniffly-small-interrupt",
    "viewer-sidechains-in-file",
    "wallet-openrouter-redacted-thinking",
}
# A document that is far too large is tried on these: what they show leaves room for all that a memory may take.
LARGE = {
    "entire-api-error-web-search",
    "entirecontext-preserved-segment-korean",
    "episodic-headless-start-ansi",
    "gitsync-resumed-four-times",
    "sniffly-v1-emoji",
}
FIRST_TOKENS, STEP_TOKENS, STEP_CALLS = 10_000, 5_000, 3  # S6, for what is written in the background
EXTRACTED_FROM = ("packmind-images-auto-compact", "sniffly-v1-emoji", "entirecontext-preserved-segment-korean")
MOST_APPENDED = 60_000  # tokens of each; enough for several extractions


def load(path: Path) -> Session:
    with path.open("rb") as stream:
        report = import_transcript(team=make_team(), stream=stream, name=path.name, policy=Policy(), now=NOW)
    return again(report.session)


def again(session: Session) -> Session:
    return Session.objects.select_related("team").get(pk=session.pk)


def huge(messages: Sequence[Message]) -> str:
    """A document of many sections, each with more of the session's own words than a context has room for."""
    words = "\n".join(text_of(message.content) for message in messages)
    # Neither a heading nor a fence may come from the words: the sections are ours, to be found again.
    lines = [line.replace("`", "'").replace("~", "-").lstrip(" #") for line in words.splitlines() if line.strip()]
    body = "\n".join(itertools.islice(itertools.cycle(line[:400] for line in lines or ["a line"]), LINES))
    return "\n".join(f"## {number} of {SECTIONS}\n{body}" for number in range(1, SECTIONS + 1))


def live_positions(session: Session) -> list[int]:
    live = session.messages.filter(left_path_at__isnull=True, is_sidechain=False, kind="normal")
    return list(live.order_by("position").values_list("position", flat=True))


def texts(messages: Sequence[Message]) -> int:
    return sum(bool(text_of(message.content).strip()) for message in messages)


def size(messages: Sequence[Message]) -> int:
    return sum(message.tokens for message in messages)


class Tried:
    """A compaction by hand of a session whose memory covers all to position `covers`; `content` None: its own one."""

    def __init__(self, session: Session, *, covers: int, content: str | None) -> None:
        self.session, self.covers = again(session), covers
        self.before = selectors.context_view(session=self.session)
        if content is not None:
            uuid = self.session.messages.get(position=covers).uuid
            actions.put_memory(session=self.session, content=content, covers=uuid, now=NOW)
        self.run = actions.compact_now(
            session=self.session, wanted=actions.Wanted(), now=NOW, listener=lambda stage, fraction: None
        )
        self.why = self.run.steps.get(link=NAME).why
        self.after = selectors.context_view(session=again(self.session))

    @property
    def by_memory(self) -> bool:
        return self.run.boundary is not None and self.run.boundary.kind == NAME

    def faults(self) -> list[str]:
        """What S6 promises and was not kept."""
        found = validate_messages(messages=build_request(view=self.after).messages)
        return found + (self._faults_of_what_stays() if self.by_memory else self._faults_of_the_reason())

    def _faults_of_what_stays(self) -> list[str]:
        assert self.run.boundary is not None
        shown, covers_to = self.before.messages, self.run.boundary.covers_to
        tail = [m for m in self.after.messages if m.position > covers_to]
        cuts = cut_points(shown)
        start = tail[0].position if tail else shown[-1].position + 1
        earlier = [cut for cut in cuts if cut < start]
        longer = [m for m in shown if earlier and m.position >= earlier[-1]]
        later = [cut for cut in cuts if start < cut <= self.covers + 1]
        shorter = [m for m in tail if later and m.position >= later[0]]
        window = window_of(policy=Policy(), model=selectors.model_limits(model=self.session.model))
        calls = {c.use_position: c.result_position for c in call_spans(shown) if c.result_position is not None}
        kept = {m.position for m in tail}
        rules = {
            "more than the most stays": size(tail) <= MOST_TOKENS,
            "less than the least stays, and there was room": enough(tail) or not earlier or size(longer) > MOST_TOKENS,
            "more stays than is asked for": not later or not enough(shorter),
            "the tail begins where one may not cut": start in cuts,
            "what is not covered is hidden": kept >= {m.position for m in shown if m.position > self.covers},
            "something of the middle is missing": tail == [m for m in shown if m.position >= start],
            "what was hidden is back": {m.position for m in self.after.messages} <= {m.position for m in shown},
            "a call is parted from its result": all((a in kept) == (b in kept) for a, b in calls.items()),
            "over the automatic threshold": (self.run.tokens_after or 0) < window.auto_compact_threshold,
            "it is no smaller": self.after.tokens < self.before.tokens,
        }
        return [fault for fault, kept_to in rules.items() if not kept_to]

    def _faults_of_the_reason(self) -> list[str]:
        """A memory that was passed over says why, and that is so."""
        shown, head = self.before.messages, self.before.boundary
        uncovered = size([m for m in shown if m.position > self.covers])
        gain = re.search(r"what is shown would go from ([\d,]+) to ([\d,]+) tokens", self.why)
        sizes = [int(one.replace(",", "")) for one in gain.groups()] if gain else []
        little = re.search(r"no more than ([\d,]+) tokens would be freed", self.why)
        freed = int(little[1].replace(",", "")) if little else -1
        reasons = {
            "the summary that is shown knows more": head is not None and head.covers_to > self.covers,
            f"the {uncovered:,} tokens that the memory does not cover are more than": uncovered > MOST_TOKENS,
            "tokens would be freed": 0 <= freed < 0.05 * (self.run.steps.get(link=NAME).tokens_before or 0),
            "what is shown would go from": bool(sizes) and sizes[1] >= sizes[0] == self.before.tokens,
        }
        return [] if any(reason in self.why and holds for reason, holds in reasons.items()) else [self.why]


def enough(messages: Sequence[Message]) -> bool:
    return size(messages) >= LEAST_TOKENS and texts(messages) >= LEAST_TEXTS


@pytest.mark.parametrize("path", CLAUDE_CODE, ids=lambda path: path.stem)
@pytest.mark.thorough
def test_what_stays_behind_a_memory(path: Path) -> None:
    session, faults, by_memory = load(path), {}, 0
    live = live_positions(session)
    for share in SHARES:
        with transaction.atomic():
            tried = Tried(session, covers=live[min(int(len(live) * share), len(live) - 1)], content=SMALL)
            faults[share] = tried.faults()
            by_memory += tried.by_memory
            done = RunStatus.FAILED if "dangling-task" in path.stem else RunStatus.SUCCEEDED
            assert tried.run.status == done, tried.run.detail
            transaction.set_rollback(True)
    assert not any(faults.values()), faults
    assert bool(by_memory) == (path.stem not in TOO_SMALL)


@pytest.mark.parametrize("path", [p for p in CLAUDE_CODE if p.stem in LARGE], ids=lambda path: path.stem)
@pytest.mark.thorough
def test_a_document_that_is_too_large_is_cut_section_by_section(path: Path) -> None:
    session = load(path)
    live = live_positions(session)
    view = selectors.context_view(session=session)
    tried = Tried(session, covers=live[int(len(live) * 0.95)], content=huge(view.messages))
    assert (tried.by_memory, tried.faults()) == (True, []), tried.why
    assert tried.run.boundary is not None
    shown = tried.run.boundary.summary or ""
    assert estimate_text(text=shown, family=tokenizer_family(session.model)) <= SHOWN_TOKENS
    parts = re.split(r"^## ", shown, flags=re.MULTILINE)[1:]
    assert [part.splitlines()[0] for part in parts] == [f"{number} of {SECTIONS}" for number in range(1, SECTIONS + 1)]
    assert all(MARK.fullmatch(part.splitlines()[-1]) for part in parts)
    assert all(len(part.splitlines()) > 2 for part in parts), "nothing but headings is left"


@pytest.mark.parametrize("path", [p for p in CLAUDE_CODE if p.stem in EXTRACTED_FROM], ids=lambda path: path.stem)
@pytest.mark.thorough
def test_it_is_written_as_the_session_grows(
    path: Path, eager_worker: None, django_capture_on_commit_callbacks: Any
) -> None:
    given = conversation(path)
    session = make_session(model=next(one["model"] for one in given if one["model"]))
    grown: list[Grown] = []
    written: list[int] = []
    for one in given:
        with django_capture_on_commit_callbacks(execute=True):
            incoming = IncomingMessage(**{**one, "role": Role(one["role"])})
            actions.append_turn(session=again(session), incoming=[incoming], now=NOW)
        session.refresh_from_db()
        grown.append(Grown(tokens=session.appended_tokens, calls=session.appended_calls))
        state = CompactionState.objects.filter(session=session).first()
        if state is not None and state.memory_at_tokens == session.appended_tokens:
            written.append(len(grown) - 1)
            assert bad_extraction(session) == []
        if session.appended_tokens > MOST_APPENDED:
            break
    assert len(written) >= 3
    assert written == when_due(grown)
    memory = SessionMemory.objects.get(session=session)
    tried = Tried(session, covers=memory.covers_position, content=None)
    assert (tried.by_memory, tried.faults()) == (True, []), tried.why


def bad_extraction(session: Session) -> list[str]:
    row = SessionMemory.objects.get(session=session)
    rules = {
        "only a template": not says_nothing(content=row.content),
        "not by the embedded summariser": (row.source, row.summarizer) == ("extracted", "extractive"),
        "not of originals": row.generation == 1,
        "covers what is not live": row.covers_position in live_positions(session),
        "too large": row.tokens <= SHOWN_TOKENS,
        "names another message": session.messages.get(uuid=row.covers_uuid).position == row.covers_position,
    }
    return [fault for fault, kept_to in rules.items() if not kept_to]


@dataclass(frozen=True)
class Grown:
    """How much was appended so far."""

    tokens: int
    calls: int


def when_due(grown: Sequence[Grown]) -> list[int]:
    """Numbers of the appends after which a memory is written, by S6 alone."""
    found: list[int] = []
    for number, now in enumerate(grown):
        if not found:
            due = now.tokens >= FIRST_TOKENS
        else:
            last = grown[found[-1]]
            due = now.tokens - last.tokens >= STEP_TOKENS and now.calls - last.calls >= STEP_CALLS
        if due:
            found.append(number)
    return found

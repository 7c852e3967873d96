"""The main job on real input: every real Claude Code transcript in, compacted, and a context out that the API takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import RunStatus
from sessions_app import selectors
from sessions_app.models import Message, Session, ToolCall, TranscriptEntry
from sessions_app.policy import Policy
from sessions_app.services.transcripts import import_transcript
from sessions_app.transcript.messages import human_text, text_of
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.factories import NOW, make_team
from tests.real_transcripts import CLAUDE_CODE, needs_transcripts, told

pytestmark = [pytest.mark.django_db, pytest.mark.transcripts, needs_transcripts]

# Nothing in it can be compacted: one prompt of a hundred tokens, and a call that still waits for its result.
ONLY_AN_OPEN_CALL = "entire-tiny-dangling-task.jsonl"


@pytest.fixture(scope="module")
def rows() -> Any:
    return told()


def load(path: Path) -> tuple[Session, Any]:
    with path.open("rb") as stream:
        report = import_transcript(team=make_team(), stream=stream, name=path.name, policy=Policy(), now=NOW)
    return report.session, report


def sdk_chain(path: Path) -> set[str]:
    """The live path as the client itself finds it when it resumes: from the newest terminal up through the parents,
    over boundaries by their logical parent, with all entries of each response and the results of its calls."""
    lines: dict[str, dict[str, Any]] = {}
    for raw in path.read_text(encoding="utf-8").splitlines():
        rest = raw.strip()
        while rest:
            try:
                entry, end = json.JSONDecoder().raw_decode(rest)
            except ValueError:
                break
            rest = rest[end:].strip()
            if isinstance(entry, dict) and entry.get("uuid") and "parentUuid" in entry:
                lines.setdefault(entry["uuid"], entry)
    main = [e for e in lines.values() if e["type"] in ("user", "assistant") and not e.get("isSidechain")]
    chain: set[str] = set()
    at: str | None = main[-1]["uuid"]
    while at and at not in chain:
        chain.add(at)
        at = lines[at].get("parentUuid") or lines[at].get("logicalParentUuid") if at in lines else None
    ids = {lines[u]["message"].get("id") for u in chain if lines.get(u, {}).get("type") == "assistant"}
    chain |= {e["uuid"] for e in main if e["type"] == "assistant" and e["message"].get("id") in ids}
    calls = {b["id"] for u in chain if u in lines for b in _blocks(lines[u]) if b.get("type") == "tool_use"}
    chain |= {e["uuid"] for e in main if any(b.get("tool_use_id") in calls for b in _blocks(e))}
    return {e["uuid"] for e in main} & chain


def _blocks(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = (entry.get("message") or {}).get("content")
    yield from content if isinstance(content, list) else []


@pytest.mark.parametrize("path", CLAUDE_CODE, ids=lambda path: path.stem)
class TestEveryFile:
    def test_agrees_with_what_is_known_of_it(self, path: Path, rows: Any) -> None:
        session, report = load(path)
        known = rows[path.name]
        # A line that holds two objects counts for nobody in the table, and its second is a repetition.
        assert session.messages.count() == known.messages
        if "sidechain" not in path.name:  # there the largest context is a sub-agent's
            assert session.peak_prompt_tokens == known.max_context
        assert session.messages.filter(is_sidechain=True).count() == known.count("sidechain lines")
        calls = ToolCall.objects.filter(session=session)
        assert calls.filter(result_position__isnull=True).count() == known.count("dangling tool_use")
        assert calls.filter(use_position__isnull=True).count() == known.count("orphan tool_result")
        assert session.messages.filter(kind="compact_summary").count() == known.count("compact summaries")
        assert session.boundaries.filter(kind="microcompact").count() == known.count("microcompact boundaries")
        for tool in ("TodoWrite", "Task", "ExitPlanMode", "WebSearch", "Skill"):
            assert calls.filter(name=tool).count() == known.count(tool), tool
        assert [problem for problem in report.problems if "unknown kind" in problem.reason] == []
        unread = {problem.line_number for problem in report.problems}
        assert unread == ({49} if "cut-mid-line" in path.name else set())
        assert TranscriptEntry.objects.filter(session=session).count() == report.entries

    @pytest.mark.thorough
    def test_again_changes_nothing(self, path: Path) -> None:
        team = make_team()
        for again in (False, True):
            with path.open("rb") as stream:
                report = import_transcript(team=team, stream=stream, name=path.name, policy=Policy(), now=NOW)
            if again:
                assert (report.messages, report.entries, report.boundaries, report.created) == (0, 0, 0, False)

    @pytest.mark.thorough
    def test_the_live_path_is_the_clients_own(self, path: Path) -> None:
        session, _ = load(path)
        live = Message.objects.filter(session=session, left_path_at__isnull=True, is_sidechain=False)
        mine, theirs = set(live.values_list("uuid", flat=True)), sdk_chain(path)
        # A parent that is missing in the file ends the client's walk; the history before it is not given up here. And
        # a typed "/compact" hangs beside the chain that its boundary continues.
        if any(part in path.name for part in ("headless-start", "orphan-result", "packmind")):
            assert theirs <= mine
        else:
            beside = live.filter(uuid__in=mine - theirs).values_list("content", flat=True)
            assert theirs <= mine
            assert all(content == "/compact" for content in beside)

    @pytest.mark.thorough
    def test_is_compacted_into_a_context_that_the_api_takes(self, path: Path) -> None:
        session, _ = load(path)
        history = list(session.messages.order_by("position").values())
        view = selectors.context_view(session=session)
        assert validate_messages(messages=build_request(view=view).messages) == []
        run = actions.compact_now(
            session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda stage, fraction: None
        )
        assert list(session.messages.order_by("position").values()) == history
        if path.name == ONLY_AN_OPEN_CALL:
            assert run.failure_reason == "nothing_to_compact"
            return
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert run.boundary is not None
        assert run.boundary.summary is not None
        after = selectors.context_view(session=session)
        assert validate_messages(messages=build_request(view=after).messages) == []
        assert after.tokens < view.tokens
        kept = run.boundary.summary + "\n".join(text_of(m.content) for m in after.messages)
        lost = [
            p.position
            for p in _prompts(session, run.boundary.covers_to)
            if not _survives(human_text(p.as_value()), kept)
        ]
        assert lost == []


def _prompts(session: Session, covers_to: int) -> Any:
    return session.messages.filter(is_prompt=True, left_path_at__isnull=True, position__lte=covers_to)


def _survives(prompt: str, kept: str) -> bool:
    """Verbatim, or its beginning followed by a mark where the budget ended."""
    if prompt in kept:
        return True
    words = prompt.strip()[:12]
    at = kept.find(words)
    while at >= 0:
        same = next((n for n, (a, b) in enumerate(zip(prompt.strip(), kept[at:], strict=False)) if a != b), 0)
        if (
            kept[at + same - 1 : at + same + 12].lstrip().startswith("[…")
            or "[…" in kept[at + same - 2 : at + same + 8]
        ):
            return True
        at = kept.find(words, at + 1)
    return False


def test_the_largest_goes_down_to_three_tenths() -> None:
    path = next(p for p in CLAUDE_CODE if p.name == "gitsync-626k-context-fork.jsonl")
    session, _ = load(path)
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda s, f: None)
    assert run.tokens_before is not None
    assert run.tokens_after is not None
    assert run.tokens_before > 600_000
    assert run.tokens_after <= 0.3 * run.tokens_before

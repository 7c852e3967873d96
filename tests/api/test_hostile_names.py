"""Ids and names of tools that a database may refuse (NUL, lone surrogates) go wherever harmless ones go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.models import CompactionRun, Decision, RunStep
from sessions_app.models import CompactBoundary, Session
from tests.build import res, use
from tests.cast import Cast
from tests.factories import NOW, append, make_session, turns

LONG_AGO = timedelta(hours=1)
HOSTILE = ["\x00", "\ud800", "\udfff\x00ü"]
EVERY_PAGE = ["", "messages/", "context/", "token-state/", "analysis/", "boundaries/", "decisions/"]


def stored(cast: Cast, *, tool_use_id: str = "x", name: str = "Read", **policy: Any) -> Session:
    """A session over its threshold, whose first result is of a hostile call."""
    session = make_session(cast.alices_team, policy_overrides={"context_window": 30_000, **policy})
    body = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use(tool_use_id, name)], "message_id": "m1"},
        {"role": "user", "content": [res(tool_use_id, "line\n" * 400)]},
    ]
    assert cast.alice.send(f"sessions/{session.uuid}/messages/", body).status_code == 201
    append(session, *turns(20, size=3_000), now=timezone.now() - LONG_AGO)
    return session


def everything_is_readable(cast: Cast, session: Session) -> None:
    for page in EVERY_PAGE:
        answer = cast.alice.read(f"sessions/{session.uuid}/{page}")
        assert answer.status_code == 200, (page, answer.content[:300])


def leave(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(last_assistant_at=timezone.now() - LONG_AGO)


@pytest.mark.parametrize("odd", HOSTILE)
@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
class TestPrepare:
    def prepared(self, cast: Cast, session: Session, *, cold: bool) -> CompactBoundary:
        if cold:
            leave(session)
        answer = cast.alice.send(f"sessions/{session.uuid}/prepare/")
        assert answer.status_code == 200, answer.content[:300]
        assert cast.alice.send(f"sessions/{session.uuid}/prepare/").status_code == 200
        everything_is_readable(cast, session)
        return CompactBoundary.objects.get(session=session)

    def test_an_id(self, cast: Cast, odd: str, cold: bool) -> None:
        session = stored(cast, tool_use_id=f"c{odd}", clear_least_tokens=100)
        boundary = self.prepared(cast, session, cold=cold)
        assert boundary.cleared_tool_use_ids[0] == f"c{odd}", "it comes back to the letter"
        assert boundary.cleared_results[0]["tool_use_id"] == f"c{odd}"

    def test_a_name_under_a_pattern(self, cast: Cast, odd: str, cold: bool) -> None:
        session = stored(cast, name=f"mcp__{odd}", clear_least_tokens=100, compactable_tools={"mcp__*": True})
        boundary = self.prepared(cast, session, cold=cold)
        assert boundary.cleared_results[0]["tool"] == f"mcp__{odd}"
        assert Decision.objects.filter(session=session, moment="prepare").exists()


@pytest.mark.parametrize("odd", HOSTILE)
class TestCompact:
    def test_a_run_over_hostile_calls(self, cast: Cast, odd: str) -> None:
        session = stored(cast, tool_use_id=f"c{odd}", name=f"mcp__{odd}", compactable_tools={"mcp__*": True})
        answer = cast.alice.send(f"sessions/{session.uuid}/compact/")
        assert answer.status_code in (200, 202), answer.content[:300]
        everything_is_readable(cast, session)

    def test_words_about_them_are_written_whatever_they_hold(self, session: Session, odd: str) -> None:
        """However they are written: saved, in bulk, or by an update."""
        run = CompactionRun.objects.create(session=session, trigger="manual", queued_at=NOW, detail=f"a{odd}b")
        CompactionRun.objects.filter(pk=run.pk).update(detail=f"of {odd}")
        common = {"run": run, "link": "full", "ran": False, "tokens_before": 1, "tokens_after": 1}
        RunStep.objects.bulk_create([RunStep(ordinal=1, why=f"of {odd}", **common)])
        decision = Decision.objects.create(
            session=session, moment="append", at=NOW, position=1, context_tokens=1, source="estimate", level="ok",
            warning_threshold=1, error_threshold=1, auto_compact_threshold=1, outcome="applied", why=f"of {odd}",
        )  # fmt: skip
        run.refresh_from_db()
        decision.refresh_from_db()
        written = {run.detail, decision.why, RunStep.objects.get(run=run).why}
        assert len(written) == 1
        assert written.pop().startswith("of \ufffd")


@pytest.mark.parametrize("odd", HOSTILE)
class TestRefused:
    @pytest.mark.parametrize("rule", ["a{}", "mcp__{}*"])
    def test_a_rule_for_a_name_that_no_tool_has(self, cast: Cast, odd: str, rule: str) -> None:
        body = {"policy_overrides": {"compactable_tools": {rule.format(odd): True}}}
        answer = cast.alice.send("sessions/", body)
        assert answer.status_code == 400, answer.content[:300]
        assert "compactable_tools" in answer.json()["errors"][0]["detail"]

    def test_a_figure_with_such_a_name(self, cast: Cast, odd: str) -> None:
        assert cast.alice.send("sessions/", {"policy_overrides": {f"context_window{odd}": 5}}).status_code == 400

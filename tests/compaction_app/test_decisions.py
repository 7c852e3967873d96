"""The decision log: what is kept, and what is not worth keeping."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app import actions
from compaction_app.engine.decision import Outcome
from compaction_app.models import Decision
from compaction_app.services import decisions
from compaction_app.services.clearing import Applied
from sessions_app.models import Session
from tests.factories import NOW, append, make_session, turns, user
from tests.pressure import FIGURES, TURNS_BELOW, almost_full, answer

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return almost_full()


class TestAppends:
    def test_it_works(self, session: Session) -> None:
        turn = answer(session)
        decision = Decision.objects.get()
        assert (decision.session, decision.moment, decision.at) == (session, "append", NOW)
        assert decision.position == session.last_position == 4 * TURNS_BELOW + 1
        assert (decision.context_tokens, decision.source) == (session.context_tokens, "estimate")
        assert (decision.level, decision.outcome, decision.run) == ("auto_compact", "requested", turn.run)
        thresholds = (decision.warning_threshold, decision.error_threshold, decision.auto_compact_threshold)
        assert thresholds == (8_000, 9_000, 10_000)
        assert decision.why == f"{session.context_tokens:,} tokens; the threshold of 10,000 is reached"

    def test_near_a_threshold_each_append_leaves_one(self) -> None:
        session = make_session(policy_overrides=FIGURES)
        for number in range(TURNS_BELOW - 2):
            append(session, *turns(1, start=number))
            answer(session, "x")
        kept = list(Decision.objects.order_by("id").values_list("context_tokens", "outcome", "level"))
        assert {outcome for _, outcome, _ in kept} == {"below_threshold"}
        assert [tokens for tokens, _, _ in kept] == sorted(tokens for tokens, _, _ in kept)
        assert 0.9 * 8_000 <= kept[0][0] < 0.9 * 8_000 + 500, "from nine tenths of the lowest threshold on"
        assert {level for _, _, level in kept} == {"ok", "warning", "error"}

    @pytest.mark.parametrize("figures", [{}, {"auto_compact_enabled": False}, {"compaction_enabled": False}])
    def test_far_from_every_threshold_none_is_kept(self, figures: dict[str, Any]) -> None:
        session = make_session(policy_overrides={**FIGURES, **figures})
        append(session, *turns(10))
        answer(session)
        actions.append_turn(session=session, incoming=[user("and?")], now=NOW)
        assert not Decision.objects.exists()

    def test_how_near_is_a_figure(self, session: Session) -> None:
        session.team.policy_overrides = {"decision_near_share": 1}
        session.team.save()
        small = make_session(session.team, policy_overrides=FIGURES)
        append(small, *turns(16))
        answer(small)
        assert not Decision.objects.exists()
        append(small, *turns(2, start=16))
        answer(small)
        assert Decision.objects.get().outcome == "below_threshold"


class TestRecord:
    """Decisions made elsewhere: `prepare`."""

    def record(self, session: Session, outcome: Outcome, **more: Any) -> Decision | None:
        return decisions.record(
            session=session, moment=Decision.Moment.PREPARE, outcome=outcome, why="cache warm", now=NOW, **more
        )

    def test_it_works(self, session: Session) -> None:
        applied = [Applied(link="time_based", ran=False, why="cache warm", cleared=0, tokens_freed=0)]
        decision = self.record(session, Outcome.NOTHING_TO_CLEAR, applied=applied)
        assert decision is not None
        decision.refresh_from_db()
        assert (decision.moment, decision.outcome, decision.why) == ("prepare", "nothing_to_clear", "cache warm")
        assert decision.context_tokens == session.context_tokens
        assert decision.applied == [
            {
                "link": "time_based",
                "ran": False,
                "why": "cache warm",
                "cleared": 0,
                "tokens_freed": 0,
                "boundary": None,
            }
        ]

    def test_far_from_a_threshold_only_what_was_done_is_kept(self) -> None:
        session = make_session()
        assert self.record(session, Outcome.NOTHING_TO_CLEAR) is None
        assert self.record(session, Outcome.APPLIED) is not None

    def test_the_session_is_as_it_is_now(self, session: Session) -> None:
        session.context_tokens = 9_500
        decision = self.record(session, Outcome.APPLIED)
        assert decision is not None
        assert (decision.context_tokens, decision.level) == (9_500, "error")

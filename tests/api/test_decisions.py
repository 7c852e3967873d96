"""GET sessions/{id}/decisions/."""

from __future__ import annotations

import pytest

from compaction_app.models import Decision
from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import make_session
from tests.pressure import almost_full, answer


class TestDecisions:
    def test_it_works(self, api: Api, cast: Cast) -> None:
        session = almost_full(cast.alices_team)
        answer(session, "x")
        run = answer(session).run
        assert run is not None
        body = api.read(f"sessions/{session.uuid}/decisions/").json()
        assert list(body) == ["results", "next", "previous"]
        newest, first = body["results"]
        assert newest == {
            "moment": "append",
            "at": "2026-11-03T09:00:00Z",
            "position": session.last_position,
            "context_tokens": session.context_tokens,
            "source": "estimate",
            "level": "auto_compact",
            "warning_threshold": 8_000,
            "error_threshold": 9_000,
            "auto_compact_threshold": 10_000,
            "outcome": "requested",
            "why": f"{session.context_tokens:,} tokens; the threshold of 10,000 is reached",
            "applied": [],
            "run": str(run.uuid),
        }
        assert (first["outcome"], first["run"]) == ("below_threshold", None)

    def test_it_is_the_sessions_own(self, api: Api, cast: Cast) -> None:
        answer(almost_full(cast.alices_team))
        other = make_session(cast.alices_team)
        assert api.read(f"sessions/{other.uuid}/decisions/").json()["results"] == []

    def test_pages_and_queries(self, api: Api, cast: Cast) -> None:
        """key, session, decisions with their runs: whatever their number."""
        session = almost_full(cast.alices_team)
        run = answer(session).run
        counts = []
        for number in (3, 60):
            kept = Decision.objects.get(pk=Decision.objects.order_by("pk")[0].pk)
            Decision.objects.bulk_create(_copy(kept, position=n, run=run) for n in range(number))
            counts.append(queries_of(lambda: api.read(f"sessions/{session.uuid}/decisions/")))
        assert_same_count(*counts, most=3)
        page = api.read(f"sessions/{session.uuid}/decisions/", page_size=60).json()
        assert [row["position"] for row in page["results"]] == list(range(59, -1, -1))
        assert len(api.read(page["next"]).json()["results"]) == 4


class TestFilters:
    @pytest.fixture
    def session(self, cast: Cast) -> Session:
        """Three decisions, told apart by their position."""
        session = almost_full(cast.alices_team)
        answer(session)
        kept = Decision.objects.get()
        rows = [("append", "requested"), ("prepare", "applied"), ("prepare", "active_run")]
        copies = [_copy(kept, position=n, moment=moment, outcome=told) for n, (moment, told) in enumerate(rows)]
        kept.delete()
        Decision.objects.bulk_create(copies)
        return session

    @pytest.mark.parametrize(
        ("query", "positions"),
        [
            ({"outcome": "applied"}, [1]),
            ({"moment": "prepare"}, [2, 1]),
            ({"moment": "prepare", "outcome": "active_run"}, [2]),
            ({"moment": "append", "outcome": "active_run"}, []),
            ({"moment": "sweep"}, []),
        ],
    )
    def test_they_narrow_the_log(self, api: Api, session: Session, query: dict[str, str], positions: list[int]) -> None:
        found = api.read(f"sessions/{session.uuid}/decisions/", **query).json()["results"]
        assert [row["position"] for row in found] == positions

    @pytest.mark.parametrize("query", [{"outcome": "fired"}, {"moment": "Append"}, {"outcome": ""}])
    def test_an_unknown_word_is_refused(self, api: Api, session: Session, query: dict[str, str]) -> None:
        answered = api.read(f"sessions/{session.uuid}/decisions/", **query)
        assert (answered.status_code, [attr for _, attr in errors(answered)]) == (400, list(query))


def _copy(kept: Decision, **changed: object) -> Decision:
    names = [field.attname for field in Decision._meta.concrete_fields if field.name not in ("id", *changed)]
    return Decision(**{name: getattr(kept, name) for name in names}, **changed)

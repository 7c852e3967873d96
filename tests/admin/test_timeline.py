"""The chart of a session's context: true to what is stored, and the same price for every length."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app import actions
from compaction_app.selectors.timeline import NEIGHBOURS, SAMPLES, context_timeline
from sessions_app.models import Message, Session
from tests.admin.conftest import World, history
from tests.factories import NOW, append, assistant, make_session, user

USAGE = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 1_000}


def with_usages(*tokens: int) -> Session:
    session = make_session(model="claude-sonnet-4-5")
    for number, count in enumerate(tokens):
        usage = {"input_tokens": count, "output_tokens": 0}
        append(session, user(f"ask {number}"), assistant("so", message_id=f"m{number}", usage=usage))
    session.refresh_from_db()
    return session


def chart(page: str) -> str:
    [svg] = re.findall(r'<svg class="ca-chart".*?</svg>', page, re.DOTALL)
    return str(svg)


@pytest.mark.django_db
class TestReading:
    def test_points_are_what_was_billed(self) -> None:
        found = context_timeline(session=with_usages(1_000, 5_000, 9_000))
        assert [(point.position, point.tokens) for point in found.points] == [(2, 1_000), (4, 5_000), (6, 9_000)]
        assert not found.sampled

    def test_every_part_of_a_usage_counts(self) -> None:
        session = make_session()
        append(session, user("a"), assistant("b", usage=USAGE))
        assert [point.tokens for point in context_timeline(session=session).points] == [1_120]

    def test_what_is_beside_the_conversation_is_not_in_it(self) -> None:
        session = with_usages(1_000)
        append(session, assistant("sub", uuid="s", is_sidechain=True, usage=USAGE))
        session.refresh_from_db()
        assert len(context_timeline(session=session).points) == 1

    @pytest.mark.parametrize("usage", [{}, {"input_tokens": 0}, {"input_tokens": "many"}, {"other": 3}])
    def test_a_usage_that_tells_nothing_is_no_point(self, usage: dict[str, object]) -> None:
        session = with_usages(1_000)
        Message.objects.filter(session=session, position=2).update(usage=usage)
        assert context_timeline(session=session).points == []

    def test_a_long_session_costs_what_a_short_one_does(self) -> None:
        short, long = with_usages(1_000, 2_000), with_usages(1_000)
        rows = [
            Message(session=long, position=n, uuid=f"x{n}", role="assistant", content=[], usage=USAGE)
            for n in range(3, 5_000)
        ]
        Message.objects.bulk_create(rows)
        long.last_position = 4_999
        counts = []
        for session in (short, long):
            with CaptureQueriesContext(connection) as queries:
                found = context_timeline(session=session)
            counts.append(len(queries))
        assert counts == [2, 2]
        assert found.sampled
        assert SAMPLES <= len(found.points) <= SAMPLES * NEIGHBOURS
        assert found.points[-1].position == 4_999, "the end is always looked at"


class TestChart:
    def test_shows_thresholds_and_the_drop(self, world: World) -> None:
        page = world.page("vic", history(world.session))
        svg = chart(page)
        assert svg.count("ca-chart-line ") == 3
        assert svg.count("ca-chart-drop") == 1
        assert f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/" in svg
        assert f"{world.boundary.tokens_before:,}" in page.split("Compactions as a table")[1]

    def test_what_was_taken_back_is_no_drop_but_is_told(self, world: World) -> None:
        actions.revert_boundary(boundary=world.boundary, now=NOW)
        page = world.page("vic", history(world.session))
        assert "ca-chart-drop" not in chart(page)
        assert "(reverted)" in page.split("Compactions as a table")[1]

    def test_all_of_it_is_within_the_drawing(self, world: World) -> None:
        session = with_usages(*(n * 90_000 for n in range(1, 6)))  # far beyond any window
        svg = chart(world.page("root", history(session)))
        [line] = re.findall(r'<polyline class="ca-chart-path" points="([^"]*)"', svg)
        places = [tuple(map(float, pair.split(","))) for pair in line.split()]
        assert all(0 <= x <= 1_000 and 0 <= y <= 200 for x, y in places)
        assert [x for x, _ in places] == sorted(x for x, _ in places)

    def test_places_of_the_history_are_a_click_away(self, world: World) -> None:
        svg = chart(world.page("vic", history(world.session)))
        assert f"{history(world.session)}?after=0#m1" in svg

    def test_figures_of_the_drawing_are_not_localised(self, world: World, settings: object) -> None:
        settings.LANGUAGE_CODE = "de"  # type: ignore[attr-defined]
        assert not re.search(r'(?:[xy][12]?|width)="\d+,\d', chart(world.page("vic", history(world.session))))

    def test_a_session_with_nothing_in_it_has_none(self, world: World) -> None:
        assert "ca-chart" not in world.page("root", history(make_session()))

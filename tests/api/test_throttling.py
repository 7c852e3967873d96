"""How many requests one caller may send in a minute."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.cache.backends.locmem import LocMemCache
from rest_framework.exceptions import Throttled

from compaction_app.api import throttling
from compaction_app.api.auth import Caller
from compaction_app.api.throttling import check_rate, room_in
from sessions_app.models import Team
from sessions_app.policy import Policy
from sessions_app.services.teams import create_api_key
from tests.api.browsers import browser_of
from tests.cast import Api, Cast, errors
from tests.factories import make_team

BEGINNING = 1_000_000 * 60.0  # of a minute


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`clock(second)`: so many seconds after the beginning of a minute."""

    def at(second: float) -> None:
        monkeypatch.setattr(time, "time", lambda: BEGINNING + second)

    at(0)
    return at


def allow(team: Team, requests: int) -> None:
    team.policy_overrides = {"api_requests_per_minute": requests}
    team.save()


class TestRate:
    def test_it_works(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 3)
        assert [cast.alice.read("sessions/").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        answer = cast.alice.read("sessions/")
        assert errors(answer) == [("throttled", None)]
        assert 1 <= int(answer.headers["Retry-After"]) <= 120

    def test_after_the_pause_that_was_told_there_is_room(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 3)
        for _ in range(3):
            cast.alice.read("sessions/")
        pause = int(cast.alice.read("sessions/").headers["Retry-After"])
        clock(pause - 2)
        assert cast.alice.read("sessions/").status_code == 429
        clock(pause)
        assert cast.alice.read("sessions/").status_code == 200
        assert cast.alice.read("sessions/").status_code == 429

    def test_the_turn_of_a_minute_gives_no_second_helping(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 10)
        clock(59)
        for _ in range(10):
            cast.alice.read("sessions/")
        clock(61)
        assert cast.alice.read("sessions/").status_code == 429

    def test_a_refused_request_does_not_count(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 1)
        for _ in range(10):
            cast.alice.read("sessions/")
        clock(120)
        assert cast.alice.read("sessions/").status_code == 200

    def test_each_key_has_its_own(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 1)
        assert cast.alice.read("sessions/").status_code == 200
        assert cast.reader.read("sessions/").status_code == 200
        assert cast.reader.read("sessions/").status_code == 429

    def test_each_user_who_is_logged_in_too(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 1)
        mia, vic = browser_of(cast.alices_team), browser_of(cast.alices_team)
        assert [one.read("sessions/").status_code for one in (mia, mia, vic)] == [200, 429, 200]

    def test_writing_counts_as_reading_does(self, cast: Cast, clock: Any) -> None:
        allow(cast.alices_team, 1)
        assert cast.alice.send("sessions/", {}).status_code == 201
        assert cast.alice.send("sessions/", {}).status_code == 429

    def test_nobody_is_refused_as_nobody(self, cast: Cast, clock: Any, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"api_requests_per_minute": 1}
        assert {cast.nobody.read("sessions/").status_code for _ in range(3)} == {401}
        assert {cast.ended["revoked"].read("sessions/").status_code for _ in range(3)} == {401}

    def test_the_default(self, cast: Cast, clock: Any) -> None:
        caller = Caller(team=cast.alices_team, may_write=True, key=cast.alices_key)
        for _ in range(Policy().api_requests_per_minute):
            check_rate(caller=caller)
        with pytest.raises(Throttled):
            check_rate(caller=caller)


class TestCost:
    def caller(self) -> Caller:
        team = make_team("harbor")
        key, _ = create_api_key(team=team)
        return Caller(team=team, may_write=True, key=key)

    @pytest.mark.django_db
    def test_no_query_and_two_calls_of_the_cache(self, clock: Any, django_assert_num_queries: Any) -> None:
        caller, made = self.caller(), []

        class Counted(LocMemCache):
            def get_many(self, *args: Any, **more: Any) -> Any:
                made.append("get_many")
                return {key: LocMemCache.get(self, key) for key in args[0] if LocMemCache.get(self, key) is not None}

            def add(self, *args: Any, **more: Any) -> Any:
                made.append("add")
                return super().add(*args, **more)

            def incr(self, *args: Any, **more: Any) -> Any:
                made.append("incr")
                return super().incr(*args, **more)

            def get(self, *args: Any, **more: Any) -> Any:
                made.append("get")
                return super().get(*args, **more)

        with pytest.MonkeyPatch.context() as patch, django_assert_num_queries(0):
            patch.setattr(throttling, "cache", Counted("counted", {}))
            check_rate(caller=caller)
            check_rate(caller=caller)
        assert made == ["get_many", "add", "get_many", "incr"]

    @pytest.mark.django_db
    def test_without_a_limit_the_cache_is_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        caller = self.caller()
        allow(caller.team, 0)
        monkeypatch.setattr(throttling, "cache", None)
        check_rate(caller=caller)
        assert throttling._counters._silent_until == float("-inf")


class Silent:
    """A cache that does not answer."""

    def __init__(self) -> None:
        self.asked = 0

    def get_many(self, keys: Any) -> Any:
        self.asked += 1
        raise ConnectionError


class TestSilentCache:
    def test_it_refuses_nothing_and_is_left_alone_for_a_while(
        self, api: Api, cast: Cast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        allow(cast.alices_team, 1)
        silent, moment = Silent(), [100.0]
        monkeypatch.setattr(throttling, "cache", silent)
        monkeypatch.setattr(time, "monotonic", lambda: moment[0])
        assert {api.read("sessions/").status_code for _ in range(5)} == {200}
        assert silent.asked == 1
        moment[0] += Policy().api_rate_pause_seconds
        api.read("sessions/")
        assert silent.asked == 2


class TestRoom:
    @pytest.mark.parametrize(
        ("this", "before", "second", "limit", "pause"),
        [
            (0, 0, 0, 1, None),
            (0, 10, 30, 10, None),  # half of the minute before still counts
            (4, 10, 30, 10, None),
            (5, 10, 30, 10, 6),  # once 36 seconds are over, 4 of the ten count
            (10, 0, 0, 10, 66),  # the next minute, once 9 of the ten count
            (1, 0, 30, 1, 90),
            (20, 0, 0, 10, 60 + 33),
        ],
    )
    def test_is_told(self, this: int, before: int, second: float, limit: int, pause: float | None) -> None:
        found = room_in(this=this, before=before, second=second, limit=limit)
        assert found == (pause if pause is None else pytest.approx(pause))

    @pytest.mark.parametrize("limit", [1, 2, 7, 100])
    @pytest.mark.parametrize("second", [0, 0.5, 20, 59.9])
    @pytest.mark.parametrize("before", [0, 1, 7, 150])
    @pytest.mark.parametrize("this", [0, 1, 6, 7, 99, 200])
    def test_comes_when_it_was_told_and_not_before(self, this: int, before: int, second: float, limit: int) -> None:
        def fits(after: float) -> bool:
            minutes, then = divmod(second + after, 60)
            seen = [(this, before), (0, this), (0, 0), (0, 0)][int(minutes)]
            return room_in(this=seen[0], before=seen[1], second=then, limit=limit) is None

        pause = room_in(this=this, before=before, second=second, limit=limit)
        assert fits(0) == (pause is None)
        if pause is not None:
            assert pause > 0
            assert fits(pause + 1e-6)
            assert not fits(pause - 1e-3)

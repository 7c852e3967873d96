"""Keys of repeatable calls: who holds one, what is kept, what is left of a call whose server went away."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from compaction_app.models import IdempotentCall
from compaction_app.services import idempotency
from compaction_app.services.idempotency import CallInProgress, HeldCall, KeptAnswer, KeyConflict, take
from compaction_app.tasks import hand_out_left_behind
from sessions_app.models import Team
from sessions_app.policy import Policy
from tests.factories import NOW, make_team

pytestmark = pytest.mark.django_db
LOST = timedelta(seconds=Policy().idempotency_lost_seconds)
KEPT = timedelta(hours=Policy().idempotency_hours)


@pytest.fixture
def team() -> Team:
    return make_team("harbor")


def held(team: Team, *, digest: str = "d", after: timedelta = timedelta()) -> HeldCall:
    taken = take(team=team, key="k", digest=digest, now=NOW + after)
    assert isinstance(taken, HeldCall)
    return taken


class TestKey:
    def test_it_works(self, team: Team) -> None:
        idempotency.keep(call=held(team), status=202, body={"id": "\x00\ud800", "n": 1.0})
        assert take(team=team, key="k", digest="d", now=NOW) == KeptAnswer(202, {"id": "\x00\ud800", "n": 1.0})

    def test_another_call_conflicts_whether_the_first_is_answered_or_not(self, team: Team) -> None:
        call = held(team)
        with pytest.raises(KeyConflict):
            held(team, digest="other")
        idempotency.keep(call=call, status=202, body={})
        with pytest.raises(KeyConflict):
            held(team, digest="other")

    def test_one_at_a_time(self, team: Team) -> None:
        held(team)
        with pytest.raises(CallInProgress) as refused:
            held(team, after=LOST - timedelta(seconds=1))
        assert refused.value.retry_after >= 1

    def test_is_of_one_team(self, team: Team) -> None:
        idempotency.keep(call=held(team), status=202, body={})
        assert isinstance(take(team=make_team("pier"), key="k", digest="d", now=NOW), HeldCall)

    def test_is_free_again_after_an_error(self, team: Team) -> None:
        idempotency.free(call=held(team))
        held(team, digest="other")

    def test_an_answer_is_kept_for_a_day(self, team: Team) -> None:
        idempotency.keep(call=held(team), status=202, body={"first": True})
        almost = KEPT - timedelta(seconds=1)
        assert isinstance(take(team=team, key="k", digest="d", now=NOW + almost), KeptAnswer)
        again = held(team, digest="other", after=KEPT)
        assert again.subject is None
        with pytest.raises(CallInProgress):
            held(team, digest="other", after=KEPT)
        idempotency.keep(call=again, status=200, body={"second": True})
        assert take(team=team, key="k", digest="other", now=NOW + KEPT) == KeptAnswer(200, {"second": True})


class TestAfterACrash:
    def test_a_call_that_made_nothing_is_done_anew(self, team: Team) -> None:
        held(team)
        assert held(team, after=LOST).subject is None

    def test_a_call_that_made_something_is_answered_with_it(self, team: Team) -> None:
        call, subject = held(team), uuid4()
        idempotency.note(call=call, subject=subject)
        assert held(team, after=LOST).subject == subject

    def test_a_server_that_comes_back_makes_nothing(self, team: Team) -> None:
        late = held(team)
        held(team, after=LOST)
        with pytest.raises(CallInProgress):
            idempotency.note(call=late, subject=uuid4())
        assert IdempotentCall.objects.get().subject is None

    def test_nor_does_it_take_the_key_away(self, team: Team) -> None:
        late = held(team)
        now_mine = held(team, after=LOST)
        idempotency.free(call=late)
        idempotency.hand_back(call=late, now=NOW)
        idempotency.keep(call=late, status=500, body={"late": True})
        idempotency.keep(call=now_mine, status=202, body={"mine": True})
        assert take(team=team, key="k", digest="d", now=NOW) == KeptAnswer(202, {"mine": True})

    def test_a_call_that_broke_off_need_not_be_waited_for(self, team: Team) -> None:
        call, subject = held(team), uuid4()
        idempotency.note(call=call, subject=subject)
        idempotency.hand_back(call=call, now=NOW)
        again = held(team)
        assert again.subject == subject
        idempotency.hand_back(call=again, now=NOW)
        assert held(team).subject == subject

    def test_one_that_broke_off_with_nothing_made_leaves_nothing(self, team: Team) -> None:
        idempotency.hand_back(call=held(team), now=NOW)
        assert not IdempotentCall.objects.exists()


class TestPurge:
    def test_it_works(self, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
        for number, age in enumerate((KEPT, KEPT * 2, KEPT * 3, KEPT - timedelta(seconds=1))):
            take(team=team, key=str(number), digest="d", now=NOW - age)
        monkeypatch.setattr(idempotency, "Policy", lambda: Policy(idempotency_purge_rows=2))
        assert idempotency.purge(now=NOW) == 2
        assert sorted(IdempotentCall.objects.values_list("key", flat=True)) == ["0", "3"]
        assert idempotency.purge(now=NOW) == 1
        assert idempotency.purge(now=NOW) == 0

    def test_the_sweep_does_it(self, team: Team) -> None:
        take(team=team, key="k", digest="d", now=NOW - KEPT)
        hand_out_left_behind(now=NOW)
        assert not IdempotentCall.objects.exists()

    def test_a_key_that_is_used_anew_is_not_old(self, team: Team) -> None:
        held(team)
        held(team, after=KEPT)
        assert idempotency.purge(now=NOW + KEPT) == 0

"""Partial compaction (S7) on stored sessions: what is refused and why, what is written, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from compaction_app import actions
from compaction_app.engine.command import Scope
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.llm import factory
from compaction_app.llm.extractive import ExtractiveSummarizer
from compaction_app.models import CompactionRun, RunStatus, TelemetryEvent
from compaction_app.services import runs
from compaction_app.services.partial import PartialRefused, find_cut
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.transcript.boundary import summary_uuid
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import ContextView
from tests.build import res, use
from tests.factories import NOW, append, assistant, bulk_history, make_session, make_team, turns, user
from tests.stub_api import StubApi

pytestmark = pytest.mark.django_db

SCOPES = [Scope.UP_TO, Scope.FROM]


@pytest.fixture
def session() -> Session:
    """40 turns: u0, a0 (a call), t0 (its result), b0; u1 …"""
    session = make_session()
    append(session, *turns(40))
    return Session.objects.select_related("team").get(pk=session.pk)


def compact(session: Session, scope: Scope, uuid: str = "") -> CompactionRun:
    wanted = actions.Wanted(scope=scope, scope_uuid=uuid)
    run = actions.compact_now(session=session, wanted=wanted, now=timezone.now(), listener=lambda *_: None)
    session.refresh_from_db()
    return run


def boundary_of(run: CompactionRun) -> CompactBoundary:
    assert run.boundary is not None, run.detail
    return run.boundary


def view_of(session: Session) -> ContextView:
    """What is shown, which must be one that the API takes, and must be what the session's counters tell."""
    session.refresh_from_db()
    view = selectors.context_view(session=session)
    assert validate_messages(messages=build_request(view=view).messages) == []
    assert session.view_tokens == view.tokens
    return view


def shown(session: Session) -> list[str]:
    """uuids, and "S" for each summary; what was restored is left out."""
    items = view_of(session).items
    return [item.uuid if item.position else "S" for item in items if ":attachment:" not in item.uuid]


def uuids(*numbers: int) -> list[str]:
    return [f"{letter}{number}" for number in numbers for letter in "uatb"]


def refusal(session: Session, scope: Scope, uuid: str) -> PartialRefused:
    with pytest.raises(PartialRefused) as refused:
        find_cut(session=session, scope=scope, uuid=uuid)
    assert refused.value.scope == scope.value
    return refused.value


class TestFindCut:
    @pytest.mark.parametrize("scope", SCOPES)
    def test_it_works(self, session: Session, scope: Scope) -> None:
        cut = find_cut(session=session, scope=scope, uuid="u20")
        assert (cut.position, cut.uuid, cut.moved) == (81, "u20", False)

    @pytest.mark.parametrize("scope", SCOPES)
    def test_within_a_round_it_moves_to_the_nearest_legal_cut(self, session: Session, scope: Scope) -> None:
        cut = find_cut(session=session, scope=scope, uuid="t20")
        assert (cut.uuid, cut.moved) == ("a20", True)

    @pytest.mark.parametrize("scope", SCOPES)
    def test_nobody_has_such_a_message(self, session: Session, scope: Scope) -> None:
        append(make_session(), user("theirs", uuid="of-another-team"))
        assert refusal(session, scope, "nobody").code == "unknown_uuid"
        assert refusal(session, scope, "of-another-team").code == "unknown_uuid"

    @pytest.mark.parametrize("scope", SCOPES)
    def test_another_session_of_the_team_has_it(self, session: Session, scope: Scope) -> None:
        append(make_session(session.team), user("ours", uuid="elsewhere"))
        assert refusal(session, scope, "elsewhere").code == "foreign_session"

    @pytest.mark.parametrize("scope", SCOPES)
    def test_a_summary_tells_it_already(self, session: Session, scope: Scope) -> None:
        compact(session, Scope.UP_TO, "u20")
        refused = refusal(session, scope, "u5")
        assert refused.code == "already_compacted"
        assert "position 21" in str(refused)

    def test_what_a_from_has_compacted_is_too(self, session: Session) -> None:
        compact(session, Scope.FROM, "u20")
        assert refusal(session, Scope.UP_TO, "u30").code == "already_compacted"
        assert find_cut(session=session, scope=Scope.UP_TO, uuid="u10").moved is False

    @pytest.mark.parametrize("scope", SCOPES)
    def test_it_was_left_behind(self, session: Session, scope: Scope) -> None:
        append(session, user("another way", uuid="other", parent_uuid="b30"))
        assert refusal(session, scope, "u35").code == "not_on_live_path"

    @pytest.mark.parametrize("scope", SCOPES)
    def test_it_is_no_part_of_the_conversation(self, session: Session, scope: Scope) -> None:
        append(session, user("aside", uuid="side", is_sidechain=True))
        assert refusal(session, scope, "side").code == "not_on_live_path"

    def test_nothing_is_before_the_first(self, session: Session) -> None:
        assert refusal(session, Scope.UP_TO, "u0").code == "nothing_on_that_side"

    def test_nothing_may_go_from_what_waits_on(self, session: Session) -> None:
        append(session, user("and now", uuid="asked"))
        assert refusal(session, Scope.FROM, "asked").code == "nothing_on_that_side"
        append(session, assistant([use("open")], uuid="open"))
        assert refusal(session, Scope.FROM, "open").code == "nothing_on_that_side"

    @pytest.mark.parametrize(("scope", "uuid"), [(Scope.UP_TO, "a0"), (Scope.FROM, "b39")])
    def test_too_little_for_a_summary(self, session: Session, scope: Scope, uuid: str) -> None:
        refused = refusal(session, scope, uuid)
        assert refused.code == "nothing_on_that_side"
        assert "too few" in str(refused)

    @pytest.mark.parametrize("scope", SCOPES)
    def test_it_costs_the_same_however_long_the_history_is(self, scope: Scope, django_assert_num_queries: Any) -> None:
        for count in (100, 3_000):
            session = make_session()
            bulk_history(session, count=count)
            append(session, *turns(20))
            run = compact(session, Scope.UP_TO, "u0")
            assert boundary_of(run).covers_to == count
            session = Session.objects.select_related("team").get(pk=session.pk)
            with django_assert_num_queries(4):  # boundary, its attachments, clearings, what is shown
                find_cut(session=session, scope=scope, uuid="u10")
            with django_assert_num_queries(5):  # and the message
                refusal(session, scope, "bulk-1")
            with django_assert_num_queries(6):
                refusal(session, scope, "nobody")


class TestRun:
    def test_up_to(self, session: Session) -> None:
        history = list(session.messages.order_by("position").values())
        run = compact(session, Scope.UP_TO, "u20")
        boundary = boundary_of(run)
        assert (run.scope, run.scope_uuid, run.cut_uuid) == ("up_to", "u20", "u20")
        assert (boundary.kind, boundary.covers_to) == ("partial_up_to", 80)
        assert (boundary.head_uuid, boundary.tail_uuid) == ("u20", "b39")
        assert boundary.anchor_uuid == summary_uuid(boundary_id=str(boundary.uuid))
        assert shown(session) == ["S", *uuids(*range(20, 40))]
        assert [step.link for step in run.steps.all()] == ["partial"]
        assert list(session.messages.order_by("position").values()) == history
        assert run.tokens_after == session.context_tokens

    def test_from(self, session: Session) -> None:
        run = compact(session, Scope.FROM, "u20")
        boundary = boundary_of(run)
        assert (boundary.kind, boundary.covers_to, boundary.base) == ("partial_from", 160, None)
        assert (boundary.head_uuid, boundary.tail_uuid, boundary.anchor_uuid) == ("u0", "b19", str(boundary.uuid))
        assert (boundary.preserved_first, boundary.preserved_last) == (1, 80)
        assert boundary.preserved_placement == "before_summary"
        assert shown(session) == [*uuids(*range(20)), "S"]
        assert boundary.summary is not None
        assert "please do step 20" in boundary.summary
        assert "please do step 3\n" not in boundary.summary, "what stays is not told again"

    def test_from_the_first_message_on(self, session: Session) -> None:
        boundary = boundary_of(compact(session, Scope.FROM, "u0"))
        assert (boundary.kind, boundary.preserved_first, boundary.head_uuid) == ("partial_from", None, "")
        assert shown(session) == ["S"]

    def test_a_tail_stays_behind_the_summary(self, session: Session) -> None:
        append(session, user("and now this", uuid="asked"))
        compact(session, Scope.FROM, "u20")
        assert shown(session) == [*uuids(*range(20)), "S", "asked"]
        append(session, assistant("done", uuid="after"))
        assert shown(session)[-3:] == ["S", "asked", "after"]

    def test_t8_a_question_that_waits_is_kept_and_its_answer_finds_it(self) -> None:
        session = make_session()
        append(session, *turns(3), assistant([use("ask", "AskUserQuestion")], uuid="ask"), *turns(30, start=10))
        compact(session, Scope.UP_TO, "u25")
        assert shown(session)[:3] == ["S", "ask", "u25"]
        append(session, user([res("ask", "the second")], uuid="answer"))
        sent = build_request(view=view_of(session)).messages
        at = next(n for n, m in enumerate(sent) if any(b.get("id") == "ask" for b in m["content"]))
        assert sent[at + 1]["content"][0]["content"] == "the second"

    def test_parts_and_wholes_one_after_the_other(self, session: Session) -> None:
        first = boundary_of(compact(session, Scope.FROM, "u30"))
        seen = [(first, build_request(view=view_of(session)).messages)]
        append(session, *turns(10, start=40))
        second = boundary_of(compact(session, Scope.UP_TO, "u10"))
        assert (second.base_id, second.covers_to) == (first.pk, first.covers_to)
        assert (second.head_uuid, second.tail_uuid) == ("u10", "b49")
        assert shown(session) == ["S", *uuids(*range(10, 30)), "S", *uuids(*range(40, 50))]
        seen.append((second, build_request(view=view_of(session)).messages))
        third = boundary_of(compact(session, Scope.FROM, "u45"))
        assert third.base_id == second.pk
        assert shown(session) == ["S", *uuids(*range(10, 30)), "S", *uuids(*range(40, 45)), "S"]
        seen.append((third, build_request(view=view_of(session)).messages))
        fourth = boundary_of(compact(session, Scope.FROM, "u20"))
        assert shown(session) == ["S", *uuids(*range(10, 20)), "S"]
        assert "please do step 33" in (fourth.summary or "")
        append(session, *turns(5, start=50))
        assert shown(session) == ["S", *uuids(*range(10, 20)), "S", *uuids(*range(50, 55))]
        whole = boundary_of(compact(session, Scope.WHOLE))
        assert shown(session)[0] == "S"
        assert shown(session).count("S") == 1
        assert "please do step 0" in (whole.summary or "")
        for boundary, messages in seen:
            then = selectors.context_view_at(session=session, boundary_uuid=str(boundary.uuid))
            assert build_request(view=then).messages == messages

    def test_a_whole_one_may_follow_at_once(self, session: Session) -> None:
        compact(session, Scope.UP_TO, "u2")
        actions.check_wanted(session=session, wanted=actions.Wanted())
        compact(session, Scope.WHOLE)
        assert len(shown(session)) < 40

    def test_going_back_into_a_kept_prefix_takes_back_what_stood_behind(self, session: Session) -> None:
        compact(session, Scope.FROM, "u30")
        append(session, *turns(3, start=40))
        compact(session, Scope.UP_TO, "u10")
        append(session, user("another way", uuid="other", parent_uuid="b20"))
        assert shown(session) == [*uuids(*range(21)), "other"]

    def test_going_back_behind_the_summary_leaves_it(self, session: Session) -> None:
        compact(session, Scope.FROM, "u30")
        append(session, *turns(3, start=40))
        append(session, user("another way", uuid="other", parent_uuid="b40"))
        assert shown(session) == [*uuids(*range(30)), "S", *uuids(40), "other"]

    def test_only_what_is_shown_is_read(self, session: Session, django_assert_num_queries: Any) -> None:
        compact(session, Scope.FROM, "u30")
        append(session, *turns(10, start=40))
        compact(session, Scope.UP_TO, "u10")
        head = selectors.head_boundary(session=session)
        assert head is not None
        rows = selectors._shown_rows(session=session, head=head.as_value())
        assert rows.count() == 4 * 30
        with django_assert_num_queries(6):  # two boundaries with attachments, clearings, messages
            selectors.context_view(session=session)


class TestMeanwhile:
    @pytest.fixture
    def during(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
        """Do something while the summary is written."""

        def arrange(act: Callable[[], Any]) -> None:
            class Raced(ExtractiveSummarizer):
                def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
                    result = ExtractiveSummarizer.summarize(self, request=request, progress=progress)
                    act()
                    return result

            monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Raced)

        return arrange

    def queue(self, session: Session, scope: Scope, uuid: str) -> CompactionRun:
        cut = find_cut(session=session, scope=scope, uuid=uuid)
        return runs.queue_run(
            session=session,
            trigger="manual",
            instructions="",
            now=timezone.now(),
            scope=scope,
            scope_uuid=uuid,
            cut_uuid=cut.uuid,
        )

    def done(self, run: CompactionRun) -> CompactionRun:
        found = runs.execute(run_id=run.pk)
        assert found is not None
        return found

    @pytest.mark.parametrize("scope", SCOPES)
    def test_t25_messages_that_arrive_stay_behind(
        self, session: Session, during: Callable[[Callable[[], Any]], None], scope: Scope
    ) -> None:
        during(lambda: append(session, user("late", uuid=f"late{session.last_position}")))
        run = self.done(self.queue(session, scope, "u20"))
        assert run.status == RunStatus.SUCCEEDED
        assert shown(session)[-1].startswith("late")

    def test_a_message_that_was_left_behind_before_the_run_began(self, session: Session) -> None:
        run = self.queue(session, Scope.UP_TO, "u35")
        append(session, user("another way", uuid="other", parent_uuid="b30"))
        done = self.done(run)
        assert (done.status, done.failure_reason) == (RunStatus.FAILED, "stale_view")
        assert "left behind" in done.detail
        event = TelemetryEvent.objects.get()
        assert event.name == "tengu_partial_compact_failed"
        assert (event.payload["reason"], event.payload["direction"]) == ("stale_view", "up_to")
        assert event.run_id == run.pk

    def test_what_came_before_the_run_began_is_compacted_too(self, session: Session) -> None:
        run = self.queue(session, Scope.FROM, "u20")
        append(session, *turns(5, start=40))
        self.done(run)
        assert shown(session) == [*uuids(*range(20)), "S"]

    def test_where_the_cut_stands_in_the_end_is_told(self, session: Session) -> None:
        append(session, assistant([use("x"), use("y")], uuid="both"), user([res("x", "x")], uuid="one"))
        run = self.queue(session, Scope.UP_TO, "one")
        assert run.cut_uuid == "both"
        append(session, user([res("y", "y")], uuid="two"), assistant("so", uuid="so"), user("thanks", uuid="thanks"))
        assert self.done(run).cut_uuid == "both"
        append(session, *turns(1, start=60))
        assert self.done(self.queue(session, Scope.UP_TO, "two")).cut_uuid == "so"


class TestTold:
    @pytest.mark.parametrize("scope", SCOPES)
    def test_a_refusal_before_there_is_a_run(self, session: Session, scope: Scope) -> None:
        wanted = actions.Wanted(scope=scope, scope_uuid="nobody")
        with pytest.raises(actions.PartialRefused):
            actions.request_compaction(session=session, wanted=wanted, now=NOW, source="api")
        event = TelemetryEvent.objects.get()
        assert (event.name, event.run, event.session_id, event.at) == (
            "tengu_partial_compact_failed",
            None,
            session.pk,
            NOW,
        )
        assert (event.payload["reason"], event.payload["direction"]) == ("unknown_uuid", scope.value)
        assert event.payload["query_source"] == "api"
        assert not CompactionRun.objects.exists()

    def test_a_success_tells_the_direction(self, session: Session) -> None:
        compact(session, Scope.FROM, "u20")
        payload = TelemetryEvent.objects.get().payload
        assert (payload["direction"], payload["kind"]) == ("from", "partial_from")


class TestAdmin:
    """The form on the session's page takes what a person types elsewhere too."""

    def send(self, session: Session, typed: str) -> Any:
        client = Client()
        client.force_login(get_user_model().objects.create(username="root", is_staff=True, is_superuser=True))
        address = f"/admin/sessions_app/session/{session.pk}/compact/"
        return client.post(address, {"instructions": typed}, follow=True)

    def test_a_part(self, session: Session) -> None:
        self.send(session, "/compact up_to:u20 keep the SQL")
        run = CompactionRun.objects.get()
        assert (run.scope, run.cut_uuid, run.instructions, run.source) == ("up_to", "u20", "keep the SQL", "admin")

    def test_the_refusal_is_told(self, session: Session) -> None:
        page = self.send(session, "/compact from:nobody").content.decode()
        assert "There is no message with this uuid." in page
        assert not CompactionRun.objects.exists()


def test_another_teams_messages_are_nobodys() -> None:
    ours, theirs = make_session(make_team()), make_session(make_team())
    append(ours, *turns(10))
    append(theirs, *turns(10, start=20))
    assert Message.objects.filter(uuid="u25").exists()
    with pytest.raises(PartialRefused) as refused:
        find_cut(session=ours, scope=Scope.FROM, uuid="u25")
    assert (refused.value.code, "another" in str(refused.value)) == ("unknown_uuid", False)


class TestByAModel:
    @pytest.fixture
    def asked(self, provider: StubApi, settings: Any) -> StubApi:
        settings.COMPACTION_SUMMARIZER = "anthropic"
        return provider

    @pytest.mark.parametrize("scope", SCOPES)
    def test_it_works(self, session: Session, asked: StubApi, scope: Scope) -> None:
        run = compact(session, scope, "u20")
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert boundary_of(run).summarizer == "anthropic"
        (body,) = [one.body for one in asked.requests if one.path == "/v1/messages"]
        shown_to_it = [message for message in body["messages"] if "do step" in str(message["content"])]
        assert len(shown_to_it) >= (20 if scope is Scope.UP_TO else 40)
        assert ("do step 30" in str(body["messages"])) == (scope is Scope.FROM)
        assert len(shown(session)) == 81

    def test_it_can_be_done_again(self, session: Session, asked: StubApi) -> None:
        compact(session, Scope.FROM, "u30")
        append(session, *turns(10, start=40))
        for scope, uuid in ((Scope.UP_TO, "u10"), (Scope.FROM, "u45"), (Scope.FROM, "u20")):
            run = compact(session, scope, uuid)
            assert run.status == RunStatus.SUCCEEDED, run.detail
        assert shown(session) == ["S", *uuids(*range(10, 20)), "S"]
        assert boundary_of(run).generation == 2, "it holds what two summaries had told"

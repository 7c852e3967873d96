"""prepare/: the light links, and the request with its edits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app.models import Decision, TelemetryEvent
from compaction_app.services import runs
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import CLEARED_RESULT
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, assistant, bulk_history, make_session, turns, user

pytestmark = pytest.mark.django_db

FIELDS = {
    "system",
    "tools",
    "messages",
    "tokens",
    "boundary",
    "cleared_tool_results",
    "context_management",
    "cache_edits",
    "betas",
    "applied",
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the time, as an offset from NOW."""

    def at(**offset: float) -> None:
        monkeypatch.setattr(timezone, "now", lambda: NOW + timedelta(**offset))

    at()
    return at


def filled(team: Any, *, count: int = 8, size: int = 4_000, **values: Any) -> Session:
    session = make_session(team, **values)
    append(session, *turns(count, size=size))
    return session


def prepare(api: Api, session: Session) -> dict[str, Any]:
    answer = api.send(f"sessions/{session.uuid}/prepare/")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert set(body) == FIELDS
    assert not body["messages"] or validate_messages(messages=body["messages"]) == []
    session.refresh_from_db()
    assert body["tokens"] == session.context_tokens
    assert session.view_tokens == selectors.context_view(session=session).tokens
    return body


def results(body: dict[str, Any]) -> dict[str, Any]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}


class TestTimeBased:
    def test_it_works(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        before = session.context_tokens
        clock(minutes=6)
        body = prepare(cast.alice, session)
        shown = results(body)
        assert [shown[f"c{n}"] == CLEARED_RESULT for n in range(8)] == [True] * 3 + [False] * 5
        assert body["cleared_tool_results"] == 3
        assert (body["context_management"], body["cache_edits"], body["betas"]) == (None, None, [])
        step, behind = body["applied"]
        assert (step["link"], step["ran"], step["cleared"]) == ("time_based", True, 3)
        assert step["why"].startswith("cache cold: idle 360 s of 300 s; 3 results of Read cleared")
        assert behind == {
            "link": "cache_edits",
            "ran": False,
            "why": "not tried: time_based has cleared already",
            "cleared": 0,
            "tokens_freed": 0,
            "boundary": None,
        }
        assert body["tokens"] == before - step["tokens_freed"]

    def test_the_boundary_tells_each_cleared_id_and_history_is_untouched(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        stored = list(Message.objects.filter(session=session).order_by("position").values_list("digest", "content"))
        clock(minutes=6)
        step = prepare(cast.alice, session)["applied"][0]
        row = CompactBoundary.objects.get(uuid=step["boundary"])
        assert (row.kind, row.trigger, row.clearing) == ("microcompact", "prepare", "placeholder")
        assert row.cleared_tool_use_ids == ["c0", "c1", "c2"]
        assert [one["tool"] for one in row.cleared_results] == ["Read"] * 3
        assert all(one["tokens_freed"] > 0 and one["reason"].startswith("cache cold") for one in row.cleared_results)
        assert (row.tokens_before - row.tokens_after, row.why) == (step["tokens_freed"], step["why"])
        again = list(Message.objects.filter(session=session).order_by("position").values_list("digest", "content"))
        assert again == stored
        event = TelemetryEvent.objects.get(session=session)
        assert event.name == "tengu_time_based_microcompact"
        assert event.payload["tool_ids"] == ["c0", "c1", "c2"]

    def test_again_changes_nothing(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        clock(minutes=6)
        first, second = prepare(cast.alice, session), prepare(cast.alice, session)
        assert second["messages"] == first["messages"]
        assert [step["ran"] for step in second["applied"]] == [False, False]
        assert CompactBoundary.objects.filter(session=session).count() == 1

    def test_a_warm_cache_is_left_alone_and_both_links_say_why(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        clock(seconds=42)
        body = prepare(cast.alice, session)
        assert [(step["link"], step["ran"], step["why"]) for step in body["applied"]] == [
            ("time_based", False, "cache warm: idle 42 s of 300 s"),
            ("cache_edits", False, "8 compactable results shown; edits begin above 10"),
        ]
        assert not CompactBoundary.objects.filter(session=session).exists()
        assert body["messages"] == cast.alice.read(f"sessions/{session.uuid}/context/").json()["messages"]

    def test_a_look_back_tells_the_same_size(self, cast: Cast, clock: Any) -> None:
        session = make_session(cast.alices_team)
        append(session, *turns(8, size=4_000))
        told = {"input_tokens": 90_000, "output_tokens": 1}
        append(session, assistant("so far", message_id="told", usage=told))
        clock(minutes=6)
        body = prepare(cast.alice, session)
        step = body["applied"][0]
        back = cast.alice.read(f"sessions/{session.uuid}/context/", at=step["boundary"]).json()
        row = CompactBoundary.objects.get(uuid=step["boundary"])
        assert back["tokens"] == body["tokens"] == row.tokens_after
        assert row.tokens_before - row.tokens_after == pytest.approx(step["tokens_freed"], rel=0.02)
        assert back["messages"] == body["messages"]

    def test_undone_it_is_byte_for_byte_as_before(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        before = build_request(view=selectors.context_view(session=session)).messages
        clock(minutes=6)
        prepare(cast.alice, session)
        CompactBoundary.objects.filter(session=session).update(reverted_at=NOW)
        assert build_request(view=selectors.context_view(session=session)).messages == before


class TestCacheEdits:
    def test_results_are_sent_whole_and_the_api_is_told(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, count=40)
        whole = cast.alice.read(f"sessions/{session.uuid}/context/").json()["messages"]
        body = prepare(cast.alice, session)
        assert body["messages"] == whole  # the cached prefix stays as it was
        assert body["context_management"] == {
            "edits": [
                {
                    "type": "clear_tool_uses_20250919",
                    "trigger": {"type": "tool_uses", "value": 3},
                    "keep": {"type": "tool_uses", "value": 3},
                    "clear_at_least": {"type": "input_tokens", "value": 20_000},
                }
            ]
        }
        assert (body["betas"], body["cache_edits"]) == (["context-management-2025-06-27"], None)
        assert body["cleared_tool_results"] == 37
        assert [(step["link"], step["ran"]) for step in body["applied"]] == [
            ("time_based", False),
            ("cache_edits", True),
        ]
        event = TelemetryEvent.objects.get(session=session)
        assert (event.name, event.payload["count"]) == ("tengu_cached_microcompact", 37)

    def test_the_cleared_part_stays_the_same_until_a_next_batch(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, count=40)
        first = prepare(cast.alice, session)
        append(session, *turns(3, start=40, size=4_000))
        second = prepare(cast.alice, session)
        [edit] = second["context_management"]["edits"]
        assert edit["keep"]["value"] == 6  # the same 37 results are cleared: 43 calls less 37
        assert second["messages"][: len(first["messages"]) - 1] == first["messages"][:-1]
        assert second["cleared_tool_results"] == 37

    def test_context_shows_what_the_model_sees(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, count=40)
        tokens = prepare(cast.alice, session)["tokens"]
        context = cast.alice.read(f"sessions/{session.uuid}/context/").json()
        shown = results(context)
        assert sum(content == CLEARED_RESULT for content in shown.values()) == 37
        assert context["tokens"] == tokens
        assert validate_messages(messages=context["messages"]) == []

    def test_tools_that_stay_are_excluded_by_name(self, cast: Cast, clock: Any) -> None:
        session = make_session(cast.alices_team)
        for entry in turns(40, size=4_000):
            if entry.uuid == "a3":
                entry.content[0]["name"] = "Agent"  # type: ignore[index]
            append(session, entry)
        [edit] = prepare(cast.alice, session)["context_management"]["edits"]
        assert edit["exclude_tools"] == ["Agent"]

    def test_the_other_dialect(self, cast: Cast, clock: Any, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"cache_edit_dialect": "cache_edits"}
        session = filled(cast.alices_team, count=40)
        body = prepare(cast.alice, session)
        assert (body["context_management"], body["betas"]) == (None, [])
        assert body["cache_edits"]["type"] == "cache_edits"
        assert body["cache_edits"]["edits"][0] == {"type": "delete", "cache_reference": "c0"}
        assert len(body["cache_edits"]["edits"]) == 37

    def test_switched_off_afterwards_the_results_become_placeholders(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, count=40)
        prepare(cast.alice, session)
        session.policy_overrides = {"cache_edits_enabled": False}
        session.save()
        body = prepare(cast.alice, session)
        assert (body["context_management"], body["cleared_tool_results"]) == (None, 37)
        assert sum(content == CLEARED_RESULT for content in results(body).values()) == 37

    def test_after_a_summary_nothing_of_it_is_left(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, count=40)
        prepare(cast.alice, session)
        run = runs.queue_run(session=session, trigger="manual", instructions="", now=NOW)
        done = runs.execute(run_id=run.pk)
        assert done is not None
        assert done.boundary is not None
        assert done.boundary.kind == "full"
        body = prepare(cast.alice, session)
        assert (body["context_management"], body["cleared_tool_results"]) == (None, 0)


class TestDecisionLog:
    def test_what_was_cleared_is_kept(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        clock(minutes=6)
        body = prepare(cast.alice, session)
        kept = Decision.objects.get(session=session)
        assert (kept.moment, kept.outcome, kept.applied) == ("prepare", "applied", body["applied"])
        assert kept.context_tokens == body["tokens"]

    def test_why_nothing_was_cleared_is_kept_near_a_threshold(self, cast: Cast, clock: Any) -> None:
        far, near = filled(cast.alices_team), filled(cast.alices_team, policy_overrides={"context_window": 30_000})
        for session in (far, near):
            prepare(cast.alice, session)
        kept = Decision.objects.get(moment="prepare")
        assert (kept.session, kept.outcome) == (near, "nothing_to_clear")
        assert kept.why.startswith("time_based: cache warm: idle 0 s of 300 s; cache_edits: 8 compactable results")


class TestWhatStopsIt:
    def test_an_active_run(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team)
        run = runs.queue_run(session=session, trigger="manual", instructions="", now=NOW)
        clock(minutes=6)
        body = prepare(cast.alice, session)
        assert {step["why"] for step in body["applied"]} == {f"run {run.uuid} is queued: its links decide"}
        assert not CompactBoundary.objects.filter(session=session).exists()

    def test_compaction_switched_off(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, policy_overrides={"compaction_enabled": False})
        clock(minutes=6)
        body = prepare(cast.alice, session)
        assert {step["why"] for step in body["applied"]} == {"compaction is switched off by the session"}

    def test_an_empty_session(self, api: Api, session: Session) -> None:
        body = prepare(api, session)
        assert (body["messages"], body["tokens"]) == ([], 0)

    def test_a_body_is_not_needed_and_nobody_elses_session_is_there(self, cast: Cast, session: Session) -> None:
        assert errors(cast.alice.send(f"sessions/{session.uuid}/prepare/", {"now": 1})) == [("unknown_field", "now")]
        assert errors(cast.charlie.send(f"sessions/{session.uuid}/prepare/")) == [("not_found", None)]
        assert cast.reader.send(f"sessions/{session.uuid}/prepare/").status_code == 403


class TestHostileInput:
    def test_thinking_behind_what_is_cleared_is_whole_or_gone(self, cast: Cast, clock: Any) -> None:
        """Decision 12; known failure T16."""
        session = filled(cast.alices_team)
        thought = {"type": "thinking", "thinking": "hm", "signature": "s" * 400}
        append(session, user("and?"), assistant([thought, {"type": "text", "text": "so"}], message_id="last"))
        clock(minutes=6)
        body = prepare(cast.alice, session)
        assert body["applied"][0]["ran"]
        kinds = [block["type"] for message in body["messages"] for block in message["content"]]
        assert "thinking" not in kinds
        append(session, user("more"), assistant([thought, {"type": "text", "text": "yes"}], message_id="after"))
        kinds = [block["type"] for message in prepare(cast.alice, session)["messages"] for block in message["content"]]
        assert kinds.count("thinking") == 1

    def test_edits_on_the_apis_side_leave_thinking_alone(self, cast: Cast, clock: Any) -> None:
        session = filled(cast.alices_team, count=40)
        thought = {"type": "thinking", "thinking": "hm", "signature": "s" * 400}
        append(session, user("and?"), assistant([thought, {"type": "text", "text": "so"}], message_id="last"))
        body = prepare(cast.alice, session)
        assert body["context_management"]
        assert thought in [block for message in body["messages"] for block in message["content"]]

    def test_ids_that_the_api_refuses_are_renamed_in_the_edits_too(self, cast: Cast, clock: Any, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"cache_edit_dialect": "cache_edits"}
        session = make_session(cast.alices_team)
        for entry in turns(40, size=4_000):
            for block in entry.content if isinstance(entry.content, list) else ():
                for key in ("id", "tool_use_id"):
                    if block.get(key) == "c0":
                        block[key] = "c 0!"  # type: ignore[index]
            append(session, entry)
        body = prepare(cast.alice, session)
        told = {edit["cache_reference"] for edit in body["cache_edits"]["edits"]}
        assert told <= set(results(body))
        assert len(told) == 37


class TestCost:
    @pytest.mark.parametrize(("edits", "offset", "reads"), [(True, 0, 1), (False, 0, 1), (True, 360, 3)])
    def test_what_is_shown_is_read_once_where_nothing_is_cleared(
        self, clock: Any, cast: Cast, edits: bool, offset: int, reads: int
    ) -> None:
        """Else once more by what writes the boundary, and once for the answer."""
        session = filled(cast.alices_team, policy_overrides={"cache_edits_enabled": edits})
        clock(seconds=offset)
        with CaptureQueriesContext(connection) as queries:
            prepare(cast.alice, session)
        contents = [query for query in queries if '"sessions_app_message"."content"' in query["sql"]]
        assert len(contents) - 1 == reads, "one of them is this test's own look"

    def test_what_is_read_once_is_what_is_sent(self, clock: Any, cast: Cast) -> None:
        session = filled(cast.alices_team, count=40)
        first = prepare(cast.alice, session)
        assert [step["ran"] for step in first["applied"]] == [False, True]
        again = prepare(cast.alice, session)
        assert [step["ran"] for step in again["applied"]] == [False, False]
        changing = {"applied"}
        assert {name: again[name] for name in FIELDS - changing} == {name: first[name] for name in FIELDS - changing}

    # The clock before the cast: their keys were used just now, or the first call notes it with a query of its own.
    def test_the_same_queries_at_every_length(self, clock: Any, cast: Cast) -> None:
        counts = {}
        for count in (10, 1_000, 10_000):
            session = make_session(cast.alices_team)
            bulk_history(session, count=count)
            CompactBoundary.objects.create(
                session=session,
                kind="full",
                trigger="manual",
                covers_to=count - 4,
                committed_at_position=count,
                summary="what was",
                tokens_before=count,
                created_at=NOW,
            )
            with CaptureQueriesContext(
                connection,
            ) as queries:
                cast.alice.send(f"sessions/{session.uuid}/prepare/")
            counts[count] = len(queries)
        assert len(set(counts.values())) == 1, counts

"""The session's counters: anchored on usage, calibrated by it, lowered by clearings; and the level."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions_app import selectors
from sessions_app.models import Session
from sessions_app.services import accounting
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import commit_boundary
from sessions_app.services.sessions import update_session
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind, Clearing
from sessions_app.transcript.messages import Role
from sessions_app.transcript.view import ContextView, ViewItem
from tests.build import res, use
from tests.factories import NOW, append, assistant, bulk_history, make_session, make_team, turns, user

pytestmark = pytest.mark.django_db

OLD, OTHER, NEW = "claude-sonnet-4-5", "claude-opus-4-5", "claude-opus-4-8"
WORDS = "Every path, identifier and command stays verbatim in its summary. "


def usage(prompt: int, output: int = 1) -> dict[str, int]:
    return {"input_tokens": 5, "cache_read_input_tokens": prompt - 5, "output_tokens": output}


def work(session: Session, *, steps: int, factor: float, prompt: int = 20_000, first: int = 0, **more: Any) -> int:
    """Responses whose prompts grow by `factor` times what our estimate says. Gives the last prompt's size."""
    for number in range(first, first + steps):
        reply = assistant(f"done {number}. " + WORDS * 10, message_id=f"w{number}", usage=usage(prompt), **more)
        rows = append(session, reply, user(WORDS * 100))
        prompt += round(factor * sum(row.tokens for row in rows))
    return prompt


def ratio(session: Session) -> float:
    return session.calibration["billed"] / session.calibration["estimated"] if session.calibration else 1.0


def compact(session: Session, *, covers_to: int) -> None:
    head = selectors.head_boundary(session=session)
    commit_boundary(
        session_id=session.pk,
        draft=BoundaryDraft(kind=BoundaryKind.FULL, covers_to=covers_to, summary="what was", summary_tokens=10),
        trigger="manual",
        expected_head_id=head.pk if head else None,
        as_of=session.last_position,
        tokens_before=session.context_tokens,
        now=NOW,
    )
    session.refresh_from_db()


class TestCalibration:
    def test_it_is_learned_from_what_steps_were_billed(self) -> None:
        session = make_session()
        prompt = work(session, steps=120, factor=1.4)
        assert ratio(session) == pytest.approx(1.4, abs=0.02)
        # The prompt that would be sent now, told from the last usage and a calibrated estimate.
        assert session.context_tokens == pytest.approx(prompt, rel=0.002)
        assert session.context_source == "usage+estimate"

    def test_view_tokens_stays_the_raw_estimate(self) -> None:
        session = make_session()
        work(session, steps=20, factor=1.8)
        assert session.view_tokens == selectors.context_view(session=session).tokens

    def test_it_is_laid_on_the_whole_where_there_is_no_anchor(self) -> None:
        session = make_session()
        append(session, user("go"))
        work(session, steps=40, factor=1.5)
        compact(session, covers_to=session.last_position - 8)
        assert session.context_source == "estimate"
        assert session.view_tokens == selectors.context_view(session=session).tokens > 1_000
        expected = session.overhead_tokens + round(session.view_tokens * ratio(session))
        assert session.context_tokens == expected > session.overhead_tokens + session.view_tokens

    def test_the_overhead_is_measured_with_it(self) -> None:
        # After a boundary the context is overhead + view x ratio, so that is what the next usage is compared with.
        session = make_session()
        append(session, user("go"))
        work(session, steps=60, factor=1.5)
        compact(session, covers_to=session.last_position - 8)
        prompt = 15_000 + round(session.view_tokens * ratio(session))
        session.overhead_tokens = 40_000
        session.save()
        append(session, assistant("ok", message_id="after", usage=usage(prompt)))
        assert session.overhead_tokens == pytest.approx(15_000, rel=0.02)

    def test_another_model_begins_anew(self) -> None:
        session = make_session()
        prompt = work(session, steps=40, factor=1.5, model=OLD)
        work(session, steps=1, factor=1.5, prompt=prompt + 50_000, first=100, model=OTHER)
        assert session.calibration["model"] == OTHER
        assert ratio(session) == 1, "the step between the two models teaches nothing either"

    @pytest.mark.parametrize("model", [OTHER, NEW])
    def test_a_change_of_the_sessions_model_begins_anew(self, model: str) -> None:
        session = make_session()
        work(session, steps=40, factor=1.5)
        raw = session.view_tokens
        session = update_session(session=session, values={"model": model})
        assert session.calibration is None
        if model == NEW:  # another tokenizer: the usage is void, all is estimated again
            assert (session.context_tokens, session.view_tokens) == (session.overhead_tokens + raw, raw)

    def test_lines_of_one_response_teach_once(self) -> None:
        def session_of(lines: int) -> Session:
            session = make_session()
            append(session, assistant("begin", message_id="a", usage=usage(20_000)), user(WORDS * 200))
            for _ in range(lines):
                append(session, assistant("next", message_id="b", usage=usage(26_000)))
            return session

        assert session_of(1).calibration == session_of(4).calibration
        assert ratio(session_of(1)) > 1

    @pytest.mark.parametrize(
        "between",
        [
            lambda s: compact(s, covers_to=1),
            lambda s: append(s, user("another way", parent_uuid="first")),
            lambda s: accounting.recount_cleared(session=s, view=smaller_view(s, 1_000)) or s.save(),
        ],
        ids=["boundary", "rewind", "clearing"],
    )
    def test_a_step_that_is_not_whole_teaches_nothing(self, between: Callable[[Session], Any]) -> None:
        session = make_session()
        append(session, user("go", uuid="first"))
        append(session, assistant("a", message_id="a", usage=usage(20_000)), user(WORDS * 300), assistant("b"))
        between(session)
        append(session, assistant("c", message_id="c", usage=usage(90_000)))
        assert ratio(session) == 1
        assert session.anchor["prompt_tokens"] == 90_000

    @pytest.mark.parametrize("prompt", [19_999, 20_000, 5_000])
    def test_a_prompt_that_did_not_grow_teaches_nothing(self, prompt: int) -> None:
        session = make_session()
        append(session, assistant("a", message_id="a", usage=usage(20_000)), user(WORDS * 300))
        append(session, assistant("b", message_id="b", usage=usage(prompt)))
        assert ratio(session) == 1

    @pytest.mark.parametrize("empty", [None, {}, {"input_tokens": 0, "output_tokens": None}, {"input_tokens": None}])
    def test_a_response_without_usage_counts_into_its_step(self, empty: Any) -> None:
        session = make_session()
        append(session, assistant("a", message_id="a", usage=usage(20_000)), user(WORDS * 300))
        rows = append(session, assistant(WORDS * 100, message_id="b", usage=empty), user(WORDS * 300))
        anchor = session.anchor
        assert (anchor["message_id"], session.context_source) == ("a", "usage+estimate")
        grown = anchor["response_tokens"] + anchor["tokens_since"]
        assert anchor["tokens_since"] > sum(row.tokens for row in rows)
        append(session, assistant("c", message_id="c", usage=usage(20_000 + grown)))
        assert ratio(session) == pytest.approx(1, abs=0.001)

    def test_placeholders_of_old_clients_are_no_growth(self) -> None:
        def session_of(output: int) -> Session:
            session = make_session()
            for number in range(3):
                told = usage(20_000 + number * 3_000, output)
                append(session, assistant("a", message_id=f"m{number}", usage=told), user(WORDS * 100))
            return session

        assert session_of(1).calibration == session_of(2_500).calibration
        assert ratio(session_of(1)) > 1


class TestUsage:
    def test_t11_a_usage_from_before_a_boundary_is_never_used_after_it(self) -> None:
        session = make_session()
        append(session, *turns(5))
        append(session, assistant("long", message_id="big", usage=usage(200_000, 2_000)))
        assert session.context_tokens == 202_000
        append(session, user("next"), assistant("short"), user("more"))
        compact(session, covers_to=21)
        assert session.context_source == "estimate"
        view = selectors.context_view(session=session).tokens
        assert session.context_tokens == session.overhead_tokens + view < 70_000
        append(session, user("go on"))
        assert (session.context_source, session.context_tokens < 70_000) == ("estimate", True)
        append(session, assistant("ok", message_id="new", usage=usage(9_000, 50)))
        assert (session.context_source, session.context_tokens) == ("usage", 9_050)

    def test_t11_nor_is_it_by_a_line_of_its_response_that_arrives_late(self) -> None:
        session = make_session()
        append(session, *turns(5))
        append(session, assistant("long", message_id="big", usage=usage(200_000, 2_000)))
        compact(session, covers_to=20)
        overhead = session.overhead_tokens
        append(session, assistant("its second line", message_id="big", usage=usage(200_000, 2_000)))
        assert session.context_source == "estimate"
        assert session.context_tokens == overhead + session.view_tokens < 70_000
        assert session.overhead_tokens == overhead, "nor does it tell the overhead"

    def test_t12_buckets_are_added_once(self) -> None:
        session = make_session()
        told = {
            "input_tokens": 5_000,
            "cache_read_input_tokens": 110_000,
            "cache_creation_input_tokens": 3_000,
            "output_tokens": 2_000,
        }
        append(session, user("go"), assistant("ok", usage=told, message_id="m"), assistant("", usage=told))
        assert (session.context_tokens, session.peak_prompt_tokens) == (120_000, 118_000)

    def test_later_lines_of_the_first_response_do_not_change_the_overhead(self) -> None:
        session = make_session()
        append(session, user("go"), assistant(WORDS, usage=usage(18_000), message_id="m"))
        measured = session.overhead_tokens
        append(session, assistant(WORDS * 2_000, usage=usage(18_000), message_id="m"))
        assert session.overhead_tokens == measured > 17_900, "its own text was not in its prompt"

    def test_an_anchor_from_before_clearings_were_counted_loads(self) -> None:
        session = make_session()
        append(session, user("go"), assistant("ok", usage=usage(9_000, 50), message_id="m"))
        del session.anchor["cleared_tokens"]
        session.save()
        append(session, user("next"))
        assert session.context_tokens == 9_050 + session.anchor["tokens_since"]


def smaller_view(session: Session, tokens: int) -> ContextView:
    """A view of so many tokens less than the session's."""
    item = ViewItem(
        role=Role.USER, content="", position=0, uuid="", tokens=session.view_tokens - tokens, content_bytes=10
    )
    return ContextView(items=(item,), boundary=None)


class TestCleared:
    def cleared(self, session: Session, tokens: int) -> tuple[int, int]:
        before = session.context_tokens
        accounting.recount_cleared(session=session, view=smaller_view(session, tokens))
        session.save()
        session.refresh_from_db()
        return before, session.context_tokens

    def test_the_anchor_stays_less_what_was_cleared(self) -> None:
        session = make_session()
        append(session, user("go"), assistant([use("A")], usage=usage(60_000, 100), message_id="m"))
        append(session, user([res("A", WORDS * 3_000)]))
        before, after = self.cleared(session, 30_000)
        assert before - after == pytest.approx(30_000, rel=0.01)
        assert session.context_source == "usage+estimate"

    def test_the_estimate_of_it_is_calibrated(self) -> None:
        session = make_session()
        work(session, steps=60, factor=1.5)
        before, after = self.cleared(session, 10_000)
        assert before - after == pytest.approx(10_000 * ratio(session), rel=0.05)
        assert before - after > 14_000

    def test_without_an_anchor_the_estimate_falls(self) -> None:
        session = make_session()
        append(session, user(WORDS * 3_000))
        before, after = self.cleared(session, 5_000)
        assert (before - after, session.context_source) == (5_000, "estimate")

    @pytest.mark.parametrize("tokens", [0, -700, 50_000])
    def test_the_context_never_rises_nor_falls_below_nothing(self, tokens: int) -> None:
        session = make_session()
        # A prompt of 9,000 tokens, told by a client whose text is estimated at far more.
        append(session, user(WORDS * 5_000), assistant("ok", message_id="m", usage=usage(9_000)))
        before, after = self.cleared(session, tokens)
        assert 0 <= after <= before
        assert (after == before) == (tokens <= 0)

    def test_the_next_response_anchors_anew(self) -> None:
        session = make_session()
        append(session, user("go"), assistant("a", usage=usage(60_000, 100), message_id="a"), user(WORDS * 3_000))
        self.cleared(session, 20_000)
        append(session, assistant("b", usage=usage(45_000, 70), message_id="b"))
        assert (session.context_tokens, session.context_source) == (45_070, "usage")
        assert session.anchor["cleared_tokens"] == 0

    def test_a_summary_after_it_voids_the_usage(self) -> None:
        session = make_session()
        append(session, *turns(3), assistant("a", usage=usage(60_000, 100), message_id="a"))
        self.cleared(session, 20)
        compact(session, covers_to=8)
        assert session.context_source == "estimate"


class TestLevel:
    """200,000 tokens: warning and error from 160,000 on, automatic from 167,000."""

    @pytest.mark.parametrize(
        ("prompt", "level"), [(159_999, "ok"), (160_000, "error"), (167_000, "auto_compact"), (900_000, "auto_compact")]
    )
    def test_it_follows_the_size(self, prompt: int, level: str) -> None:
        session = make_session()
        append(session, user("x " * 200_000))
        session.overhead_measured, session.overhead_due = True, False
        session.save()
        append(session, assistant("", message_id="m", usage=usage(prompt - 1)))
        assert (session.context_tokens, session.level) == (prompt, level)

    def test_a_system_prompt_that_alone_passes_the_threshold_is_unreachable(self) -> None:
        session = make_session(system=WORDS * 20_000)
        assert session.level == "unreachable"

    def test_it_is_back_to_ok_after_a_boundary(self) -> None:
        session = make_session()
        append(session, *turns(5, size=400_000))
        assert session.level == "auto_compact"
        compact(session, covers_to=16)
        append(session, assistant("ok", message_id="m", usage=usage(30_000)))
        assert session.level == "ok"

    def test_it_is_back_to_ok_after_a_clearing(self) -> None:
        session = make_session()
        append(session, user(WORDS * 20_000), assistant("", message_id="m", usage=usage(170_000)))
        assert session.level == "auto_compact"
        accounting.recount_cleared(session=session, view=smaller_view(session, 50_000))
        assert session.level == "ok"

    @pytest.mark.parametrize(
        "values",
        [
            {"policy_overrides": {"context_window": 60_000}},
            {"policy_overrides": {"auto_compact_pct": 10}},
            {"system": WORDS * 20_000},
            {"tools": [{"name": "Big", "description": WORDS * 20_000}]},
        ],
        ids=["window", "percentage", "system", "tools"],
    )
    def test_a_change_of_the_session_shows_at_once(self, values: dict[str, Any]) -> None:
        session = make_session()
        append(session, user(WORDS * 2_500))
        assert session.level == "ok"
        assert update_session(session=session, values=values).level in ("auto_compact", "unreachable")

    def test_a_change_of_the_model_shows_at_once(self) -> None:
        session = make_session(model=NEW)
        append(session, user(WORDS * 16_000), assistant("", message_id="m", usage=usage(300_000)))
        assert session.level == "ok", "a million tokens"
        assert update_session(session=session, values={"model": OLD}).level == "auto_compact"

    def test_the_teams_figures_count_and_the_sessions_win(self) -> None:
        team = make_team()
        team.policy_overrides = {"context_window": 50_000}
        team.save()
        told = assistant("", message_id="m", usage=usage(45_000))
        assert append_to(make_session(team), told).level == "auto_compact"
        assert append_to(make_session(team, policy_overrides={"context_window": 400_000}), told).level == "ok"


def append_to(session: Session, message: Any) -> Session:
    append(session, user(WORDS * 3_000), message)
    return session


class TestGivenOverhead:
    """System prompt and tools that the client gave are no history that it kept back."""

    def test_it_survives_a_compaction_however_large(self) -> None:
        session = make_session(tools=[{"name": "Big", "description": WORDS * 10_000}])
        given = session.given_overhead_tokens
        assert given > 90_000
        append(session, *turns(20, size=4_000))
        append(session, assistant("", message_id="m", usage=usage(given + session.view_tokens)))
        compact(session, covers_to=72)
        assert session.overhead_tokens > 0.9 * given

    @pytest.mark.parametrize("grow", [True, False])
    def test_a_change_counts_at_once_and_is_measured_anew(self, grow: bool) -> None:
        small, large = "Be brief.", WORDS * 4_000
        session = make_session(system=small if grow else large)
        append(session, user("go"), assistant("", message_id="m", usage=usage(40_000)))
        before = session.context_tokens
        session = update_session(session=session, values={"system": large if grow else small})
        change = session.context_tokens - before
        assert change > 30_000 if grow else change < -30_000
        append(session, user("on"), assistant("", message_id="n", usage=usage(75_000 if grow else 6_000)))
        assert session.context_source == "usage"
        assert session.overhead_tokens == pytest.approx(75_000 if grow else 6_000, rel=0.01)


class TestWhatAClientSays:
    def test_a_clock_that_is_ahead_is_stored_and_nothing_waits_for_it(self) -> None:
        session = make_session()
        ahead = NOW + timedelta(days=365)
        [row] = append(session, assistant("hello from the future", sent_at=ahead))
        assert row.sent_at == ahead
        assert (session.last_assistant_at, session.last_message_at) == (NOW, NOW)

    def test_a_model_that_becomes_known_late_prices_what_stands_for_history(self) -> None:
        session = make_session(model="")
        append(session, *turns(20, size=4_000))
        compact(session, covers_to=72)
        append(session, assistant("ok", model=NEW, message_id="m"))
        assert session.model == NEW
        assert session.view_tokens == selectors.context_view(session=session).tokens


class TestBytes:
    """Decision 13, known failure T14: a request has room for bytes, too."""

    SHOT = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 70_000}}

    def test_screenshots_fill_the_body_long_before_the_window(self) -> None:
        session = make_session(model=NEW)
        for number in range(42):
            append(session, user([self.SHOT]), assistant(f"seen {number}", message_id=f"m{number}"))
        assert session.view_bytes > 30_000_000
        assert session.context_tokens < 200_000, "of a million"
        assert session.level == "auto_compact"
        assert session.view_bytes == selectors.context_view(session=session).content_bytes
        compact(session, covers_to=80)
        assert (session.view_bytes < 2_000_000, session.level) == (True, "ok")
        assert session.view_bytes == selectors.context_view(session=session).content_bytes

    def test_a_rewind_counts_them_anew(self) -> None:
        session = make_session()
        append(session, *turns(3, size=4_000), user("an aside", uuid="aside", parent_uuid="b2"))
        append(session, user("another way", uuid="again", parent_uuid="b0"))
        view = selectors.context_view(session=session)
        assert (session.view_bytes, session.view_tokens) == (view.content_bytes, view.tokens)
        assert session.view_bytes < 10_000

    def test_placeholders_take_no_room_and_edits_of_the_api_do(self) -> None:
        for clearing, left in ((Clearing.PLACEHOLDER, False), (Clearing.API_EDIT, True)):
            session = make_session()
            append(session, *turns(3, size=40_000))
            before = session.view_bytes
            draft = BoundaryDraft(
                kind=BoundaryKind.MICROCOMPACT, covers_to=3, cleared_tool_use_ids=("c0",), clearing=clearing
            )
            commit_boundary(
                session_id=session.pk,
                draft=draft,
                trigger="prepare",
                expected_head_id=None,
                as_of=session.last_position,
                tokens_before=session.context_tokens,
                now=NOW,
            )
            session.refresh_from_db()
            assert (session.view_bytes == before) is left
            for edits_at_api in (False, True):
                view = selectors.context_view(session=session, edits_at_api=edits_at_api)
                assert session.view_bytes == view.content_bytes


class TestUsageOfTheOldContext:
    """Known failure T11: a usage that comes after a compaction need not be of the context that it left."""

    def compacted(self) -> Session:
        session = make_session()
        append(session, *turns(20, size=20_000), assistant("", message_id="before", usage=usage(170_000)))
        compact(session, covers_to=72)
        assert session.context_tokens < 60_000
        return session

    def test_a_response_that_was_under_way_does_not_anchor(self) -> None:
        session = self.compacted()
        size = session.context_tokens
        [row] = append(session, assistant("so", message_id="late", usage=usage(172_000)))
        assert (session.context_tokens, session.context_source) == (size + row.tokens, "estimate")
        assert session.level == "ok"

    def test_nor_does_a_client_that_goes_on_without_it(self) -> None:
        session = self.compacted()
        prompt = 172_000
        for number in range(5):
            rows = append(
                session, assistant(f"so {number}", message_id=f"l{number}", usage=usage(prompt)), user(WORDS * 300)
            )
            prompt += sum(row.tokens for row in rows)
            assert session.level == "ok"
        assert session.context_source == "estimate"

    def test_a_much_larger_overhead_is_told_apart(self) -> None:
        """Tools that were added and not declared: too small for the old context, so it is the new one's."""
        session = self.compacted()
        append(session, assistant("", message_id="new", usage=usage(session.context_tokens + 90_000)))
        assert (session.context_source, session.ignored_prompt_tokens) == ("usage", 0)

    def test_a_client_that_has_asked_what_to_send_is_believed(self) -> None:
        session = self.compacted()
        Session.objects.filter(pk=session.pk).update(prepared=True)
        append(session, assistant("", message_id="new", usage=usage(172_000)))
        assert session.context_tokens == 172_001

    def test_text_that_no_model_wrote_tells_no_size(self) -> None:
        session = make_session()
        append(session, user("go"), assistant("", message_id="m", usage=usage(120_000)))
        append(session, assistant("API error", model="<synthetic>", usage={"input_tokens": 10, "output_tokens": 5}))
        assert session.context_tokens > 120_000

    def test_one_of_the_new_context_does(self) -> None:
        session = self.compacted()
        overhead = session.overhead_tokens
        append(session, assistant("so", message_id="new", usage=usage(session.context_tokens + 8_000)))
        assert session.anchor["position"] == session.last_position
        assert session.overhead_tokens <= overhead + 8_000

    def test_a_client_that_comes_back_to_it_is_measured_again(self) -> None:
        session = self.compacted()
        append(session, assistant("so", message_id="late", usage=usage(172_000)))
        expected = session.context_tokens
        append(session, assistant("", message_id="new", usage=usage(expected)))
        assert (session.context_source, session.context_tokens) == ("usage", expected + 1)

    def test_nor_after_a_clearing_by_edits_that_nobody_was_given(self) -> None:
        for handed_out, told in ((False, "usage+estimate"), (True, "usage")):
            session = make_session()
            append(session, *turns(20, size=20_000), assistant("", message_id="before", usage=usage(170_000)))
            ids = tuple(f"c{number}" for number in range(15))
            commit_boundary(
                session_id=session.pk,
                draft=BoundaryDraft(
                    kind=BoundaryKind.MICROCOMPACT,
                    covers_to=59,
                    cleared_tool_use_ids=ids,
                    clearing=Clearing.API_EDIT,
                ),
                trigger="auto",
                expected_head_id=None,
                as_of=session.last_position,
                tokens_before=session.context_tokens,
                now=NOW,
            )
            Session.objects.update(prepared=handed_out)
            append(session, user("go"), assistant("", message_id="late", usage=usage(172_000)))
            assert session.context_source == told
            assert (session.level == "auto_compact") is handed_out

    def test_without_a_compaction_every_usage_counts(self) -> None:
        session = make_session()
        append(session, user("go"), assistant("ok", message_id="m", usage=usage(150_000)))
        append(session, user("go"), assistant("", message_id="n", usage=usage(20_000)))
        assert session.context_tokens == 20_001


class TestFixedOverhead:
    """What makes a threshold unreachable: not a usage that says that its client did not give the history."""

    def test_a_large_prompt_over_a_small_talk_is_history_that_was_not_given(self) -> None:
        session = make_session()
        append(session, user("go on"), assistant("ok", message_id="m", usage=usage(170_000)))
        assert (session.level, session.overhead_tokens > 160_000) == ("auto_compact", True)

    def test_what_could_be_system_prompt_and_tools_is(self) -> None:
        session = make_session(policy_overrides={"context_window": 32_768})
        append(session, user("go on"), assistant("ok", message_id="m", usage=usage(29_000)))
        assert session.level == "unreachable"

    def test_what_the_client_gave_counts_however_large(self) -> None:
        session = make_session(system=WORDS * 20_000)
        append(session, user("go on"), assistant("ok", message_id="m", usage=usage(300_000)))
        assert session.level == "unreachable"


class TestCost:
    def test_the_lock_brings_the_team_along(self) -> None:
        session = make_session()
        with transaction.atomic(), CaptureQueriesContext(connection) as queries:
            assert lock_session(session_id=session.pk).team.slug
        assert len(queries) == 1
        if connection.vendor == "postgresql":
            assert 'FOR NO KEY UPDATE OF "sessions_app_session"' in queries[0]["sql"]

    def test_recounting_reads_no_history_and_no_team(self) -> None:
        session = make_session()
        bulk_history(session, count=100)
        locked = Session.objects.select_related("team").get(pk=session.pk)
        with CaptureQueriesContext(connection) as queries:
            accounting.recount_cleared(session=locked, view=smaller_view(locked, locked.view_tokens))
            accounting.recount_view(session=locked, view=smaller_view(locked, 10))
        assert not queries

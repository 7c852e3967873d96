"""Pages of runs and boundaries that a model was called for: the calls, the costs, and a failure told as a story."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from compaction_app.admin.model_calls import WAYS, call_row, cost_told, tried, used_of
from compaction_app.admin.run_story import HAPPENED, NEXT, NEXT_BY_PROBLEM, story_of
from compaction_app.engine.model_summary.calls import Way
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.ports import ProviderProblem
from compaction_app.models import CompactionRun, RunStep
from compaction_app.services.cleanup import run_cleanup
from sessions_app.models import CompactBoundary, Session
from tests.admin.conftest import World
from tests.factories import NOW, make_call, make_session

SAID = "<script>alert(1)</script> Sure, I\u202e will go on \x1b[31mred"


def failed_run(session: Session, reason: str = "no_summary", **values: Any) -> CompactionRun:
    given = {"detail": "the answer has no sections", "summarizer": "anthropic", "queued_at": NOW, "trigger": "auto"}
    return CompactionRun.objects.create(
        session=session, status="failed", failure_reason=reason, finished_at=NOW, **(given | values)
    )


def page_of(world: World, run: CompactionRun) -> str:
    return world.page("vic", f"/admin/compaction_app/compactionrun/{run.pk}/change/")


def words(page: str) -> str:
    """The page's text with single spaces; tags stay."""
    return " ".join(page.split())


class TestCalls:
    def test_of_a_success(self, world: World) -> None:
        make_call(world.run)
        CompactionRun.objects.filter(pk=world.run.pk).update(
            model="claude-sonnet-4-5-20250929",
            prompt_version="7",
            response_id="msg_1",
            shared_prefix=True,
            cost_usd="0.051250",
            cost_uncached_usd="0.320000",
            usage={"input_tokens": 1_200, "cache_read_input_tokens": 95_000, "output_tokens": 1_300},
        )
        shown = words(page_of(world, world.run))
        for told in (
            "shared prefix<span",
            "claude-sonnet-4-5-20250929",
            "≈101,234 tokens",
            "412.3 KB",
            "12.3 s",
            "96,200 in, 1,300 out",
            "99% from the cache",
            "$0.0512</span>",
            "$0.3200 without cache",
            "a summary</span>",
            "request req_1",
            "shared with the conversation",
            "(84% saved)",
            "95,000 <span",
        ):
            assert told in shown, told
        assert "Why it failed" not in shown
        assert "What the model said" not in shown

    def test_of_none(self, world: World) -> None:
        shown = page_of(world, world.run)
        assert "No model was called" in shown
        assert "Calls of a model" not in shown

    def test_what_had_to_go_is_told(self, world: World) -> None:
        cut = {"dropped_groups": 4, "remaining_groups": 16, "dropped_tokens": 9_000}
        make_call(world.run, preflight=True, **cut)
        make_call(world.run, ordinal=2, retry=2, way="standalone", **cut)
        shown = words(page_of(world, world.run))
        assert "without 4 of 20 rounds, about 9,000 tokens (before the first call)" in shown
        assert "without 4 of 20 rounds, about 9,000 tokens (retry 2)" in shown
        assert "stand-alone<span" in shown

    def test_what_the_model_said_is_folded_and_harmless(self, world: World) -> None:
        run = failed_run(world.session)
        make_call(run, outcome="no_summary", detail="<b>no sections", said=SAID)
        shown = page_of(world, run)
        assert "<script>alert" not in shown
        assert "&lt;script&gt;alert(1)&lt;/script&gt; Sure" in shown
        assert "\u202e" not in shown
        assert "\x1b" not in shown
        assert "&lt;b&gt;no sections" in shown
        assert '<details class="ca-fold ca-said">' in shown, "folded"
        assert "an answer without a summary" in shown

    def test_a_long_answer_is_cut(self, world: World) -> None:
        run = failed_run(world.session)
        make_call(run, outcome="no_summary", said="word " * 40_000)
        shown = page_of(world, run)
        assert "140,000 more characters are not shown here" in shown
        assert f"runs/{run.uuid}/" in shown

    def test_a_page_costs_the_same_for_many(self, world: World, django_assert_num_queries: Any) -> None:
        run = failed_run(world.session)
        for ordinal in range(1, 9):
            make_call(run, ordinal=ordinal, said="x", outcome="truncated")
        with django_assert_num_queries(5):  # user, run, candidate, steps, calls
            world.page("root", f"/admin/compaction_app/compactionrun/{run.pk}/change/")

    @pytest.mark.parametrize("usage", [None, {}, [], "x", {"input_tokens": None}, {"output_tokens": "many"}])
    def test_odd_usage_does_no_harm(self, world: World, usage: Any) -> None:
        make_call(world.run, usage=usage, cost_usd=None, cost_uncached_usd=None)
        CompactionRun.objects.filter(pk=world.run.pk).update(usage=usage, model="m")
        CompactBoundary.objects.filter(pk=world.boundary.pk).update(usage=usage)
        page_of(world, world.run)
        world.page("vic", f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/")

    def test_a_run_that_works_tells_how_much_is_written(self, world: World) -> None:
        run = CompactionRun.objects.create(
            session=make_session(world.team),
            trigger="manual",
            queued_at=NOW,
            stage="summarizing",
            tokens_streamed=1_234,
        )
        shown = page_of(world, run)
        assert "about 1,234 tokens written" in shown
        assert "No model was called" not in shown


class TestFigures:
    def test_share_read_is_of_all_that_was_read(self) -> None:
        usage = {"input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 60}
        used = used_of({**usage, "output_tokens": 5})
        assert used is not None
        assert (used.prompt, used.written, used.read, used.output, used.read_percent) == (100, 30, 60, 5, 60)

    @pytest.mark.parametrize(
        ("usd", "uncached", "told"),
        [
            ("0.05", "0.2", ("$0.0500", "$0.2000", "75% saved")),
            ("0.25", "0.2", ("$0.2500", "$0.2000", "25% more")),
            ("0.2", "0.2", ("$0.2000", "", "")),
            ("1234.5", None, ("$1,234.5000", "", "")),
            ("0.00001", "0.00001", ("under $0.0001", "", "")),
            ("0", "0", ("$0.0000", "", "")),
        ],
    )
    def test_costs(self, usd: str, uncached: str | None, told: tuple[str, str, str]) -> None:
        cost = cost_told(usd=Decimal(usd), uncached=Decimal(uncached) if uncached else None)
        assert cost is not None
        assert (cost.usd, cost.without_cache, cost.change) == told

    def test_no_price_is_no_cost(self) -> None:
        assert cost_told(usd=None, uncached=None) is None


class TestStory:
    def test_of_a_failure(self, world: World) -> None:
        run = failed_run(world.session, "api_error", detail="the provider is overloaded (overloaded, HTTP 529)")
        make_call(run, outcome="too_long", status=400, usage=None)
        make_call(run, ordinal=2, outcome="ok", retry=1, seconds=1.0)
        make_call(run, ordinal=3, outcome="overloaded", status=529, way="standalone", usage=None, seconds=20.0)
        shown = words(page_of(world, run))
        for told in (
            "Why it failed",
            "The provider gave no answer that could be used.",
            "the provider is overloaded (overloaded, HTTP 529)",
            "3 calls of a model were made (shared prefix and stand-alone), 33.3 s in all; the request was shortened "
            "once. The last one ended with: provider overloaded (HTTP 529).",
            "Compact again later: the provider is overloaded.",
            "Nothing: no message was changed",
        ):
            assert told in shown, told

    @pytest.mark.parametrize("reason", list(FailureReason))
    def test_every_reason_has_words_and_an_advice(self, world: World, reason: FailureReason) -> None:
        shown = words(page_of(world, failed_run(world.session, reason.value)))
        assert HAPPENED[reason] in shown.replace("&#x27;", "'")
        assert NEXT[reason].partition("“")[0] in shown.replace("&#x27;", "'")

    @pytest.mark.parametrize("problem", list(ProviderProblem))
    def test_every_problem_of_a_provider_is_told(self, world: World, problem: ProviderProblem) -> None:
        run = failed_run(world.session, "api_error")
        call = make_call(run, outcome=problem.value, status=400)
        story = story_of(run=run, steps=[], calls=[call])
        assert story is not None
        assert story.next.startswith(NEXT_BY_PROBLEM.get(problem, NEXT[FailureReason.API_ERROR]))
        assert "_" not in call_row(call).outcome

    def test_a_last_resort_says_why_it_stood_in(self, world: World) -> None:
        RunStep.objects.create(
            run=world.run, ordinal=9, link="last_resort", ran=True, why="w", tokens_before=9, tokens_after=3
        )
        CompactBoundary.objects.filter(pk=world.boundary.pk).update(why="last resort, because of <api_error>")
        shown = words(page_of(world, world.run))
        assert "embedded summariser wrote it as the last resort. last resort, because of &lt;api_error&gt;" in shown
        boundary = world.page("vic", f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/")
        assert "because of &lt;api_error&gt;" in boundary

    def test_none_where_all_went_well(self, world: World) -> None:
        assert story_of(run=world.run, steps=list(world.run.steps.all()), calls=[]) is None

    def test_what_an_earlier_release_stored_does_no_harm(self, world: World) -> None:
        run = failed_run(world.session, "some_old_reason")
        make_call(run, outcome="some_old_outcome", way="some_old_way")
        assert "some old outcome" in page_of(world, run)

    def test_ways_have_words(self, world: World) -> None:
        run = failed_run(world.session)
        for ordinal, way in enumerate(Way, start=1):
            make_call(run, ordinal=ordinal, way=way.value)
        told = tried(list(run.calls.all()))
        assert all(words in told for words in WAYS.values())
        assert set(WAYS) == {way.value for way in Way}
        assert tried([]) == "No model was called."


class TestBoundary:
    def page(self, world: World) -> str:
        return words(world.page("vic", f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/"))

    def test_tells_its_model_and_cost(self, world: World) -> None:
        CompactBoundary.objects.filter(pk=world.boundary.pk).update(
            summarizer="anthropic",
            model="claude-<b>x",
            prompt_version="7",
            response_id="msg_01",
            usage={"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": 5},
        )
        CompactionRun.objects.filter(pk=world.run.pk).update(cost_usd="0.05", cost_uncached_usd="0.2")
        shown = self.page(world)
        for told in ("claude-&lt;b&gt;x", "<dd>7</dd>", "msg_01", "(60%)", "$0.0500", "$0.2000", "75% saved"):
            assert told in shown, told

    def test_without_a_model_says_nothing_of_one(self, world: World) -> None:
        assert "Written by" not in self.page(world)

    def test_tells_what_was_cleaned_up(self, world: World) -> None:
        run_cleanup(boundary=world.boundary)
        shown = self.page(world)
        for told in ("sent skill names", "kept</span>", "cleared</span>", "the client</td>", "this service</td>"):
            assert told in shown, told

    @pytest.mark.parametrize("stored", [None, [], "x", {"cleared": None}, {"cleared": [1, {}], "kept": [{"why": 3}]}])
    def test_odd_cleanups_do_no_harm(self, world: World, stored: Any) -> None:
        CompactBoundary.objects.filter(pk=world.boundary.pk).update(cleanup=stored)
        self.page(world)

"""Which messages are on the live path: rewinds leave messages behind, parallel tool calls do not."""

from __future__ import annotations

import pytest

from sessions_app import selectors
from sessions_app.models import Session
from sessions_app.services.boundaries import commit_boundary
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from tests.build import res, use
from tests.factories import NOW, append, assistant, make_session, user

pytestmark = pytest.mark.django_db


def live(session: Session) -> list[str]:
    return [item.uuid for item in selectors.context_view(session=session).items]


class TestLivePath:
    def test_without_parents_a_history_is_one_line(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("2", uuid="2"), user("3", uuid="3"))
        assert live(session) == ["1", "2", "3"]

    def test_a_rewind_leaves_what_came_after_its_parent(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("2", uuid="2", parent_uuid="1", message_id="a"))
        append(session, user("3", uuid="3", parent_uuid="2"), assistant("4", uuid="4", parent_uuid="3", message_id="b"))
        append(session, user("other", uuid="5", parent_uuid="2"))
        assert live(session) == ["1", "2", "5"]
        assert session.view_tokens == selectors.context_view(session=session).tokens
        left = session.messages.filter(left_path_at__isnull=False).values_list("uuid", "left_path_at")
        assert sorted(left) == [("3", 5), ("4", 5)]

    def test_a_rewind_within_one_append(self) -> None:
        session = make_session()
        append(
            session,
            user("1", uuid="1"),
            assistant("2", uuid="2", parent_uuid="1", message_id="a"),
            user("wrong", uuid="3", parent_uuid="2"),
            user("right", uuid="4", parent_uuid="2"),
        )
        assert live(session) == ["1", "2", "4"]

    def test_another_answer_to_the_same_prompt_replaces_the_first(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("bad", uuid="2", parent_uuid="1", message_id="a"))
        append(session, assistant("good", uuid="3", parent_uuid="1", message_id="b"))
        assert live(session) == ["1", "3"]

    def test_parallel_results_hang_on_their_own_call_and_all_stay(self) -> None:
        """a1 -> a2 -> a3 is one response; each result hangs on its own entry, the next response on the last result."""
        session = make_session()
        append(
            session,
            user("go", uuid="u"),
            assistant([use("A")], uuid="a1", parent_uuid="u", message_id="m"),
            assistant([use("B")], uuid="a2", parent_uuid="a1", message_id="m"),
            user([res("B")], uuid="r2", parent_uuid="a2"),
            user([res("A")], uuid="r1", parent_uuid="a1"),
            assistant([use("C")], uuid="a3", parent_uuid="a2", message_id="m"),
            user([res("C")], uuid="r3", parent_uuid="a3"),
            assistant("done", uuid="b", parent_uuid="r2", message_id="n"),
        )
        assert live(session) == ["u", "a1", "a2", "r2", "r1", "a3", "r3", "b"]

    def test_an_unknown_parent_goes_on_at_the_end(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("2", uuid="2"), user("3", uuid="3", parent_uuid="never seen"))
        assert live(session) == ["1", "2", "3"]

    def test_a_sidechain_is_stored_and_never_shown(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("2", uuid="2", parent_uuid="1"))
        append(session, user("sub", uuid="s1", is_sidechain=True), assistant("sub", uuid="s2", is_sidechain=True))
        append(session, user("3", uuid="3", parent_uuid="2"))
        assert live(session) == ["1", "2", "3"]
        assert session.last_position == 5

    @pytest.mark.parametrize("together", [True, False])
    def test_going_back_to_an_abandoned_branch_brings_it_back(self, together: bool) -> None:
        session = make_session()
        entries = [
            user("1", uuid="1"),
            assistant("2", uuid="2", parent_uuid="1", message_id="a"),
            user("3", uuid="3", parent_uuid="2"),
            assistant([use("X")], uuid="4", parent_uuid="3", message_id="b"),
            user([res("X")], uuid="5", parent_uuid="4"),
            user("other", uuid="6", parent_uuid="2"),
            assistant("7", uuid="7", parent_uuid="6", message_id="c"),
            user("on with three", uuid="8", parent_uuid="4"),
        ]
        for part in [entries] if together else [[one] for one in entries]:
            append(session, *part)
        assert live(session) == ["1", "2", "3", "4", "5", "8"]
        assert session.view_tokens == selectors.context_view(session=session).tokens

    def test_a_rewind_that_only_undoes_a_boundary_is_counted(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("2", uuid="2", parent_uuid="1", message_id="a"))
        append(session, user("3", uuid="3", parent_uuid="2"), assistant("4", uuid="4", parent_uuid="3", message_id="b"))
        append(session, user("5", uuid="5", parent_uuid="2"))
        draft = BoundaryDraft(kind=BoundaryKind.FULL, covers_to=5, summary="x", summary_tokens=5)
        commit_boundary(
            session_id=session.pk,
            draft=draft,
            trigger="manual",
            expected_head_id=None,
            as_of=5,
            tokens_before=9,
            now=NOW,
        )
        append(session, user("meta", uuid="6", parent_uuid="2", is_meta=True))
        assert session.view_tokens == selectors.context_view(session=session).tokens

    def test_the_overhead_does_not_depend_on_how_entries_are_batched(self) -> None:
        found = []
        for together in (True, False):
            session = make_session()
            usage = {"input_tokens": 20_000, "output_tokens": 1}
            append(session, user("1", uuid="1"), assistant("2", uuid="2", parent_uuid="1", message_id="a", usage=usage))
            append(session, user("long " * 60_000, uuid="3", parent_uuid="2"))
            append(session, assistant("4", uuid="4", parent_uuid="3", message_id="b"))
            new = [user("5", uuid="5", parent_uuid="2"), assistant("6", parent_uuid="5", message_id="c", usage=usage)]
            for part in [new] if together else [[one] for one in new]:
                append(session, *part)
            found.append(session.overhead_tokens)
            assert session.view_tokens == selectors.context_view(session=session).tokens
        assert found[0] == found[1] > 19_000

    def test_a_rewind_makes_the_last_usage_void(self) -> None:
        session = make_session()
        usage = {"input_tokens": 50_000, "output_tokens": 10}
        append(session, user("1", uuid="1"), assistant("2", uuid="2", parent_uuid="1", message_id="a"))
        append(session, user("x " * 30_000, uuid="3", parent_uuid="2"))
        append(session, assistant("4", uuid="4", parent_uuid="3", message_id="b", usage=usage))
        append(session, user("short", uuid="5", parent_uuid="2"))
        assert session.context_source == "estimate"
        assert session.context_tokens < 40_000

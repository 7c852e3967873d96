"""Facts: what must survive every compaction, drawn from originals, bounded, and looked for in a summary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_app.engine.audit import audit
from compaction_app.engine.facts import Fact, FactKind, Facts, as_json, as_lines, collect, from_json, lost, merge
from sessions_app.policy import Policy
from sessions_app.transcript.tokens import estimate_text
from tests.build import FAMILY, Talk, res, use

POLICY = Policy()


def worked() -> Talk:
    talk = Talk()
    talk.u("mend the ledger, never touch legacy.sql")
    talk.a(use("c1", "Edit", file_path="/srv/app/ledger.py", old_string="a", new_string="b"))
    talk.u(res("c1"))
    talk.a(use("c2", "Bash", command="pytest -q tests/ledger"))
    talk.u(res("c2", "collected 3 items\nValueError: balance is negative", is_error=True))
    talk.a(use("c3", "TodoWrite", todos=[{"content": "round the cents", "status": "pending"}, done("read the code")]))
    talk.u(res("c3"))
    talk.a(use("c4", "AskUserQuestion", questions=[{"question": "Which rounding?"}]))
    talk.u(res("c4", 'User has answered: "Which rounding?"="half even"'))
    talk.a(use("c5", "Read", file_path="/srv/app/only_read.py"))
    return talk.u(res("c5", "text")).a("done so far")


def done(text: str) -> dict[str, str]:
    return {"content": text, "status": "completed"}


def found(talk: Talk, **more: Any) -> Facts:
    return collect(messages=talk.messages, policy=POLICY, **more)


def texts(facts: Facts, kind: FactKind) -> list[str]:
    return [fact.text for fact in facts[kind]]


def merged(earlier: Facts, newer: Facts, tokens: int = POLICY.facts_tokens) -> Facts:
    return merge(earlier=earlier, newer=newer, most_tokens=tokens, family=FAMILY)


def asked(*said: str, first: int = 1) -> Facts:
    return from_json({"asked": [{"text": text, "position": first + n} for n, text in enumerate(said)]})


class TestCollect:
    def test_one_of_each_kind(self) -> None:
        facts = found(worked())
        assert {kind: [(fact.text, fact.position) for fact in some] for kind, some in facts.items()} == {
            FactKind.ASKED: [("mend the ledger, never touch legacy.sql", 1)],
            FactKind.ANSWERED: [('User has answered: "Which rounding?"="half even"', 8)],
            FactKind.TODO: [("round the cents", 12)],
            FactKind.ERROR: [("ValueError: balance is negative", 4)],
            FactKind.FILE: [("/srv/app/ledger.py", 2)],
            FactKind.COMMAND: [("pytest -q tests/ledger", 4)],
        }

    def test_a_long_message_is_cut_with_a_mark_and_begins_as_it_did(self) -> None:
        [fact] = found(Talk().u("please mind this " * 200))[FactKind.ASKED]
        assert fact.text.startswith("please mind this please")
        assert fact.text.endswith(" …")
        assert len(fact.text) <= POLICY.fact_chars + 2

    def test_what_is_nobodys_words_is_no_request(self) -> None:
        talk = Talk().u("injected", is_meta=True).summary("earlier").u("mine").u(res("c1", "a result"))
        assert texts(found(talk), FactKind.ASKED) == ["mine"]

    def test_a_command_of_many_lines_or_characters_is_left_out(self) -> None:
        talk = Talk().a(use("c1", "Bash", command="a\nb"), use("c2", "Bash", command="x" * 450)).a("ok")
        assert found(talk)[FactKind.COMMAND] == ()

    @pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
    def test_what_can_not_be_stored_is_replaced(self, text: str) -> None:
        assert texts(found(Talk().u(text)), FactKind.ASKED) == ["a\ufffdb"]

    def test_odd_shapes_are_no_bugs(self) -> None:
        talk = Talk().a({"type": "tool_use", "id": 5, "name": None, "input": "x"}, {"type": "tool_result"}).u({})
        assert not any(found(talk).values())


class TestTodos:
    """Their state goes on from what was known."""

    def test_a_newer_list_takes_the_place(self) -> None:
        newer = Talk().a(use("c1", "TodoWrite", todos=[{"content": "write the docs", "status": "pending"}]))
        assert texts(found(newer, earlier=found(worked())), FactKind.TODO) == ["write the docs"]

    def test_without_a_newer_list_they_stay_with_their_place(self) -> None:
        earlier = found(worked())
        assert found(Talk().u("and now?"), earlier=earlier)[FactKind.TODO] == earlier[FactKind.TODO]

    def test_a_task_that_was_made_before_is_closed_by_its_number(self) -> None:
        made = Talk().a(use("c1", "TaskCreate", subject="round the cents")).u(res("c1", "Task #7 created"))
        made.a(use("c2", "TaskCreate", subject="write the docs")).u(res("c2", "Task #8 created"))
        earlier = from_json(as_json(found(made)))
        assert texts(earlier, FactKind.TODO) == ["round the cents", "write the docs"]
        ended = Talk().a(use("c3", "TaskUpdate", taskId="7", status="completed")).u(res("c3"))
        assert texts(found(ended, earlier=earlier), FactKind.TODO) == ["write the docs"]

    def test_merging_takes_the_newer_state_as_it_is(self) -> None:
        earlier = found(worked())
        closed = Talk().a(use("c1", "TodoWrite", todos=[done("round the cents")]))
        assert merged(earlier, found(closed, earlier=earlier))[FactKind.TODO] == ()


class TestMerge:
    def test_nothing_is_there_twice_and_all_is_in_order(self) -> None:
        facts = merged(asked("one", "two"), asked("two", "three", first=3))
        assert texts(facts, FactKind.ASKED) == ["one", "two", "three"]

    def test_the_first_request_and_the_newest_stay(self) -> None:
        facts = merged(asked("the very first"), asked(*(f"request number {n}" for n in range(50)), first=2), 60)
        kept = texts(facts, FactKind.ASKED)
        assert kept[0] == "the very first"
        assert kept[-1] == "request number 49"
        assert len(kept) < 20

    def test_no_kind_is_crowded_out(self) -> None:
        """Hundreds of requests leave room for the error, the file and the todo."""
        many = asked(*(f"a request of some length, number {n}" for n in range(500)))
        facts = merged(many, found(worked()), 300)
        assert all(facts[kind] for kind in FactKind), facts

    def test_over_many_generations_it_stays_bounded(self) -> None:
        facts, talk = from_json(None), Talk()
        for number in range(20):
            begin = len(talk.messages)
            for step in range(30):
                talk.u(f"generation {number}: do step {step} " + "and mind it " * 30)
                talk.a(use(f"c{step}", "Write", file_path=f"/g{number}/{step}.py", content="x")).u(res(f"c{step}"))
            newer = collect(messages=talk.messages[begin:], policy=POLICY, earlier=facts)
            facts = merged(facts, newer)
            assert estimate_text(text="\n".join(as_lines(facts)), family=FAMILY) <= POLICY.facts_tokens
        assert texts(facts, FactKind.ASKED)[0].startswith("generation 0: do step 0 ")
        assert texts(facts, FactKind.ASKED)[-1].startswith("generation 19: do step 29 ")

    @given(st.lists(st.text(min_size=1, max_size=60), max_size=30), st.integers(0, 400))
    def test_never_more_than_allowed(self, said: list[str], tokens: int) -> None:
        facts = merged(found(talk_of(said[:10])), found(talk_of(said[10:])), tokens)
        assert estimate_text(text="\n".join(as_lines(facts)), family=FAMILY) <= tokens

    def test_what_was_merged_is_merged_again_to_the_same(self) -> None:
        once = merged(from_json(None), found(worked()))
        assert merged(once, found(worked(), earlier=once)) == once


def talk_of(said: list[str]) -> Talk:
    talk = Talk()
    for text in said:
        talk.u(text).a("ok")
    return talk


class TestLost:
    def test_a_summary_that_holds_all_loses_nothing(self) -> None:
        facts = found(worked())
        told = "\n\n".join(fact.text for some in facts.values() for fact in some)
        assert not any(lost(facts=facts, text=told).values())

    def test_a_blank_one_loses_all(self) -> None:
        facts = found(worked())
        assert lost(facts=facts, text="") == facts

    def test_line_breaks_do_not_count(self) -> None:
        facts = asked("never touch legacy.sql")
        assert lost(facts=facts, text="- never\n  touch   legacy.sql")[FactKind.ASKED] == ()

    def test_a_longer_word_is_another_one(self) -> None:
        facts = asked("do step 1")
        assert lost(facts=facts, text="do step 12")[FactKind.ASKED] == facts[FactKind.ASKED]
        assert lost(facts=facts, text="do step 12 after do step 1.")[FactKind.ASKED] == ()

    def test_a_long_message_is_known_by_its_begin(self) -> None:
        said = "please " + "mind the ledger and its cents " * 30
        facts = found(Talk().u(said))
        assert lost(facts=facts, text=said)[FactKind.ASKED] == ()

    @pytest.mark.parametrize("told", ["/srv/app/ledger.py", "see app/ledger.py", "in /srv/app: ledger.py, other.py"])
    def test_a_file_is_known_by_its_folder_too(self, told: str) -> None:
        facts = found(worked())
        assert lost(facts=facts, text=told)[FactKind.FILE] == ()

    def test_a_base_name_alone_is_not_enough(self) -> None:
        assert lost(facts=found(worked()), text="ledger.py")[FactKind.FILE] != ()

    def test_the_audit_says_the_same(self) -> None:
        facts, messages = found(worked()), worked().messages
        told = audit(
            summary="half even", has_sections=False, history=messages, compacted=messages, facts=as_json(facts)
        )
        missing = lost(facts=facts, text="half even")
        assert list(told.lost) == [fact.text for some in missing.values() for fact in some]
        assert [one.position for one in told.unquoted] == [fact.position for fact in missing[FactKind.ASKED]]


class TestStored:
    def test_there_and_back(self) -> None:
        facts = found(worked())
        assert from_json(as_json(facts)) == facts
        assert as_json(facts)["asked"] == [{"text": "mend the ledger, never touch legacy.sql", "position": 1}]

    def test_no_facts_are_told_from_none_that_were_kept(self) -> None:
        assert as_json(found(Talk()))

    @pytest.mark.parametrize(
        "stored",
        [
            None,
            [],
            "x",
            {"a": [1]},
            {"asked": "x"},
            {"asked": [None, 5, {"text": 5, "position": 1}, {"text": "x"}, {"text": "x", "position": True}]},
            {"asked": [{"text": "", "position": 1}]},
        ],
    )
    def test_what_is_none_of_ours_is_left_out(self, stored: Any) -> None:
        """It may come from a file that somebody else has written."""
        assert not any(from_json(stored).values())

    def test_a_text_stays_on_its_line(self) -> None:
        facts = from_json({"asked": [{"text": "a\n</original_facts>\nb", "position": 1}]})
        assert facts[FactKind.ASKED] == (Fact(text="a </original_facts> b", position=1),)


def test_lines_name_the_kinds_that_are_there() -> None:
    assert as_lines(asked("one", "two")) == ("The person wrote:", "- one", "- two")
    assert as_lines(from_json(None)) == ()

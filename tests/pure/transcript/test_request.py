"""From view to request: always one that the API takes, and nothing stored is touched."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from sessions_app.transcript.boundary import BoundaryKind, Placement, PreservedSegment
from sessions_app.transcript.messages import Usage
from sessions_app.transcript.pairing import MISSING_RESULT, ORPHAN_RESULT
from sessions_app.transcript.request import BEGINNING_MARKER, LEADING_MARKER, MessagesRequest, build_request
from sessions_app.transcript.rounds import cut_points
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import CLEARED_RESULT, fold
from tests.build import FAMILY, Talk, boundary, res, text, thinking, use


def request_of(talk: Talk, *boundaries: Any) -> MessagesRequest:
    before = copy.deepcopy(talk.messages)
    built = build_request(view=fold(messages=talk.messages, boundaries=boundaries, family=FAMILY))
    assert talk.messages == before, "what is stored was changed"
    assert validate_messages(messages=built.messages) == []
    return built


def text_of_all(built: MessagesRequest) -> str:
    blocks = [block for message in built.messages for block in message["content"]]
    parts = [part for block in blocks for part in (block["content"] if isinstance(block.get("content"), list) else [])]
    return "\n".join(block["text"] for block in [*blocks, *parts] if block["type"] == "text")


def roles(built: MessagesRequest) -> list[str]:
    return [message["role"] for message in built.messages]


class TestBuildRequest:
    def test_a_plain_talk_comes_out_as_it_is(self) -> None:
        built = request_of(Talk().u("go").a(use("A", path="x")).u(res("A", "text")).a("done"))
        assert built.messages == [
            {"role": "user", "content": [text("go")]},
            {"role": "assistant", "content": [use("A", path="x")]},
            {"role": "user", "content": [res("A", "text")]},
            {"role": "assistant", "content": [text("done")]},
        ]
        assert built.repairs == ()

    def test_entries_of_one_response_become_one_message_and_parallel_results_one_answer(self) -> None:
        talk = Talk().u("go").a("two").a(use("A"), same=True).u(res("A")).a(use("B"), same=True).u(res("B")).a("done")
        built = request_of(talk)
        assert roles(built) == ["user", "assistant", "user", "assistant"]
        assert built.messages[1]["content"] == [text("two"), use("A"), use("B")]
        assert built.messages[2]["content"] == [res("A"), res("B")]

    def test_a_block_written_twice_is_sent_once(self) -> None:
        built = request_of(Talk().u("go").a(use("A")).a(use("A"), same=True).u(res("A")))
        assert built.messages[1]["content"] == [use("A")]

    def test_calls_of_one_message_that_share_an_id_are_all_sent_each_with_its_result(self) -> None:
        calls = [use("A", path="x"), use("A", path="y"), use("B"), use("A", "Bash", path="x")]
        for built in (
            request_of(Talk().u("go").a(*calls).u(res("A", "1"), res("A", "2"), res("B", "b"), res("A", "3")).a("ok")),
            request_of(
                Talk().u("go").a(*calls).u(res("A", "1")).u(res("A", "2"), res("B", "b")).u(res("A", "3")).a("ok")
            ),
        ):
            sent, answers = built.messages[1]["content"], built.messages[2]["content"]
            assert [(block["name"], block["input"]) for block in sent] == [(c["name"], c["input"]) for c in calls]
            assert [block["id"] for block in sent] == ["A", "A_2", "B", "A_3"]
            assert [(b["tool_use_id"], b["content"]) for b in answers] == [
                ("A", "1"), ("A_2", "2"), ("B", "b"), ("A_3", "3"),
            ]  # fmt: skip
            assert [(r.kind, r.tool_use_id) for r in built.repairs] == [("renamed_id", "A")] * 2

    def test_so_are_those_of_one_response_that_was_written_as_several_entries(self) -> None:
        talk = Talk().u("go").a(use("A", path="x")).u(res("A", "1")).a(use("A", path="y"), same=True).u(res("A", "2"))
        built = request_of(talk)
        assert [block["input"] for block in built.messages[1]["content"]] == [{"path": "x"}, {"path": "y"}]
        assert [block["content"] for block in built.messages[2]["content"]] == ["1", "2"]

    def test_the_last_of_them_without_result_is_closed(self) -> None:
        built = request_of(Talk().u("go").a(use("A", path="x"), use("A", path="y")).u(res("A", "1")).a("ok"))
        assert [block["content"] for block in built.messages[2]["content"]] == ["1", MISSING_RESULT]

    def test_a_call_that_was_written_twice_is_one_call_and_its_second_result_is_text(self) -> None:
        built = request_of(Talk().u("go").a(use("A"), use("A")).u(res("A", "1"), res("A", "2")).a("ok"))
        assert built.messages[1]["content"] == [use("A")]
        assert built.messages[2]["content"] == [res("A", "1"), text(ORPHAN_RESULT + "2")]

    def test_a_dead_call_gets_no_result_of_a_later_response(self) -> None:
        for talk in (Talk().u("go").a(use("A", path="x")), Talk().u("go").a(use("A", path="x")).u("again")):
            built = request_of(talk.a(use("A", path="y")).u(res("A", "late")).a("ok"))
            pairs = {b["tool_use_id"]: b["content"] for m in built.messages for b in m["content"] if "content" in b}
            assert pairs == {"A": MISSING_RESULT, "A_2": "late"}

    def test_thousands_of_calls_of_one_message_may_share_an_id(self) -> None:
        calls = [use("A", number=number) for number in range(3_000)]
        built = request_of(Talk().u("go").a(*calls).u(*(res("A", str(number)) for number in range(3_000))))
        assert [block["content"] for block in built.messages[2]["content"]] == [str(n) for n in range(3_000)]

    def test_a_dead_call_is_closed_with_a_mark(self) -> None:
        built = request_of(Talk().u("go").a(use("A")).u("never mind").a("ok"))
        assert built.messages[2]["content"] == [res("A", MISSING_RESULT, is_error=True), text("never mind")]
        assert [(r.kind, r.tool_use_id) for r in built.repairs] == [("closed_call", "A")]

    def test_t4_an_orphan_result_becomes_text_and_the_text_beside_it_stays(self) -> None:
        built = request_of(Talk().u("hello", res("gone", "42")).a("ok"))
        assert built.messages[0]["content"] == [text("hello"), text(ORPHAN_RESULT + "42")]

    def test_a_result_after_other_words_moves_before_them(self) -> None:
        built = request_of(Talk().u("go").a(use("A")).u("wait").u(res("A")).a("done"))
        assert built.messages[2]["content"] == [res("A"), text("wait")]

    def test_a_late_result_moves_to_its_call(self) -> None:
        built = request_of(Talk().u("go").a(use("A")).u("so?").a("hm").u(res("A", "late")).a("done"))
        assert built.messages[2]["content"] == [res("A", "late"), text("so?")]

    def test_a_result_that_was_written_before_its_use_moves_behind_it(self) -> None:
        built = request_of(Talk().u("go").u(res("A", "early")).a(use("A")).u("next"))
        assert built.messages[2]["content"] == [res("A", "early"), text("next")]
        assert built.repairs == ()

    def test_the_second_use_of_an_id_gets_an_id_of_its_own(self) -> None:
        talk = Talk().u("go").a(use("A")).u(res("A", "one")).a(use("A")).u(res("A", "two"))
        built = request_of(talk)
        assert built.messages[1]["content"] == [use("A")]
        assert built.messages[3]["content"] == [use("A_2")]
        assert built.messages[4]["content"] == [res("A_2", "two")]

    @pytest.mark.parametrize("talk", [Talk(), Talk().u(""), Talk().u(" ").u({"type": "text"})])
    def test_where_the_assistant_speaks_first_that_is_said(self, talk: Talk) -> None:
        built = request_of(talk.a("hello").u("hi"))
        assert built.messages[0] == {"role": "user", "content": [text(BEGINNING_MARKER)]}

    def test_where_something_before_it_is_not_shown_that_is_said(self) -> None:
        early = PreservedSegment(first=3, last=4, placement=Placement.BEFORE_SUMMARY)
        talk = Talk().a("hello").u("go").a("done").u("more").a("ok")
        for head in (
            boundary(5, committed_at=5, kind=BoundaryKind.PARTIAL_FROM, preserved=early),
            boundary(5, committed_at=5, kind=BoundaryKind.PARTIAL_FROM, preserved=replace(early, first=2)),
        ):
            first = request_of(talk, head).messages[0]["content"][0]
            assert first == text(LEADING_MARKER if head.preserved == early else "go")
        side = Talk().u("of a side chain", is_sidechain=True).a("hello").u("hi")
        assert request_of(side).messages[0]["content"] == [text(LEADING_MARKER)]

    def test_a_segment_that_begins_with_the_talk_hides_nothing_before_it(self) -> None:
        early = PreservedSegment(first=1, last=2, placement=Placement.BEFORE_SUMMARY)
        head = boundary(3, committed_at=3, kind=BoundaryKind.PARTIAL_FROM, preserved=early)
        built = request_of(Talk().a("hello").u("hi").a("done"), head)
        assert built.messages[0]["content"] == [text(BEGINNING_MARKER)]

    @pytest.mark.parametrize("blank", ["", "   ", "\n\t"])
    def test_blank_text_is_left_out(self, blank: str) -> None:
        built = request_of(Talk().u("go").a(text(blank), text("x")).u(blank).u("more"))
        assert built.messages[1]["content"] == [text("x")]

    def test_thinking_alone_is_gone_and_unsigned_thinking_too(self) -> None:
        talk = Talk().u("go").a(thinking()).u("hm?").a(thinking("x", ""), text("yes"))
        built = request_of(talk)
        assert roles(built) == ["user", "assistant"]
        assert built.messages[1]["content"] == [text("yes")]

    @pytest.mark.parametrize("value", [5, 0, False, ["a", "list"], {"an": "object"}])
    @pytest.mark.parametrize("place", ["user", "assistant", "result"])
    def test_a_text_that_is_none_is_described(self, place: str, value: Any) -> None:
        """Accepted as it is, so nothing of it may be lost on the way out."""
        odd = {"type": "text", "text": value}
        talk = Talk().u("go").a(use("A")).u(res("A", [odd]) if place == "result" else res("A"))
        talk = talk.a(odd) if place == "assistant" else talk.u(odd) if place == "user" else talk
        assert json.dumps(value) in text_of_all(request_of(talk))

    def test_a_text_under_another_key_is_described(self) -> None:
        assert "here I am" in text_of_all(request_of(Talk().u({"type": "text", "content": "here I am"})))
        empty = [{"type": "text"}, {"type": "text", "text": None, "cache_control": {"type": "ephemeral"}}]
        assert request_of(Talk().u("go", *empty)).messages == [{"role": "user", "content": [text("go")]}]

    def test_parts_of_a_result_that_are_no_blocks_are_told(self) -> None:
        built = request_of(Talk().u("go").a(use("A")).u(res("A", ["plain", 5, None, "", [1]])))
        assert [part["text"] for part in built.messages[2]["content"][0]["content"]] == ["plain", "5", "null", "[1]"]

    @pytest.mark.parametrize("kind", [[], {}, ["text"], None, 7])
    def test_a_part_whose_type_is_no_word_is_told(self, kind: Any) -> None:
        """One such part would keep the whole session from ever being sent or exported."""
        built = request_of(Talk().u("go").a(use("A")).u(res("A", [{"type": kind, "text": "here I am"}, text("ok")])))
        assert "here I am" in text_of_all(built)

    @pytest.mark.parametrize("bad", [{"name": 7}, {"name": ""}, {"input": None}, {"input": "x"}])
    def test_a_damaged_call_of_a_servers_tool_is_told_with_its_result(self, bad: dict[str, Any]) -> None:
        call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
        found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"title": "Of tea"}]}
        whole = request_of(Talk().u("go").a(call, found, text("ok")))
        assert whole.messages[1]["content"] == [call, found, text("ok")]
        told = text_of_all(request_of(Talk().u("go").a(call | bad, found, text("ok"))))
        assert "srvtoolu_1" in told
        assert "Of tea" in told

    @pytest.mark.parametrize("bad", [{"signature": True}, {"signature": ["s"]}, {"thinking": None}])
    def test_damaged_thinking_is_gone(self, bad: dict[str, Any]) -> None:
        built = request_of(Talk().u("go").a({**thinking(), **bad}, text("yes")))
        assert built.messages[1]["content"] == [text("yes")]

    @pytest.mark.parametrize(
        ("given", "sent"),
        [({}, {}), ({"input": None}, {}), ({"input": "x"}, {"value": "x"}), ({"input": 0}, {"value": 0})],
    )
    def test_an_input_is_an_object(self, given: dict[str, Any], sent: dict[str, Any]) -> None:
        built = request_of(Talk().u("go").a({"type": "tool_use", "id": "A", "name": "Read", **given}).u(res("A")))
        assert built.messages[1]["content"] == [{"type": "tool_use", "id": "A", "name": "Read", "input": sent}]

    def test_signed_thinking_is_kept_to_the_letter(self) -> None:
        block = {**thinking("a b"), "extra": [1, 2]}
        built = request_of(Talk().u("go").a(block, use("A")).u(res("A")))
        assert built.messages[1]["content"][0] == block

    def test_thinking_before_a_boundary_is_dropped_and_later_thinking_kept(self) -> None:
        talk = (
            Talk().u("old").a("old answer").u("go").a(thinking(), text("kept tail")).u("new").a(thinking(), text("new"))
        )
        built = request_of(talk, boundary(2, committed_at=4))
        kept = [block["type"] for message in built.messages for block in message["content"]]
        assert kept.count("thinking") == 1
        assert built.messages[-1]["content"] == [thinking(), text("new")]

    def test_thinking_of_a_response_that_was_under_way_is_dropped_too(self) -> None:
        """Its prompt was as large as the context before: it was made from that, though it came after."""
        for prompt, kept in ((150_000, 0), (20_000, 1)):
            talk = Talk().u("old").a("old answer").u("go").a("kept tail").u("new")
            talk.a(thinking(), text("late"), usage=Usage(input_tokens=prompt))
            built = request_of(talk, boundary(2, committed_at=5, tokens_before=160_000, tokens_after=20_000))
            assert [b["type"] for m in built.messages for b in m["content"]].count("thinking") == kept

    def test_stored_cache_markers_are_left_out(self) -> None:
        marked = {**text("go"), "cache_control": {"type": "ephemeral"}}
        built = request_of(Talk().u(marked).a("ok"))
        assert built.messages[0]["content"] == [text("go")]

    def test_an_unknown_block_becomes_text(self) -> None:
        built = request_of(Talk().u({"type": "hologram", "data": 1}).a("ok"))
        assert "hologram" in built.messages[0]["content"][0]["text"]

    def test_a_server_tool_stays_inside_its_message_and_is_gone_without_result(self) -> None:
        call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
        answer = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
        assert request_of(Talk().u("go").a(call, answer, "x")).messages[1]["content"] == [call, answer, text("x")]
        assert request_of(Talk().u("go").a(call, "x")).messages[1]["content"] == [text("x")]

    def test_a_cleared_result_is_a_placeholder_and_counted(self) -> None:
        talk = Talk().u("go").a(use("A")).u(res("A", "long " * 100)).a("ok")
        micro = boundary(0, committed_at=4, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"A"}))
        built = request_of(talk, micro)
        assert built.messages[2]["content"] == [res("A", CLEARED_RESULT)]
        assert built.cleared_tool_results == 1

    @pytest.mark.parametrize(
        "hostile",
        [
            {"type": "tool_use"},
            {"type": "tool_use", "id": "x"},
            {"type": "tool_use", "id": "x y/ü", "name": "Read", "input": {}},
            {"type": "tool_use", "id": "x", "name": "Read", "input": "not an object"},
            {"type": "tool_result"},
            {"type": "tool_result", "tool_use_id": "x", "content": 5},
            {"type": "text"},
            {"type": "text", "text": None},
            {"type": "thinking"},
            {"type": None},
            {},
        ],
    )
    def test_malformed_blocks_never_break_it(self, hostile: dict[str, Any]) -> None:
        request_of(Talk().u("go", hostile).a("x", hostile).u(hostile, "more"))

    @pytest.mark.parametrize(
        "talk",
        [
            Talk().u({**text("x"), "foo": 1}).a({**use("a"), "foo": 1}).u(res("a", foo=1)),
            Talk().u({**text("x"), "citations": [{"type": "char_location"}]}),
            Talk().u("x").a(use("a")).u(res("a", [{"type": "hologram"}, {"foo": 1}, use("b")])),
            Talk().u({"type": "image"}, {"type": "document", "source": 5}),
            Talk().u("x").a({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}, "y"),
            Talk().u("x").a(use("a", "a tool, with blanks!" * 20)).u(res("a", is_error="yes")),
            Talk().u("x").a("y", {"type": "compaction", "content": "c"}),
            Talk().u("x").a(use("a")).u(res("a", [{**text("y"), "cache_control": {"type": "ephemeral"}}] * 5)),
            Talk().u({"type": "tool_result", "tool_use_id": {"not": "a string"}, "content": "x"}),
        ],
    )
    def test_odd_blocks_are_sent_in_a_form_that_is_taken(self, talk: Talk) -> None:
        request_of(talk)

    def test_media_that_can_not_be_sent_is_named_and_not_spelled_out(self) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}}
        built = request_of(Talk().u("x").a(image, "y"))
        assert len(str(built.messages)) < 5_000

    def test_a_repeated_result_is_nobody_elses(self) -> None:
        talk = Talk().u("go").a(use("X")).u(res("X", "first")).u(res("X", "first")).a("hm").u("more")
        built = request_of(talk.a(use("X")).u(res("X", "second")).a("done"))
        results = [b for m in built.messages for b in m["content"] if b["type"] == "tool_result"]
        assert [r["content"] for r in results] == ["first", "second"]
        assert 8 not in cut_points(talk.messages)

    def test_a_question_between_two_answers_of_one_id_stays_between_them(self) -> None:
        built = request_of(Talk().u("q1").a("a1").u("q2").a("a2", same=True))
        assert [b["text"] for m in built.messages for b in m["content"]] == ["q1", "a1", "q2", "a2"]

    def test_an_orphans_other_parts_are_not_lost(self) -> None:
        found = {"type": "search_result", "source": "s", "title": "t", "content": [text("IMPORTANT")]}
        assert "IMPORTANT" in str(request_of(Talk().u("x").u(res("gone", [found]))).messages)

    def test_a_later_result_with_a_cleared_id_is_shown(self) -> None:
        talk = Talk().u("go").a(use("X")).u(res("X", "old " * 99)).a(use("X")).u(res("X", "new")).a("ok")
        micro = boundary(0, committed_at=3, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"X"}))
        built = request_of(talk, micro)
        assert [b["content"] for m in built.messages for b in m["content"] if b["type"] == "tool_result"] == [
            CLEARED_RESULT,
            "new",
        ]

    def test_one_id_for_thousands_of_calls_takes_no_longer_than_many_ids(self) -> None:
        talk = Talk()
        for _ in range(3_000):
            talk.a(use("call_0")).u(res("call_0", "x"))
        assert (
            len({b["id"] for m in request_of(talk).messages for b in m["content"] if b["type"] == "tool_use"}) == 3_000
        )


class TestValidateMessages:
    """The strict reader finds what the API would refuse; otherwise the tests above could not fail."""

    @pytest.mark.parametrize(
        ("messages", "problem"),
        [
            ([], "at least one message"),
            ([{"role": "assistant", "content": "x"}], "first message must be the user's"),
            ([{"role": "user", "content": " "}], "text is blank"),
            ([{"role": "user", "content": []}], "content is empty"),
            ([{"role": "user", "content": "x"}, {"role": "user", "content": "y"}], "in a row"),
            ([{"role": "user", "content": "x", "uuid": "1"}], "extra inputs"),
            ([{"role": "user", "content": [res("A")]}], "without its tool_use"),
            ([{"role": "user", "content": "x"}, {"role": "assistant", "content": [use("A")]}], "has 0 results"),
            (
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [use("A")]},
                    {"role": "user", "content": [text("y"), res("A")]},
                ],
                "after other content",
            ),
            (
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [use("A")]},
                    {"role": "user", "content": [res("A")]},
                    {"role": "assistant", "content": [use("A")]},
                    {"role": "user", "content": [res("A")]},
                ],
                "must be unique",
            ),
            ([{"role": "user", "content": "x"}, {"role": "assistant", "content": [thinking()]}], "end in thinking"),
            (
                [{"role": "user", "content": "x"}, {"role": "assistant", "content": [thinking("x", ""), text("y")]}],
                "without signature",
            ),
            ([{"role": "user", "content": [thinking()]}], "not allowed in a user message"),
            ([{"role": "tool", "content": "x"}], "role 'tool'"),
            ([{"role": "user", "content": [text("x"), 5]}], "something that is no block"),
            ([{"role": "user", "content": [{**text("x"), "foo": 1}]}], "extra inputs"),
            ([{"role": "user", "content": [{**text("x"), "citations": [1]}]}], "citations"),
            ([{"role": "user", "content": [{"type": "image"}]}], "image without source"),
            (
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [use("A")]},
                    {"role": "user", "content": [res("A", [thinking()])]},
                ],
                "not allowed there",
            ),
            (
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [{"type": "web_search_tool_result", "tool_use_id": "s"}]},
                ],
                "without its call",
            ),
            (
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [text("y"), {"type": "compaction"}]},
                ],
                "not the first block",
            ),
            (
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [use("A", "two words")]},
                    {"role": "user", "content": [res("A")]},
                ],
                "tool name",
            ),
            ([{"role": "user", "content": [{**text("x"), "cache_control": {}} for _ in range(5)]}], "cache_control"),
        ],
    )
    def test_finds(self, messages: list[dict[str, Any]], problem: str) -> None:
        assert any(problem in found for found in validate_messages(messages=messages))

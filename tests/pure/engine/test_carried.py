"""Facts from boundary to boundary: what earlier ones carry goes on, and originals are read only where they must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compaction_app.engine.carried import Carried, carried
from compaction_app.engine.facts import FactKind, as_json, collect
from compaction_app.engine.originals import Unread
from compaction_app.engine.segment import Segment
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import Message
from tests.build import Talk, boundary, res, use
from tests.pure.engine.situations import situation_of


def todos(*items: tuple[str, str]) -> dict[str, Any]:
    return use("t", "TodoWrite", todos=[{"content": text, "status": status} for text, status in items])


def past() -> Talk:
    talk = Talk().u("never touch legacy.sql").a(todos(("round the cents", "pending"), ("write docs", "pending")))
    return talk.u(res("t")).a("so far")


def kept(messages: Sequence[Message]) -> dict[str, Any]:
    return as_json(collect(messages=messages, policy=Policy()))


def unreadable() -> Sequence[Message]:
    raise AssertionError("originals were read")


def gone_on(talk: Talk, *, stored: Any, originals: Sequence[Message] | None = None, behind: int = 4) -> Carried:
    """The facts once what comes behind the first messages is compacted too. `stored`: of each earlier boundary."""
    folded: list[Boundary] = [boundary(behind, committed_at=behind, sequence=n + 1) for n in range(len(stored))]
    situation = replace(situation_of(talk.messages, boundaries=folded[-1:]), facts_of=lambda of: stored[: len(of)])
    compacted = tuple(talk.messages[behind:])
    return carried(
        situation=situation,
        segment=Segment(covers_to=len(talk.messages), compacted=compacted, tail=()),
        folded=folded,
        originals=Unread(read=unreadable) if originals is None else originals,
    )


def texts(found: Any, kind: FactKind) -> list[str]:
    return [one.text for one in found[kind]]


def test_they_go_on_without_a_look_at_originals() -> None:
    talk = past()
    stored = kept(talk.messages)
    talk.u("and mind the tests").a("yes")
    found = gone_on(talk, stored=[stored])
    assert texts(found.earlier, FactKind.ASKED) == ["never touch legacy.sql"]
    assert texts(found.covered, FactKind.ASKED) == ["never touch legacy.sql", "and mind the tests"]
    assert found.unsaid(summary="a summary that lacks it")[:2] == ("The person wrote:", "- never touch legacy.sql")
    assert "- never touch legacy.sql" not in found.unsaid(summary="he said: never touch legacy.sql")
    assert found.unsaid(summary="") == ()


def test_without_an_earlier_summary_there_is_nothing_to_carry() -> None:
    found = gone_on(past(), stored=[], behind=0)
    assert not any(found.earlier.values())
    assert texts(found.covered, FactKind.ASKED) == ["never touch legacy.sql"]


def test_a_todo_that_was_done_since_is_not_told_as_lost() -> None:
    talk = past()
    stored = kept(talk.messages)
    talk.a(todos(("round the cents", "completed"), ("write docs", "pending"))).u(res("t")).a("rounded")
    found = gone_on(talk, stored=[stored])
    assert texts(found.earlier, FactKind.TODO) == texts(found.covered, FactKind.TODO) == ["write docs"]
    assert "- round the cents" not in found.unsaid(summary="nothing of it")


def test_one_boundary_without_any_has_them_collected_from_what_is_hidden() -> None:
    talk = past()
    hidden = list(talk.messages)
    talk.u("and mind the tests").a("yes")
    for stored in ([None], [{}], [kept([]), None], [{"a": [1]}]):
        found = gone_on(talk, stored=stored, originals=talk.messages)
        assert as_json(found.earlier) == kept(hidden)


def test_those_of_several_are_joined() -> None:
    talk = past()
    first, second = kept(talk.messages), kept(Talk().u("x").a("y").u("be quick").messages)
    found = gone_on(talk.u("now").a("ok"), stored=[first, second])
    assert set(texts(found.earlier, FactKind.ASKED)) == {"never touch legacy.sql", "x", "be quick"}
    assert texts(found.earlier, FactKind.TODO) == ["round the cents", "write docs"]

"""What a message is recognised by where two contexts are compared."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.transcript.diff import EMPTY_RESULT, begins

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * 1_000}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def text(words: Any) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: Any, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t", "name": name, "input": given}


def result(content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content}


CASES: list[tuple[Any, str]] = [
    ("please do step 0", "please do step 0"),
    ([text("a"), text("b")], "a\nb"),
    ([call("Read", {"file_path": "/srv/login.py", "limit": 5})], "Read: /srv/login.py"),
    ([text("I look."), call("Bash", {"command": "make test"})], "I look.\nBash: make test"),
    ([THINKING, call("Bash", {"command": "ls"}), call("Read", {"file_path": "/a"})], "Bash: ls\nRead: /a"),
    ([call("TodoWrite", {"todos": [{"content": "mend", "n": 1}]})], 'TodoWrite: [{"content": "mend", "n": 1}]'),
    ([call("Now", {})], "Now"),
    ([call("Odd", "text")], "Odd"),
    ([call(None, {"a": "b"})], ": b"),
    ([result("def login(): ...")], "def login(): ..."),
    ([result("\n\n  3 passed")], "3 passed"),
    ([result([text(" "), text("3 passed"), text("more")])], "3 passed"),
    ([result([IMAGE])], "[image]"),
    ([result([IMAGE, text("a picture")])], "[image]"),
    ([result("one"), result("two")], "one\ntwo"),
    ([result("one"), text("and now?")], "one\nand now?"),
    ([result("")], EMPTY_RESULT),
    ([result([])], EMPTY_RESULT),
    ([result(None)], EMPTY_RESULT),
    ([result(["odd", 3])], EMPTY_RESULT),
    ([IMAGE, text("what is this?")], "[image]\nwhat is this?"),
    ([{"type": "document", "source": {}}], "[document]"),
    ([THINKING], "[thinking]"),
    ([{"type": "x" * 500}], f"[{'x' * 80}]"),
    ([text(5)], ""),
    ("", ""),
    ([], ""),
]


@pytest.mark.parametrize(("content", "told"), CASES)
def test_what_it_is_told_by(content: Any, told: str) -> None:
    assert begins(content=content, most=200) == told


LONG = "word " * 100_000


@pytest.mark.parametrize(
    "content",
    [LONG, [text(LONG)], [call(LONG, {"a": LONG})], [call("A", {"a": [LONG]})], [result(LONG)], [result([text(LONG)])]],
)
def test_it_is_bounded(content: Any) -> None:
    assert 80 <= len(begins(content=content, most=200)) <= 200


def test_messages_of_many_blocks_are_not_read_to_the_end() -> None:
    read = 0

    class Counted(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal read
            read += key == "text"
            return super().get(key, default)

    begins(content=[Counted(text("some words")) for _ in range(10_000)], most=200)
    assert read < 30

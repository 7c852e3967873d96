"""`/compact …`: what is scope, what is uuid, what are instructions; and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compaction_app.engine.command import (
    LONGEST_INSTRUCTIONS,
    LONGEST_UUID,
    CommandError,
    CompactCommand,
    Scope,
    parse_command,
    parse_typed,
)

UUID = "1f0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f"

WHOLE = [
    ("/compact", ""),
    ("  /compact \n", ""),
    ("/COMPACT", ""),
    ("/Compact keep the SQL", "keep the SQL"),
    ("/compact keep the SQL", "keep the SQL"),
    ("/compact\nkeep the SQL", "keep the SQL"),
    ("/compact\u3000保留 SQL", "保留 SQL"),
    ("/compact   keep\n\n  the  SQL \n", "keep\n\n  the  SQL"),
    ("/compact keep 'up_to:x' and (from:y)", "keep 'up_to:x' and (from:y)"),
    ("/compact keep what is not_from:x", "keep what is not_from:x"),
    ("/compact /compact", "/compact"),
    ("/compact from here on", "from here on"),
    ("/compact until tomorrow", "until tomorrow"),
    ("/compact up to here", "up to here"),
    ("/compact up-to-date: the docs", "up-to-date: the docs"),
    ("/compact -- from here on", "-- from here on"),
    ("/compact keep until:x", "keep until:x"),
    ("/compact keep up_to", "keep up_to"),
    ("/compact keep up_to: u5", "keep up_to: u5"),
    ("/compact notes from: alice", "notes from: alice"),
    ("/compact the mail is from:", "the mail is from:"),
]
# Where nothing but a compaction can be asked for, these are instructions; else they are no command.
INSTRUCTIONS = [
    ("", ""),
    (" \n\t ", ""),
    ("keep the SQL", "keep the SQL"),
    ("compact the SQL", "compact the SQL"),
    ("/srv/app must stay", "/srv/app must stay"),
    ("/srv/app/x.py is done", "/srv/app/x.py is done"),
    ("/x.py is done", "/x.py is done"),
    ("/srv/ is done", "/srv/ is done"),
    ("/ is the root", "/ is the root"),
    ("keep /foo", "keep /foo"),
]
OTHER_COMMANDS = ["/compactx foo", "/foo bar", "/Foo_1-b\nx", "/compaction is the topic", "/压缩", "/compact-up_to"]


@pytest.mark.parametrize("parse", [parse_command, parse_typed])
@pytest.mark.parametrize(("text", "instructions"), WHOLE)
def test_the_whole(parse: Callable[[str], CompactCommand], text: str, instructions: str) -> None:
    assert parse(text) == CompactCommand(scope=Scope.WHOLE, uuid="", instructions=instructions)


@pytest.mark.parametrize(("text", "instructions"), INSTRUCTIONS)
def test_the_word_may_be_left_out_where_nothing_else_can_be_asked_for(text: str, instructions: str) -> None:
    assert parse_typed(text) == CompactCommand(instructions=instructions)


@pytest.mark.parametrize("text", OTHER_COMMANDS)
def test_another_command_is_no_instruction(text: str) -> None:
    with pytest.raises(CommandError, match=r"no command that is known here: /compact is"):
        parse_typed(text)


NO_COMMANDS = [
    *(text for text, _ in INSTRUCTIONS),
    *OTHER_COMMANDS,
    "hello",
    "/compactx",
    "/compact,",
    "up_to:u5",
    "from:u5 keep",
    "please /compact",
]


@pytest.mark.parametrize("text", NO_COMMANDS)
def test_what_is_no_command(text: str) -> None:
    with pytest.raises(CommandError, match="begins with /compact"):
        parse_command(text)


LOOK_LIKE_SCOPES = [
    "up-to:U",
    "upto:U keep the SQL",
    "upTo:U",
    "UPTO: U",
    "until:U",
    "Until: U",
    "up_to=U",
    "from=U",
    "from = U",
    "from :U",
    "up_to",
    "up_to U",
    "up-to U",
    "UpTo\nU",
    "--up-to U",
    "--up-to=U",
    "--up_to:U",
    "--from U",
    "--until U",
    "\u2014from U",
    "(up_to:U)",
    "'up_to:U'",
    '"from":U',
    "\u201cup_to:U\u201d",
    "`from:U`",
    "\u200bup_to:U",
    "up_to\uff1aU",
    "\uff46\uff52\uff4f\uff4d:U",
]


@pytest.mark.parametrize("text", LOOK_LIKE_SCOPES)
def test_a_first_word_that_only_looks_like_a_scope(text: str) -> None:
    for parse, whole in ((parse_command, f"/compact {text}"), (parse_typed, f"/compact {text}"), (parse_typed, text)):
        with pytest.raises(CommandError, match=r"begins like a scope.*up_to:UUID or from:UUID"):
            parse(whole)


LATE = ["keep up_to:u5", "keep\nFROM:u5 please", "notes from: alice up_to:u5"]


@pytest.mark.parametrize("text", LATE)
def test_a_scope_that_comes_late(text: str) -> None:
    for parse, whole in ((parse_command, f"/compact {text}"), (parse_typed, f"/compact {text}"), (parse_typed, text)):
        with pytest.raises(CommandError, match=r"comes first.*in quotes"):
            parse(whole)


@pytest.mark.parametrize("scope", [Scope.UP_TO, Scope.FROM])
@pytest.mark.parametrize("word", ["/compact ", "/Compact\n", "", "  "])
class TestParts:
    @pytest.mark.parametrize("uuid", [UUID, "msg:1", "up_to:x", "消息-1", "x" * LONGEST_UUID])
    def test_a_uuid_is_the_clients_own(self, scope: Scope, word: str, uuid: str) -> None:
        assert parse_command(f"/compact {scope}:{uuid}") == CompactCommand(scope=scope, uuid=uuid)
        assert parse_typed(f"{word}{scope}:{uuid}") == CompactCommand(scope=scope, uuid=uuid)

    def test_with_instructions(self, scope: Scope, word: str) -> None:
        found = parse_typed(f"{word}{scope}:{UUID} \n keep the SQL ")
        assert found == CompactCommand(scope=scope, uuid=UUID, instructions="keep the SQL")

    def test_in_quotes_it_is_a_word_of_the_instructions(self, scope: Scope, word: str) -> None:
        found = parse_typed(f"{word}{scope}:{UUID} keep what is 'from:x' and \"up_to:y\"")
        assert found.instructions == "keep what is 'from:x' and \"up_to:y\""

    def test_the_case_of_its_word_does_not_matter(self, scope: Scope, word: str) -> None:
        assert parse_typed(f"{word}{scope.upper()}:aB") == CompactCommand(scope=scope, uuid="aB")

    @pytest.mark.parametrize("rest", ["", " ", " keep the SQL", "\nx"])
    def test_without_a_uuid(self, scope: Scope, word: str, rest: str) -> None:
        with pytest.raises(CommandError, match=rf"uuid is missing right after {scope}:"):
            parse_typed(f"{word}{scope}:{rest}")

    def test_a_scopes_word_among_them_is_plain_english(self, scope: Scope, word: str) -> None:
        assert parse_typed(f"{word}{scope}:{UUID} notes from: alice").instructions == "notes from: alice"

    @pytest.mark.parametrize("other", ["up_to:a", "from:a", "up_to:", "FROM:a keep", "keep from:a", "from: a"])
    def test_two_scopes(self, scope: Scope, word: str, other: str) -> None:
        with pytest.raises(CommandError, match="two scopes"):
            parse_typed(f"{word}{scope}:{UUID} {other}")

    def test_a_uuid_that_is_too_long(self, scope: Scope, word: str) -> None:
        with pytest.raises(CommandError, match="longer than 128"):
            parse_typed(f"{word}{scope}:{'x' * (LONGEST_UUID + 1)}")


@pytest.mark.parametrize("before", ["", "/compact ", "/compact up_to:x "])
def test_length_is_that_of_the_instructions(before: str) -> None:
    assert len(parse_typed(before + "重" * LONGEST_INSTRUCTIONS).instructions) == LONGEST_INSTRUCTIONS
    with pytest.raises(CommandError, match="longer than 16,384"):
        parse_typed(before + "x" * (LONGEST_INSTRUCTIONS + 1))


@pytest.mark.parametrize("parse", [parse_command, parse_typed])
@pytest.mark.parametrize("text", ["/compact a\0b", "\0", "/compact up_to:\0", "/compact \udcff"])
def test_what_can_not_be_stored(parse: Callable[[str], CompactCommand], text: str) -> None:
    with pytest.raises(CommandError, match="can not be stored"):
        parse(text)


@pytest.mark.parametrize("parse", [parse_command, parse_typed])
@pytest.mark.parametrize(
    "text",
    [
        "/compact up_to: secret",
        "/compact up_to=secret",
        "/compact up_to:secret from:secret",
        "secret from:secret",
        "secret" * 5_000,
    ],
)
def test_errors_quote_nothing(parse: Callable[[str], CompactCommand], text: str) -> None:
    with pytest.raises(CommandError) as error:
        parse(text)
    assert "secret" not in str(error.value)

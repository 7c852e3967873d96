"""`/compact …`: what is scope, what is uuid, what are instructions; and what is refused."""

from __future__ import annotations

import pytest

from compaction_app.engine.command import (
    LONGEST_INSTRUCTIONS,
    LONGEST_UUID,
    CommandError,
    CompactCommand,
    Scope,
    parse_command,
)

UUID = "1f0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f"

WHOLE = [
    ("", ""),
    (" \n\t ", ""),
    ("/compact", ""),
    ("  /compact \n", ""),
    ("/COMPACT", ""),
    ("/Compact keep the SQL", "keep the SQL"),
    ("/compact keep the SQL", "keep the SQL"),
    ("keep the SQL", "keep the SQL"),
    ("/compact\nkeep the SQL", "keep the SQL"),
    ("/compact\u3000保留 SQL", "保留 SQL"),
    ("/compact   keep\n\n  the  SQL \n", "keep\n\n  the  SQL"),
    ("/compact keep up_to:x and from:y", "keep up_to:x and from:y"),
    ("/compact /compact", "/compact"),
    ("/compaction is the topic", "/compaction is the topic"),
    ("compact the SQL", "compact the SQL"),
    ("/srv/app must stay", "/srv/app must stay"),
    ("/compact up_to", "up_to"),
    ("/compact upto:x", "upto:x"),
    ("/compact from here on", "from here on"),
]


@pytest.mark.parametrize(("text", "instructions"), WHOLE)
def test_the_whole(text: str, instructions: str) -> None:
    assert parse_command(text) == CompactCommand(scope=Scope.WHOLE, uuid="", instructions=instructions)


@pytest.mark.parametrize("scope", [Scope.UP_TO, Scope.FROM])
@pytest.mark.parametrize("word", ["/compact ", "/Compact\n", "", "  "])
class TestParts:
    @pytest.mark.parametrize("uuid", [UUID, "msg:1", "up_to:x", "消息-1", "x" * LONGEST_UUID])
    def test_a_uuid_is_the_clients_own(self, scope: Scope, word: str, uuid: str) -> None:
        assert parse_command(f"{word}{scope}:{uuid}") == CompactCommand(scope=scope, uuid=uuid)

    def test_with_instructions(self, scope: Scope, word: str) -> None:
        found = parse_command(f"{word}{scope}:{UUID} \n keep the SQL ")
        assert found == CompactCommand(scope=scope, uuid=UUID, instructions="keep the SQL")

    def test_a_scope_later_on_is_instructions(self, scope: Scope, word: str) -> None:
        found = parse_command(f"{word}{scope}:{UUID} keep what is from:x and up_to:y")
        assert found.instructions == "keep what is from:x and up_to:y"

    def test_the_case_of_its_word_does_not_matter(self, scope: Scope, word: str) -> None:
        assert parse_command(f"{word}{scope.upper()}:aB") == CompactCommand(scope=scope, uuid="aB")

    @pytest.mark.parametrize("rest", ["", " ", " keep the SQL", "\nx"])
    def test_without_a_uuid(self, scope: Scope, word: str, rest: str) -> None:
        with pytest.raises(CommandError, match=rf"uuid is missing right after {scope}:"):
            parse_command(f"{word}{scope}:{rest}")

    @pytest.mark.parametrize("other", ["up_to:a", "from:a", "up_to:", "FROM:a keep"])
    def test_two_scopes(self, scope: Scope, word: str, other: str) -> None:
        with pytest.raises(CommandError, match="two scopes"):
            parse_command(f"{word}{scope}:{UUID} {other}")

    def test_a_uuid_that_is_too_long(self, scope: Scope, word: str) -> None:
        with pytest.raises(CommandError, match="longer than 128"):
            parse_command(f"{word}{scope}:{'x' * (LONGEST_UUID + 1)}")


@pytest.mark.parametrize("before", ["", "/compact ", "/compact up_to:x "])
def test_length_is_that_of_the_instructions(before: str) -> None:
    assert len(parse_command(before + "重" * LONGEST_INSTRUCTIONS).instructions) == LONGEST_INSTRUCTIONS
    with pytest.raises(CommandError, match="longer than 16,384"):
        parse_command(before + "x" * (LONGEST_INSTRUCTIONS + 1))


@pytest.mark.parametrize("text", ["/compact a\0b", "\0", "/compact up_to:\0", "/compact \udcff"])
def test_what_can_not_be_stored(text: str) -> None:
    with pytest.raises(CommandError, match="can not be stored"):
        parse_command(text)


@pytest.mark.parametrize("text", ["/compact up_to: secret", "/compact up_to:secret from:secret", "secret" * 5_000])
def test_errors_quote_nothing(text: str) -> None:
    with pytest.raises(CommandError) as error:
        parse_command(text)
    assert "secret" not in str(error.value)

"""A slice of `make fuzz`: some generated calls for each operation, every check on, against the served product."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import main

CALLS = 200


@pytest.mark.thorough
def test_generated_calls_are_answered_as_the_document_says() -> None:
    assert main(["--calls", str(CALLS), "--phases", "examples,fuzzing"]) == 0

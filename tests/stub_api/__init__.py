"""A small, strict stand-in for the Messages API on 127.0.0.1: real sockets, plain threads, every request recorded.

`StubApi` is what a test holds; `faults` names the ways in which it can go wrong; `state.State` is what it knows
(models, windows, clock, cache books) and may be changed at any time; `wire` has the bytes, `messages` and `routes` the
answers.
By hand: `python -m tests.stub_api --port 8765`.
"""

from tests.stub_api.answers import Answer, summary_text
from tests.stub_api.faults import COMPACTION_FAULTS, EVERY_FAULT, FAULTS, MODEL_FAULTS, Fault
from tests.stub_api.record import MESSAGES_PATH, Recorded
from tests.stub_api.server import StubApi
from tests.stub_api.state import model

__all__ = [
    "COMPACTION_FAULTS",
    "EVERY_FAULT",
    "FAULTS",
    "MESSAGES_PATH",
    "MODEL_FAULTS",
    "Answer",
    "Fault",
    "Recorded",
    "StubApi",
    "model",
    "summary_text",
]

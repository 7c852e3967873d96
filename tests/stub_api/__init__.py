"""A small, strict stand-in for the Messages API on 127.0.0.1: real sockets, plain threads, every request recorded.

`StubApi` is the server; `faults.FAULTS` names the ways in which it can go wrong; `routes.ROUTES` is what it serves:
another endpoint is one more function there. By hand: `python -m tests.stub_api --port 8765`.
"""

from tests.stub_api.faults import FAULTS, Fault
from tests.stub_api.routes import model
from tests.stub_api.server import Recorded, StubApi

__all__ = ["FAULTS", "Fault", "Recorded", "StubApi", "model"]

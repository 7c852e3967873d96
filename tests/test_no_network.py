"""Tests may talk to this machine only."""

from __future__ import annotations

import socket

import pytest


class TestSockets:
    def test_the_network_is_out_of_reach(self) -> None:
        with socket.socket() as connection, pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
            connection.connect(("192.0.2.1", 80))

    def test_this_machine_is_not(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            pass

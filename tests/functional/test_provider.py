"""A served product with a key: the provider tells the windows of its models, and holds nothing up when it does not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.functional.processes import Served, manage, serving
from tests.stub_api import StubApi, model

WAIT_SECONDS = 40


@pytest.fixture
def stub() -> StubApi:
    return StubApi(models=[model("claude-tomorrow-1", 500_000, 32_000)])


def variables(stub: StubApi) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": "dummy-key", "ANTHROPIC_BASE_URL": stub.url, "no_proxy": "127.0.0.1"}


def key_of(data_dir: Path) -> str:
    manage(data_dir, "migrate", "-v", "0")
    words = manage(data_dir, "create_api_key", "team").split()
    [key] = [word for word in words if word.startswith("cmp_")]
    return key


def post(served: Served, path: str, body: dict[str, str], key: str) -> dict[str, str]:
    import urllib.request

    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(served.address + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        made: dict[str, str] = json.load(answer)
        return made


@pytest.mark.thorough
def test_windows_are_the_providers_soon_after_the_start(tmp_path: Path, stub: StubApi) -> None:
    key = key_of(tmp_path)
    with stub, serving(tmp_path, variables=variables(stub)) as served:
        served.wait_for("Serving")
        session = post(served, "/api/v1/sessions/", {"model": "claude-tomorrow-1"}, key)["id"]
        deadline, state = time.monotonic() + WAIT_SECONDS, {}
        while state.get("window_source") != "models_api":
            assert time.monotonic() < deadline, (state, served.lines, stub.requests)
            time.sleep(0.2)
            state = json.loads(served.get(f"/api/v1/sessions/{session}/token-state/", key=key)[1])
        assert (state["context_window"], state["model_assumed"]) == (500_000, False)
        assert len(stub.requests) == 1


@pytest.mark.thorough
def test_a_provider_that_is_silent_holds_nothing_up(tmp_path: Path, stub: StubApi) -> None:
    key = key_of(tmp_path)
    stub.keep_failing("silent")
    with stub, serving(tmp_path, variables=variables(stub)) as served:
        served.wait_for("Serving")
        deadline = time.monotonic() + WAIT_SECONDS
        while not stub.requests:
            assert time.monotonic() < deadline, served.lines
            time.sleep(0.1)
        session = post(served, "/api/v1/sessions/", {"model": "claude-tomorrow-1"}, key)["id"]
        state = json.loads(served.get(f"/api/v1/sessions/{session}/token-state/", key=key)[1])
        assert state["window_source"] == "assumed"
        assert not any("Traceback" in line for line in served.lines)

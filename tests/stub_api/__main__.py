"""The stub by hand: serves until Ctrl-C and shows what comes in."""

from __future__ import annotations

import argparse

from tests.stub_api import FAULTS, StubApi, model

MODELS = [
    model("claude-opus-5-5", 1_000_000, 128_000),
    model("claude-sonnet-4-5-20250929"),
    model("claude-haiku-4-5-20251001"),
    model("claude-tomorrow-1", 500_000, 32_000),  # one that no table knows
    model("claude-mythos-preview", None, None),  # one whose limits are not told
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.stub_api", description=__doc__)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--fault", choices=sorted(FAULTS), help="every request meets it")
    options = parser.parse_args()
    with StubApi(models=MODELS, port=options.port, page_models=2) as stub:
        stub.keep_failing(options.fault)
        print(f"export ANTHROPIC_API_KEY=stub ANTHROPIC_BASE_URL={stub.url}", flush=True)
        shown = 0
        try:
            while not stub.stopping.wait(0.2):
                for request in stub.requests[shown:]:
                    print(request.method, request.path, request.query or "", flush=True)
                    shown += 1
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()

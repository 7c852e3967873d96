"""The stub by hand: serves until Ctrl-C and shows what comes in.

    python -m tests.stub_api --port 8765 --delay 0.2 --fault 529 --times 2

prints the variables to set for whatever is to talk to it. Without `--fault` it answers every request for a message,
with a summary where one is asked for.
"""

from __future__ import annotations

import argparse

from tests.stub_api import EVERY_FAULT, Recorded, StubApi, model

MODELS = [
    model("claude-opus-5-5", 1_000_000, 128_000),
    model("claude-sonnet-5", 1_000_000, 128_000),
    model("claude-sonnet-4-5-20250929"),
    model("claude-haiku-4-5-20251001"),
    model("claude-tomorrow-1", 500_000, 32_000),  # one that no table knows
    model("claude-mythos-preview", None, None),  # one whose limits are not told
]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stub_api", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--fault", choices=sorted(EVERY_FAULT), help="every request meets it")
    parser.add_argument("--times", type=int, help="only so many requests meet the fault")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between the pieces of a stream")
    options = parser.parse_args()
    with StubApi(models=MODELS, port=options.port, page_models=2, frame_seconds=options.delay) as stub:
        if options.fault and options.times:
            stub.fail(*[options.fault] * options.times)
        else:
            stub.keep_failing(options.fault)
        print(f"export ANTHROPIC_API_KEY=stub ANTHROPIC_BASE_URL={stub.url} no_proxy=127.0.0.1", flush=True)
        shown = 0
        try:
            while not stub.stopping.wait(0.2):
                for request in stub.requests[shown:]:
                    print(_line(request), flush=True)
                    shown += 1
        except KeyboardInterrupt:
            pass


def _line(request: Recorded) -> str:
    parts = [request.method, request.path, request.status, request.fault, request.usage]
    return " ".join(str(part) for part in parts if part is not None)


if __name__ == "__main__":
    main()

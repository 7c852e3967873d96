"""Make calls that are generated from the OpenAPI document, every check on, against a server of its own.

    python -m tests.fuzz [--calls 20000] [--seed N] [--include-path PATH]

Prints what schemathesis finds, and at the end how many calls were made; fails on a finding, and on too few calls.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.functional.processes import ROOT, environment, manage, serving

NOWHERE = "6dcb4a8b-0000-4000-8000-000000000000"
CALLS_AN_EXAMPLE = 1.2  # what an example more in the fuzzing phase makes of calls, an operation
METHODS = {"get", "post", "put", "patch", "delete"}


def with_ids(document: dict[str, Any], *, ids: dict[str, list[str]], victims: dict[str, list[str]]) -> dict[str, Any]:
    """The document whose ids are some that there are, and one that there is not: else every call would be a 404."""
    for address, path in document["paths"].items():
        for method, operation in path.items():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    name = "ended_run_id" if address.endswith("/events/") else parameter["name"]
                    known = (victims if method == "delete" else ids)[name]
                    parameter["schema"] = {"type": "string", "format": "uuid", "enum": [*known, NOWHERE]}
    return document


def operations(document: dict[str, Any]) -> int:
    return sum(method in METHODS for path in document["paths"].values() for method in path)


def seeded(data_dir: Path) -> dict[str, Any]:
    manage(data_dir, "migrate", "--verbosity", "0")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.seed"],
        cwd=ROOT,
        env=environment(data_dir),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def made(output: str) -> int:
    """How many calls the summary tells."""
    found = re.findall(r"([\d,]+) generated", output)
    return int(found[-1].replace(",", "")) if found else 0


def tracebacks(log: list[str]) -> list[str]:
    """What went wrong within the server, each kind (the same error at the same place) once."""
    found: dict[str, str] = {}
    block: list[str] = []
    for line in [*log, "0 end"]:
        if line[:1].isdigit():
            if " ERROR " in "".join(block[:1]):
                found.setdefault("".join(block[-3:] if len(block) > 1 else block[0][24:]), "\n".join(block))
            block = []
        block.append(line)
    return list(found.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--calls", type=int, default=20_000, help="how many calls at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default="examples,coverage,fuzzing,stateful")
    options, more = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        known = seeded(data_dir)
        # Waiting for runs and for events takes as long as it takes; here each call is to be short.
        with serving(data_dir, variables={"COMPACTION_SUMMARIZER": "extractive"}) as served:
            served.wait_for("Serving")
            document = json.loads(served.get("/api/schema/")[1])
            file = data_dir / "openapi.json"
            file.write_text(json.dumps(with_ids(document, ids=known["ids"], victims=known["victims"])))
            examples = int(options.calls / operations(document) / CALLS_AN_EXAMPLE) + 1
            command = [
                *(sys.executable, "-m", "schemathesis.cli", "run", str(file), "--url", served.address),
                *("--header", f"Authorization: Bearer {known['key']}", "--checks", "all"),
                *("--max-examples", str(examples), "--phases", options.phases, "--seed", str(options.seed)),
                *("--request-timeout", "90", "--workers", "2", "--continue-on-failure", "--no-color"),
                *("--generation-database", "none", *more),
            ]
            env = environment(data_dir, SCHEMATHESIS_HOOKS="tests.fuzz.hooks")
            # Its own notes of the run stay in the folder that goes.
            run = subprocess.Popen(command, cwd=data_dir, env=env, stdout=subprocess.PIPE, text=True)
            assert run.stdout is not None
            lines = []
            for line in run.stdout:
                print(line, end="", flush=True)
                lines.append(line)
            code = run.wait()
            errors = tracebacks(served.lines)
    calls = made("".join(lines))
    print(f"{calls:,} calls; exit code {code}; {len(errors)} kinds of errors in the server's log")
    print("\n\n".join(errors))
    return code or int(calls < options.calls) or int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())

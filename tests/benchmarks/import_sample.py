"""Import of a transcript beside the mere parsing of its lines."""

from __future__ import annotations

import json

from tests.benchmarks.measuring import milliseconds, say
from tests.benchmarks.sample import SAMPLE, import_sample


def run() -> None:
    lines = SAMPLE.read_bytes().splitlines()
    parse = min(milliseconds(lambda: [json.loads(line) for line in lines]) for _ in range(3))
    took = min(milliseconds(import_sample) for _ in range(3))
    say("import_sample", ms=round(took), json_loads_alone_ms=round(parse, 1), ratio=round(took / parse, 1))

"""python -m tests.benchmarks [NAME …]: the benchmarks of these names, all without one."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile

NAMES = (
    "flat_cost",
    "import_sample",
    "compact_sample",
    "compaction_overhead",
    "estimator",
    "analysis_100k",
    "clearing_cost",
    "clearing_settings",
)


def main(*, chosen: list[str]) -> int:
    """Exit code: 0, or 2 where a name is unknown."""
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        _open_database(folder=folder)
        for name in chosen or NAMES:
            importlib.import_module(f"tests.benchmarks.{name}").run()
        _close_database()
    return 0


def _open_database(*, folder: str) -> None:
    os.environ["DATA_DIR"] = folder
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _close_database() -> None:
    from django.db import connections

    connections.close_all()


if __name__ == "__main__":
    sys.exit(main(chosen=sys.argv[1:]))

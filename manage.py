#!/usr/bin/env python
"""Django's command-line entry point."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(
            "Django is not installed in this Python. Run `make run`, or install requirements.txt into a venv."
        ) from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

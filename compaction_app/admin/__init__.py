"""The admin site: a module per page. Reads through selectors and models, writes through actions."""

from compaction_app.admin import (
    api_keys,
    boundaries,
    decisions,
    failures,
    hooks,
    imports,
    runs,
    sessions,
    teams,
    telemetry,
    users,
)

__all__ = [
    "api_keys",
    "boundaries",
    "decisions",
    "failures",
    "hooks",
    "imports",
    "runs",
    "sessions",
    "teams",
    "telemetry",
    "users",
]

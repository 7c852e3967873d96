"""Reading environment variables strictly: a bad value stops the start with one line that says what is allowed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import environ

TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class BadSetting(SystemExit):
    """Ends the process with exit code 2 and one line on standard error."""

    def __init__(self, *, name: str, value: str, allowed: str) -> None:
        self.line = f"{name}={value!r}: allowed is {allowed}"
        super().__init__(self.line)


def text(*, name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def switch(*, name: str, default: bool) -> bool:
    value = text(name=name)
    if not value:
        return default
    if value.lower() not in TRUE + FALSE:
        raise BadSetting(name=name, value=value, allowed=f"one of {', '.join(TRUE + FALSE)}")
    return value.lower() in TRUE


def integer(*, name: str, low: int, high: int) -> int | None:
    """The whole number in the variable, None where it is not set."""
    value = text(name=name)
    if not value:
        return None
    try:
        number = int(value)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise BadSetting(name=name, value=value, allowed=f"a whole number from {low} to {high}")
    return number


def choice(*, name: str, default: str, allowed: Collection[str]) -> str:
    value = text(name=name, default=default)
    if value not in allowed:
        raise BadSetting(name=name, value=value, allowed=f"one of {', '.join(allowed)}")
    return value


def figures(*, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of the policy table whose variables are set: name -> value, within the table's own bounds.

    `table`: figure name -> its metadata (sessions_app/figures.py).
    """
    found: dict[str, Any] = {}
    for name, of in table.items():
        variable = of["env"]
        if not variable:
            continue
        if variable.startswith("!"):
            value: Any = False if switch(name=variable[1:], default=False) else None
        elif of["kind"] == "switch":
            value = switch(name=variable, default=True) if text(name=variable) else None
        elif of["kind"] == "choice":
            value = choice(name=variable, default="", allowed=of["choices"]) if text(name=variable) else None
        else:
            value = integer(name=variable, low=of["low"], high=of["high"])
        if value is not None:
            found[name] = value
    return found


def url(*, name: str, schemes: Collection[str]) -> str:
    """The URL in the variable, "" where it is not set."""
    value = text(name=name)
    if value and value.partition("://")[0] not in schemes:
        raise BadSetting(name=name, value="(not shown)", allowed=f"a URL that begins with {' or '.join(schemes)}://")
    return value


def make_folder(*, name: str, folder: Path) -> None:
    """Make a folder that must be writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise BadSetting(name=name, value=str(folder), allowed="a folder that can be made and written to")


def listing(*, name: str, default: list[str]) -> list[str]:
    value = text(name=name)
    return [part.strip() for part in value.split(",") if part.strip()] if value else default


def database(*, name: str, default_file: Path) -> dict[str, Any]:
    """Django's DATABASES entry from a URL; an SQLite file where the variable is not set."""
    value = text(name=name, default=f"sqlite:///{default_file}")
    if value.partition("://")[0] not in ("sqlite", "postgres", "postgresql", "pgsql"):
        raise BadSetting(name=name, value="(not shown)", allowed="a postgres:// or sqlite:// URL")
    try:
        config: dict[str, Any] = dict(environ.Env.db_url_config(value))
    except Exception as error:  # the library raises several kinds for a malformed URL
        raise BadSetting(
            name=name, value="(not shown)", allowed="a URL such as postgres://user:password@host:5432/name"
        ) from error
    engine = config.get("ENGINE", "")
    if engine == "django.db.backends.sqlite3":
        # Measured: without WAL and IMMEDIATE, concurrent writers get "database is locked" (docs/architecture.md).
        config["OPTIONS"] = {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;",
        }
    elif engine == "django.db.backends.postgresql":
        config["CONN_MAX_AGE"] = 0  # must be 0 with a pool
        config["OPTIONS"] = {**config.get("OPTIONS", {}), "pool": {"min_size": 1, "max_size": 10, "timeout": 10}}
    else:
        raise BadSetting(name=name, value="(not shown)", allowed="a postgres:// or sqlite:// URL")
    return config


def secret(*, name: str, file: Path) -> str:
    """The variable, or a secret that is made once and kept in `file`, readable by its owner only."""
    value = text(name=name)
    if value:
        return value
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        made = secrets.token_urlsafe(50)
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # another process was faster
            return file.read_text().strip()
        with os.fdopen(descriptor, "w") as out:
            out.write(made)
        return made

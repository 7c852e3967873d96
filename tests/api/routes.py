"""The routes of the API, read from the URL conf, so that a new one can not be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compaction_app.api import urls
from tests.cast import BASE

# Query parameters without which a call is refused.
NEEDED = {"search/": "?q=e"}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Route:
    pattern: str
    parameters: tuple[str, ...]
    methods: tuple[str, ...]

    def path(self, **ids: object) -> str:
        """Raises KeyError for a parameter that the test has no id for: give it one."""
        found = self.pattern
        for name in self.parameters:
            found = found.replace(f"<uuid:{name}>", str(ids[name]))
        assert "<" not in found, f"a parameter of another kind: {found}"
        return BASE + found + NEEDED.get(self.pattern, "")


def routes() -> Iterator[Route]:
    for entry in urls.v1:
        view = entry.callback.view_class
        yield Route(
            pattern=str(entry.pattern),
            parameters=tuple(entry.pattern.converters),
            methods=tuple(method for method in METHODS if hasattr(view, method.lower())),
        )


CALLS = [(route, method) for route in routes() for method in route.methods]
IDS = [f"{method} {route.pattern}" for route, method in CALLS]

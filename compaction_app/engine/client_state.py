"""What a client has told of its state, as a value: what a compaction may restore that the history does not show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Named:
    """A tool, an agent or an MCP server: its name, and the text that describes or instructs; "" where there is none."""

    name: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    content: str


@dataclass(frozen=True, slots=True)
class StateValue:
    """State as of now. `files`: newest contents by path; files and skills: those used most recently first.

    `plan`: "" where none was told; `plan_approved`: None where the client does not say. `declared_tools`: names of the
    tools that the request itself declares.
    """

    plan: str = ""
    plan_approved: bool | None = None
    plan_mode: bool = False
    skills: tuple[Skill, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[Named, ...] = ()
    agents: tuple[Named, ...] = ()
    mcp_instructions: tuple[Named, ...] = ()
    declared_tools: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, raw: object, *, declared: object = None) -> StateValue:
        """Read a body of `state/`, and the tool definitions of the request. What is not understood is left out."""
        state: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        plan = state.get("plan")
        told = plan if isinstance(plan, Mapping) else {"content": plan}
        approved = told.get("approved")
        return cls(
            plan=_text(told.get("content")),
            plan_approved=approved if isinstance(approved, bool) else None,
            plan_mode=state.get("plan_mode") is True,
            skills=tuple(Skill(name, text) for name, text in _pairs(state.get("skills"), ("name",), ("content",))),
            files=dict(_pairs(state.get("files"), ("path",), ("content",))),
            tools=_named(state.get("tools"), texts=("description",)),
            agents=_named(state.get("agents"), texts=("description",)),
            mcp_instructions=_named(state.get("mcp_instructions"), texts=("instructions",)),
            declared_tools=frozenset(tool.name for tool in _named(declared, texts=())),
        )


def _named(raw: object, *, texts: Sequence[str]) -> tuple[Named, ...]:
    """Each name once; the first that is told of it stands."""
    found: dict[str, str] = {}
    for name, text in _pairs(raw, ("name", "server"), texts):
        found.setdefault(name, text)
    return tuple(Named(name, text) for name, text in found.items())


def _pairs(raw: object, keys: Iterable[str], texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        return
    for item in raw:
        if isinstance(item, str) and item:
            yield item, ""
        elif isinstance(item, Mapping):
            name = next((item[key] for key in keys if isinstance(item.get(key), str) and item[key]), "")
            if name:
                yield name, next((item[key] for key in texts if isinstance(item.get(key), str)), "")


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.strip() else ""

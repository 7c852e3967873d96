"""Tools, agents and MCP instructions that the model knew of and the request does not declare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compaction_app.engine.attachments.calls import Call, told_in
from compaction_app.engine.attachments.fitting import Purse, fit, one_line, quoted
from compaction_app.engine.client_state import Named, StateValue
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.messages import Message

# Arguments by which a call names the agent that it starts.
AGENT_KEYS = ("subagent_type", "agent")


def delta_attachments(
    *, calls: Sequence[Call], tail: Sequence[Message], state: StateValue, policy: Policy, purse: Purse
) -> Iterator[AttachmentValue]:
    """One attachment for each list that has anything to add, each within its own budget."""
    told = told_in(tail)
    of_tail = [call for call in calls if call.in_tail]
    called = {call.name for call in of_tail} | state.declared_tools
    agents = {call.argument(*AGENT_KEYS) for call in of_tail}
    tools_left = [tool for tool in state.tools if tool.name not in called and not _tells(told, tool.name)]
    agents_left = [agent for agent in state.agents if agent.name not in agents and not _tells(told, agent.name)]
    servers_left = [server for server in state.mcp_instructions if _adds(told, server)]
    for kind, label, added, units in (
        ("tools_delta", "Tools that can be had beside those of the request", tools_left, _lines(tools_left)),
        ("agents_delta", "Agents that can be started", agents_left, _lines(agents_left)),
        ("mcp_instructions_delta", "What MCP servers say of their use", servers_left, _sections(servers_left)),
    ):
        most = policy.attached_delta_tokens
        fitted = fit(kind=kind, label=label, units=units, unit="entries", payload={}, purse=purse, most=most, least=0)
        if fitted:
            payload = {"added": [one.name for one in added[: fitted.kept]], **fitted.value.payload}
            yield AttachmentValue(kind=kind, text=fitted.value.text, payload=payload, tokens=fitted.value.tokens)


def _tells(told: str, name: str) -> bool:
    """Whether the tail's text names it, as a whole word."""
    return name in told and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", told) is not None


def _adds(told: str, server: Named) -> bool:
    return bool(server.text.strip()) and server.text.strip() not in told


def _lines(entries: Sequence[Named]) -> list[str]:
    return [f"- {one_line(e.name)}{f': {one_line(e.text)}' if e.text.strip() else ''}" for e in entries]


def _sections(entries: Sequence[Named]) -> list[str]:
    return [f"[{one_line(e.name)}]\n{quoted(e.text.strip())}" for e in entries]

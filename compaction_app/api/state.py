"""sessions/{id}/state/: what a client tells of its state, so that a compaction can restore it (S15)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import BodyTooLarge
from compaction_app.api.fields import Json, StrictSerializer, Switch, Untouched
from compaction_app.api.schema import error
from compaction_app.models import ClientState

# Far above what a restored context could hold (the policy's attached_* figures), so that no honest client meets them.
MOST_BYTES = 8 * 1024 * 1024
MOST_FILES, MOST_SKILLS, MOST_NAMES = 200, 200, 2_000
LONGEST_PATH, LONGEST_NAME = 4_096, 300

TEXT = {"type": "string"}
NAMED = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"name": TEXT}, "required": ["name"], "additionalProperties": True},
    ]
}
EMPTY: dict[str, Any] = {
    "plan": None,
    "plan_mode": False,
    "skills": [],
    "files": [],
    "tools": [],
    "agents": [],
    "mcp_instructions": [],
}
EXAMPLE = {
    "plan": {"content": "1. Find the login form.\n2. Fix its redirect.", "approved": True},
    "plan_mode": False,
    "skills": [{"name": "deploy", "content": "How this project is deployed: …"}],
    "files": [{"path": "/srv/login.py", "content": "def login(): ...\n"}],
    "tools": ["WebFetch", {"name": "mcp__tickets__search", "description": "Searches the tickets."}],
    "agents": [{"name": "reviewer", "description": "Reviews a change."}],
    "mcp_instructions": [{"name": "tickets", "instructions": "Search before making a ticket."}],
}
STATE_TOO_LARGE = error(
    "The state is larger than 8 MiB, or the body larger than 64 MiB.",
    code="body_too_large",
    detail="The state is larger than 8,388,608 bytes.",
)


class ExactText(Untouched):
    """A JSON string to the letter: it is kept in a column that takes NUL and lone surrogates."""

    default_error_messages = {
        "invalid": "A string is needed.",
        "blank": "It may not be blank.",
        "max_length": "At most {limit:,} characters are allowed.",
    }

    def __init__(self, *, most: int | None = None, blank: bool = True, **options: Any) -> None:
        self.most, self.blank = most, blank
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if not self.blank and not data.strip():
            self.fail("blank")
        if self.most is not None and len(data) > self.most:
            self.fail("max_length", limit=self.most)
        return data


class Plan(StrictSerializer):
    content = ExactText(help_text="The plan.")
    approved = Switch(
        required=False, allow_null=True, help_text="Whether the user has approved it; null or left out: not told."
    )

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value({"content": data} if isinstance(data, str) else data)


class GivenFile(StrictSerializer):
    """A file as the client has it."""

    path = ExactText(most=LONGEST_PATH, blank=False, help_text="As the tools' calls name it.")
    content = ExactText(help_text="All of it, as it is now.")


class GivenSkill(StrictSerializer):
    """A skill that was used."""

    name = ExactText(most=LONGEST_NAME, blank=False, help_text="Its name.")
    content = ExactText(help_text="The text that the model was shown.")


class GivenTool(serializers.Serializer[Any]):
    """A tool: its name alone, or its definition as the Messages API has it."""

    name = ExactText(most=LONGEST_NAME, blank=False, help_text="Its name.")
    description = ExactText(required=False, allow_null=True, help_text="What it does.")

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value({"name": data} if isinstance(data, str) else data)


class GivenAgent(StrictSerializer):
    """An agent: its name alone, or with what it is for."""

    name = ExactText(most=LONGEST_NAME, blank=False, help_text="Its name.")
    description = ExactText(required=False, allow_null=True, help_text="What it is for.")

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value({"name": data} if isinstance(data, str) else data)


class GivenInstructions(StrictSerializer):
    """What an MCP server says of its use."""

    name = ExactText(most=LONGEST_NAME, blank=False, required=False, help_text="The server's name.")
    server = ExactText(most=LONGEST_NAME, blank=False, required=False, help_text="The same by another name.")
    instructions = ExactText(help_text="Its instructions.")

    def validate(self, attrs: Any) -> Any:
        if ("name" in attrs) == ("server" in attrs):
            raise serializers.ValidationError({"name": "Name the server, once."}, code="required")
        return attrs


class Entries(serializers.ListField):
    """A list of these; `key`: what no two of them share."""

    def __init__(self, *, key: str = "", **options: Any) -> None:
        self.key, self.most = key, options["max_length"]
        super().__init__(**{"required": False, "allow_null": True, **options})

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, list) and len(data) > self.most:
            # Before each entry is looked at: an answer must not tell what is wrong with a million of them.
            message = f"At most {self.most:,} entries are allowed."
            raise serializers.ValidationError(message, code="max_length")
        entries = super().to_internal_value(data)
        seen: set[str] = set()
        for number, entry in enumerate(entries if self.key else ()):
            if entry[self.key] in seen:
                message = f"Another entry has this {self.key} already."
                problem = serializers.ErrorDetail(message, code="duplicate")
                raise serializers.ValidationError({str(number): {self.key: [problem]}})
            seen.add(entry[self.key])
        return entries


class NewState(StrictSerializer):
    """The state as a whole; what is left out is empty. Files and skills: used most recently first."""

    plan = Plan(required=False, allow_null=True, help_text="The plan: a string or an object.")
    plan_mode = Switch(required=False, help_text="Whether the session is in plan mode now.")
    skills = Entries(child=GivenSkill(), key="name", max_length=MOST_SKILLS, help_text="Skills that were used.")
    files = Entries(child=GivenFile(), key="path", max_length=MOST_FILES, help_text="Newest contents by path.")
    tools = Entries(child=GivenTool(), max_length=MOST_NAMES, help_text="Tools that can be had: names or objects.")
    agents = Entries(child=GivenAgent(), max_length=MOST_NAMES, help_text="Agents: names or objects.")
    mcp_instructions = Entries(child=GivenInstructions(), max_length=MOST_NAMES, help_text="Of MCP servers.")


@extend_schema_field(
    {
        "oneOf": [
            TEXT,
            {
                "type": "object",
                "properties": {"content": TEXT, "approved": {"type": "boolean", "nullable": True}},
                "required": ["content"],
            },
        ],
        "nullable": True,
    }
)
class PlanAsGiven(Json):
    pass


@extend_schema_field({"type": "array", "items": NAMED})
class NamesAsGiven(Json):
    pass


@extend_schema_field({"type": "array", "items": {"type": "object", "additionalProperties": True}})
class ObjectsAsGiven(Json):
    pass


class StateBody(serializers.Serializer[Any]):
    """The state as it was given last; empty where it never was."""

    plan = PlanAsGiven(help_text="The plan, as given; null: none.")
    plan_mode = serializers.BooleanField(help_text="Whether the session is in plan mode.")
    skills = ObjectsAsGiven(help_text="Skills that were used.")
    files = ObjectsAsGiven(help_text="Newest contents by path.")
    tools = NamesAsGiven(help_text="Tools that can be had.")
    agents = NamesAsGiven(help_text="Agents that can be started.")
    mcp_instructions = ObjectsAsGiven(help_text="Of MCP servers.")
    updated_at = serializers.DateTimeField(allow_null=True, help_text="When it was given; null: never.")


def _shown(row: ClientState | None) -> Any:
    given = {name: value for name, value in (row.state if row else {}).items() if value is not None}
    return StateBody({**EMPTY, **given, "updated_at": row.updated_at if row else None}).data


class StateView(ApiView):
    @extend_schema(summary="What the client has told of its state", responses=StateBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        return Response(_shown(selectors.client_state(session=self.session(session_id))))

    @extend_schema(
        summary="Tell the client's state",
        description="What a compaction restores after its summary: plan mode, the plan, files, skills, and tools, "
        "agents and MCP instructions that the request itself does not declare. Replaces what was told before; a "
        "compaction uses what was told last when it runs, and its boundary keeps that.",
        request=NewState,
        responses={200: StateBody, 413: STATE_TOO_LARGE},
        examples=[OpenApiExample("a state", value=EXAMPLE, request_only=True)],
    )
    def put(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        if len(json.dumps(request.data, ensure_ascii=False).encode("utf-8", "surrogatepass")) > MOST_BYTES:
            raise BodyTooLarge(f"The state is larger than {MOST_BYTES:,} bytes.")
        self.body(NewState)
        given = dict(request.data)
        return Response(_shown(actions.put_state(session=session, state=given, now=timezone.now())))

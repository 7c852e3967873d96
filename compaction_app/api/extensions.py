"""What the OpenAPI document can't read off our serializers and fields by itself."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension

from compaction_app.api.figures import figure_schema

NOT_BLANK = r"\S"


def _text(field: Any) -> dict[str, Any]:
    """What an ExactText takes."""
    found: dict[str, Any] = {"type": "string"}
    if not field.blank:
        found |= {"minLength": 1, "pattern": NOT_BLANK}
    return found if field.most is None else {**found, "maxLength": field.most}


class StrictExtension(OpenApiSerializerExtension):
    """What is not a field is refused."""

    target_class = "compaction_app.api.fields.StrictSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        self.target.partial = self.target.partial and not self.target.is_whole
        schema: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        if not type(self.target).__doc__:
            schema.pop("description", None)  # that of the class above, which is about the code
        return {**schema, "additionalProperties": False}


class _NameOrObject(OpenApiSerializerExtension):
    """A text stands for an object that has nothing else."""

    priority = 1
    strict = True
    alone = "name"  # the field that the text is

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        if self.strict:
            schema = {**schema, "additionalProperties": False}
        return {"oneOf": [_text(self.target.fields[self.alone]), schema]}


class PlanExtension(_NameOrObject):
    target_class = "compaction_app.api.state.Plan"
    alone = "content"


class AgentExtension(_NameOrObject):
    target_class = "compaction_app.api.state.GivenAgent"


class ToolExtension(_NameOrObject):
    target_class = "compaction_app.api.state.GivenTool"
    strict = False


class InstructionsExtension(OpenApiSerializerExtension):
    """The server has one of two names, and not both."""

    target_class = "compaction_app.api.state.GivenInstructions"
    priority = 1

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        either = [{"required": ["name"]}, {"required": ["server"]}]
        return {**schema, "additionalProperties": False, "oneOf": either}


class ExactTextExtension(OpenApiSerializerFieldExtension):
    target_class = "compaction_app.api.state.ExactText"

    def map_serializer_field(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        return _text(self.target)


class FigureExtension(OpenApiSerializerFieldExtension):
    target_class = "compaction_app.api.fields.Figure"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        told = figure_schema(name=str(self.target.field_name))
        return {key: value for key, value in told.items() if key != "description"}

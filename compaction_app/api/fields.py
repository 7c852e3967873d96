"""Serializer fields and the strict serializer: what is not understood is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from compaction_app.api.figures import all_figures
from sessions_app import policy
from sessions_app.figures import PolicyError

LONGEST_TOLD = 100  # characters of a name that is none of ours
LARGEST_COUNT = 100_000_000  # tokens; the columns that add counts up hold 2,147,483,647


class Described:
    """Mixed into a serializer: what each field means, in one table, for the OpenAPI document."""

    meanings: ClassVar[Mapping[str, str]] = {}

    def get_fields(self) -> Any:
        fields = super().get_fields()  # type: ignore[misc]
        for name, meaning in self.meanings.items():
            fields[name].help_text = meaning
        return fields


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know. `refused`: known names that can't be taken, with code and reason."""

    refused: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # A PATCH that needs what the others need; the OpenAPI document would leave it open.
    is_whole: ClassVar[bool] = False

    def to_internal_value(self, data: Any) -> Any:
        problems: dict[str, Any] = {}
        if isinstance(data, Mapping):
            problems = {
                str(name)[:LONGEST_TOLD]: [self._refusal(str(name))] for name in data if name not in self.fields
            }
        try:
            value = super().to_internal_value(data)
        except ValidationError as error:
            if not isinstance(error.detail, dict):
                raise
            problems = {**error.detail, **problems}
        if problems:
            raise ValidationError(problems)
        return value

    def _refusal(self, name: str) -> ErrorDetail:
        code, reason = self.refused.get(name, ("unknown_field", "There is no such field."))
        return ErrorDetail(reason, code=code)


class NoFields(StrictSerializer):
    """The body of a call that takes none: empty, or `{}`."""


# The same for the OpenAPI document, which leaves out the bodies of serializers without fields.
NO_FIELDS = {"application/json": {"type": "object", "additionalProperties": False}}


class PlainText(serializers.CharField):
    """A JSON string as it is: nothing is trimmed, numbers are no strings; NUL and lone surrogates are refused."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Switch(serializers.BooleanField):
    """JSON's true or false; REST framework's own takes "yes" and 1 too, and what a client means by them is a guess."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Number(serializers.FloatField):
    """A JSON number; REST framework's own takes true for 1, and strings."""

    def to_internal_value(self, data: Any) -> Any:
        if type(data) not in (int, float):
            self.fail("invalid")
        return data  # as it is: a whole number may be too large for a float, and its bounds are looked at next


class WholeNumber(serializers.IntegerField):
    """A JSON number without a fraction; REST framework's own takes strings, too."""

    def to_internal_value(self, data: Any) -> Any:
        if type(data) is not int:
            self.fail("invalid")
        return data


class Untouched(serializers.Field[Any, Any, Any, Any]):
    """What is given back as it is stored; what it may be, a subclass says."""

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field(OpenApiTypes.ANY)
class Json(Untouched):
    """Any JSON value, passed through untouched (for output)."""

    def to_internal_value(self, data: Any) -> Any:
        return data


@extend_schema_field(OpenApiTypes.OBJECT)
class JsonObject(Json):
    default_error_messages = {"invalid": "A JSON object is needed."}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            self.fail("invalid")
        return data


_BLOCKS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"type": {"type": "string", "minLength": 1}},
        "required": ["type"],
        "additionalProperties": True,
    },
}


@extend_schema_field({"oneOf": [{"type": "string"}, _BLOCKS]})
class Blocks(Json):
    """A string, or a list of content blocks as the Messages API has them; unknown blocks and keys are kept."""

    default_error_messages = {
        "invalid": "A string or a list of content blocks is needed.",
        "block": 'Block {index} is not an object with a string "type".',
    }

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str):
            return data
        if not isinstance(data, list):
            self.fail("invalid")
        for index, block in enumerate(data):
            if not isinstance(block, dict) or not isinstance(block.get("type"), str) or not block["type"]:
                self.fail("block", index=index)
        return data


@extend_schema_field({"type": "array", "items": {"type": "object", "additionalProperties": True}})
class JsonObjects(Json):
    default_error_messages = {"invalid": "A list of JSON objects is needed."}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            self.fail("invalid")
        return data


@extend_schema_field(OpenApiTypes.OBJECT)
class UsageObject(JsonObject):
    """`usage` of an API response. Counts may be missing or null, other keys are kept."""

    default_error_messages = {
        "count": "{name} must be a whole number from 0 to " + f"{LARGEST_COUNT:,}, null, or left out.",
    }
    counts = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

    def to_internal_value(self, data: Any) -> Any:
        usage = super().to_internal_value(data)
        for name in self.counts:
            count = usage.get(name)
            if count is not None and (type(count) is not int or not 0 <= count <= LARGEST_COUNT):
                self.fail("count", name=name)
        return usage


class Figure(Untouched):
    """A figure of the policy table, checked by the table. Null: not overridden."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "allow_null": True, **options})

    def to_internal_value(self, data: Any) -> Any:
        try:
            return policy.check(name=str(self.field_name), value=data)
        except PolicyError as error:
            raise ValidationError(str(error)[:500]) from None


@extend_schema_field(all_figures())
class Figures(Json):
    """Figures of the policy table by name, each checked by the table; null clears one."""

    default_error_messages = {"invalid": 'An object is needed, such as {{"time_based_idle_ms": 600000}}.'}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            self.fail("invalid")
        found, problems = {}, {}
        for name, value in data.items():
            try:
                found[name] = None if value is None and name in policy.FIGURES else policy.check(name=name, value=value)
            except PolicyError as error:
                problems[name[:100]] = [str(error)[:500]]
        if problems:
            raise ValidationError(problems)
        return found


class WholeFigure(Figure):
    pass


class SwitchFigure(Figure):
    pass

"""Columns for what clients and tools say: JSON that comes back exactly, and text that every database takes."""

from __future__ import annotations

import json
import re
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def dump_json(value: object) -> str:
    """Compact JSON in the given key order. Raises ValueError for NaN and infinities, which JSON does not have.

    NUL is escaped by JSON itself; a lone surrogate, which UTF-8 can't hold, makes the whole text ASCII with escapes.
    Both decode to the same value.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if _SURROGATE.search(text):
        text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text


def storable_text(value: str) -> str:
    """Text for a plain column: NUL and lone surrogates, which PostgreSQL refuses, become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", value)


class StorableTextField(models.TextField):
    """Text in which a tool's name or words may stand: whatever comes, what is written is `storable_text`.

    A refusal by the database would undo what the text only tells of.
    """

    def get_prep_value(self, value: Any) -> Any:
        prepared = super().get_prep_value(value)
        return storable_text(prepared) if isinstance(prepared, str) else prepared


class ExactJSONField(models.TextField):
    """JSON kept as text.

    Django's JSONField is `jsonb` on PostgreSQL, which refuses NUL characters and lone surrogates, reorders keys and
    rewrites numbers; tool output contains the first two, and signed blocks must come back byte for byte.
    """

    # For django-stubs: what an attribute of this kind takes and gives.
    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, expression: object, connection: object) -> Any:
        return None if value is None else json.loads(value)

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else dump_json(value)

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        return dump_json(self.value_from_object(obj))

    def validate(self, value: Any, model_instance: models.Model | None) -> None:
        try:
            dump_json(value)
        except (TypeError, ValueError) as error:
            raise ValidationError("This is not JSON: %(error)s", params={"error": error}) from error

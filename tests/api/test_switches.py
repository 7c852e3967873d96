"""Booleans of request bodies: JSON's true and false, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from compaction_app.api import urls  # loads every view, and so every serializer
from compaction_app.api.fields import StrictSerializer, SwitchFigure
from compaction_app.models import CompactionRun, Hook
from sessions_app.models import Message, Session
from tests.cast import Api, errors
from tests.factories import append, turns

LOOKALIKES = ["yes", "no", "true", "false", "on", "", 1, 0, 1.0, "1", [], {}]


def subclasses(found: type[Any]) -> Iterator[type[Any]]:
    for one in found.__subclasses__():
        yield one
        yield from subclasses(one)


def switches(given: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, field in given.fields.items():
        inner = getattr(field, "child", field)
        if isinstance(inner, serializers.BaseSerializer):
            yield from switches(inner, f"{path}.{name}")
        elif isinstance(inner, serializers.BooleanField | SwitchFigure):
            yield f"{path}.{name}", inner


def every_switch() -> dict[str, Any]:
    assert urls.v1
    bodies = {
        one.__name__: one() for one in subclasses(StrictSerializer) if one.__module__.startswith("compaction_app")
    }
    return {path: field for name, body in bodies.items() for path, field in switches(body, name)}


def test_all_are_found() -> None:
    assert {path.rpartition(".")[2] for path in every_switch()} == {
        "approved",
        "auto_compact_enabled",
        "can_block",
        "dry_run",
        "enabled",
        "is_meta",
        "plan_mode",
        "required",
    }


@pytest.mark.parametrize("path", sorted(every_switch()))
def test_each_takes_true_and_false_alone(path: str) -> None:
    field = every_switch()[path]
    assert [field.run_validation(value) for value in (True, False)] == [True, False]
    for value in LOOKALIKES:
        with pytest.raises(ValidationError):
            field.run_validation(value)


@pytest.mark.django_db
class TestOverHttp:
    @pytest.mark.parametrize("value", LOOKALIKES)
    def test_a_dry_run_is_never_a_guess(self, api: Api, session: Session, value: Any) -> None:
        append(session, *turns(4))
        answer = api.send(f"sessions/{session.uuid}/compact/", {"dry_run": value})
        assert (answer.status_code, errors(answer)) == (400, [("invalid", "dry_run")])
        assert not CompactionRun.objects.exists()

    def test_the_others(self, api: Api, session: Session) -> None:
        answer = api.send(f"sessions/{session.uuid}/messages/", {"role": "user", "content": "x", "is_meta": "no"})
        assert errors(answer) == [("invalid", "is_meta")]
        answer = api.send("hooks/", {"event": "pre_compact", "url": "https://a.example.com/", "can_block": "yes"})
        assert errors(answer) == [("invalid", "can_block")]
        assert not Message.objects.filter(session=session).exists()
        assert not Hook.objects.exists()

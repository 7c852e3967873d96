"""Booleans and numbers of request bodies: JSON's own, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from compaction_app.api import urls  # loads every view, and so every serializer
from compaction_app.api.fields import Number, StrictSerializer, SwitchFigure, WholeNumber
from compaction_app.models import CompactionRun, Hook
from sessions_app.models import Message, Session
from tests.cast import Api, errors
from tests.factories import append, turns

LOOKALIKES = ["yes", "no", "true", "false", "on", "", 1, 0, 1.0, "1", [], {}]
# Where null says something: a figure is not overridden; the client does not tell (nulls of a message are nothing).
NULL_MEANS_SOMETHING = {"SessionChange.auto_compact_enabled", "NewSession.auto_compact_enabled"}
NULL_IS_NOT_TOLD = {"Plan.approved", "NewState.plan.approved", "NewMessage.is_meta"}


def subclasses(found: type[Any]) -> Iterator[type[Any]]:
    for one in found.__subclasses__():
        yield one
        yield from subclasses(one)


def leaves(given: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, field in given.fields.items():
        inner = getattr(field, "child", field)
        if isinstance(inner, serializers.BaseSerializer):
            yield from leaves(inner, f"{path}.{name}")
        else:
            yield f"{path}.{name}", inner


def every_field(*kinds: type[Any]) -> dict[str, Any]:
    assert urls.v1
    bodies = {
        one.__name__: one() for one in subclasses(StrictSerializer) if one.__module__.startswith("compaction_app")
    }
    found = (pair for name, body in bodies.items() for pair in leaves(body, name))
    return {path: field for path, field in found if isinstance(field, kinds)}


def every_switch() -> dict[str, Any]:
    return every_field(serializers.BooleanField, SwitchFigure)


def every_number() -> dict[str, Any]:
    return every_field(serializers.IntegerField, serializers.FloatField, serializers.DecimalField)


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


@pytest.mark.parametrize("path", sorted(every_switch()))
def test_null_is_refused_where_it_means_nothing(path: str) -> None:
    field = every_switch()[path]
    if path in NULL_MEANS_SOMETHING | NULL_IS_NOT_TOLD:
        assert field.run_validation(None) is None
        return
    with pytest.raises(ValidationError) as refused:
        field.run_validation(None)
    assert refused.value.get_codes() == ["null"]


def test_all_numbers_are_found() -> None:
    found = {path.rpartition(".")[2]: type(field) for path, field in every_number().items()}
    assert found == {"wait": Number, "timeout": WholeNumber}


@pytest.mark.parametrize("path", sorted(every_number()))
def test_each_takes_numbers_alone(path: str) -> None:
    field = every_number()[path]
    assert field.run_validation(1) == 1
    for value in (True, False, "1", "", "nan", [], {}):
        with pytest.raises(ValidationError) as refused:
            field.run_validation(value)
        assert refused.value.get_codes() == ["invalid"]
    with pytest.raises(ValidationError) as refused:
        field.run_validation(10**400)
    assert refused.value.get_codes() == ["max_value"]


@pytest.mark.parametrize("value", [0.5, 60, 0])
def test_a_fraction_is_a_number_but_not_a_whole_one(value: float) -> None:
    assert Number().run_validation(value) == value
    with pytest.raises(ValidationError):
        WholeNumber().run_validation(float(value))


@pytest.mark.django_db
class TestOverHttp:
    def test_null_is_no_dry_run(self, api: Api, session: Session) -> None:
        append(session, *turns(4))
        answer = api.send(f"sessions/{session.uuid}/compact/", {"dry_run": None})
        assert (answer.status_code, errors(answer)) == (400, [("null", "dry_run")])
        assert not CompactionRun.objects.exists()

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

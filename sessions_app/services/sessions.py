"""Making and changing sessions (not their history)."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction

from sessions_app import selectors
from sessions_app.catalog import tokenizer_family
from sessions_app.models import Session, Team
from sessions_app.services import accounting
from sessions_app.services.append import lock_session
from sessions_app.transcript.tokens import estimate_json


def create_session(*, team: Team, values: dict[str, Any]) -> tuple[Session, bool]:
    """Make a session of the team. With an `external_id` that the team has already, that session is given back."""
    external_id = values.get("external_id")
    if external_id:
        existing = Session.objects.for_team(team).filter(external_id=external_id).first()
        if existing:
            return existing, False
    session = Session(team=team, **values)
    session.policy_overrides = _laid(over={}, changes=session.policy_overrides)
    session.overhead_tokens = session.given_overhead_tokens = _overhead(session)
    accounting.settle(session=session)
    try:
        with transaction.atomic():
            session.save()
    except IntegrityError:  # two requests at once with one external_id
        return Session.objects.for_team(team).get(external_id=external_id), False
    return session, True


def update_session(*, session: Session, values: dict[str, Any]) -> Session:
    """Change title, model, system, tools, metadata; overrides are laid over those that are there, None clearing one.

    Size and level are those of the changed session at once.
    """
    with transaction.atomic():
        row = lock_session(session_id=session.pk)
        model = row.model
        for name, value in values.items():
            if name == "policy_overrides":
                value = _laid(over=row.policy_overrides, changes=value)
            setattr(row, name, value)
        if {"system", "tools", "model"} & set(values):
            accounting.recount_overhead(session=row, given_tokens=_overhead(row))
        if row.model != model:
            row.calibration = None
        if tokenizer_family(row.model) == tokenizer_family(model):
            accounting.settle(session=row)
        else:
            # Placeholders and later messages are priced by the model's tokenizer.
            accounting.recount_view(session=row, view=selectors.context_view(session=row))
        row.save()
    return row


def _laid(*, over: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**over, **changes}.items() if value is not None}


def _overhead(session: Session) -> int:
    """Estimate of system prompt and tools, until a usage tells."""
    family = tokenizer_family(session.model)
    parts = [part for part in (session.system, session.tools) if part]
    return sum(estimate_json(value=part, family=family) for part in parts)

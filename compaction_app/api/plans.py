"""The answer of a dry run: the plan of a compaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from compaction_app.actions import Plan
from compaction_app.api.runs import CutBody
from compaction_app.engine.command import Scope
from sessions_app.models import CompactBoundary, Session
from sessions_app.models.boundaries import KIND_CHOICES
from sessions_app.transcript.messages import Message


class PlannedLink(serializers.Serializer[Any]):
    """What one link of the chain would do."""

    link = serializers.CharField(help_text="The link's name.")
    would_run = serializers.BooleanField(help_text="Whether it would change anything.")
    why = serializers.CharField(help_text="What it would do or why it would pass, in words.")
    tokens_before = serializers.IntegerField(help_text="The context before it.")
    tokens_after = serializers.IntegerField(help_text="The context after it.")


class PlannedPart(serializers.Serializer[Any]):
    messages = serializers.IntegerField(help_text="How many.")
    tokens = serializers.IntegerField(help_text="What they take, estimated.")
    first = serializers.CharField(allow_null=True, help_text="uuid of the first; null where there is none.")
    last = serializers.CharField(allow_null=True, help_text="uuid of the last; null where there is none.")


class PlannedAttachment(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="What it is, as a boundary tells it.")
    tokens = serializers.IntegerField(help_text="What it would take, estimated.")


class PlannedCost(serializers.Serializer[Any]):
    """Of all calls of a model that would be made."""

    request_tokens = serializers.IntegerField(help_text="What would be sent, estimated.")
    output_tokens = serializers.IntegerField(help_text="What would be written, at most.")
    usd_expected = serializers.CharField(allow_null=True, help_text="USD by the price table; null without a price.")
    usd_uncached = serializers.CharField(allow_null=True, help_text="The same without any cache.")


class PlanRefusal(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="As the run would fail with, or the request be refused with.")
    detail = serializers.CharField(help_text="The same in words.")


class PlanBody(serializers.Serializer[Any]):
    """What a compaction would do now. Nothing was stored, and no model called."""

    dry_run = serializers.BooleanField(help_text="True: this is no run.")
    trigger = serializers.ChoiceField(choices=CompactBoundary.Trigger.choices, help_text="What it would be started by.")
    kind = serializers.ChoiceField(
        choices=KIND_CHOICES, allow_null=True, help_text="Of the boundary; null where none would be written."
    )
    links = PlannedLink(many=True, help_text="The links of the chain, in order.")
    cut = CutBody(allow_null=True, help_text="Where a part would be cut; null for the whole.")
    compacted = PlannedPart(help_text="What would be replaced.")
    kept = PlannedPart(help_text="What would stay word for word.")
    attachments = PlannedAttachment(many=True, help_text="State that would be restored.")
    tokens_before = serializers.IntegerField(help_text="The context now.")
    tokens_after_expected = serializers.IntegerField(help_text="The context then; with a model, at most.")
    awaits_approval = serializers.BooleanField(
        help_text="Whether the run would then stop as `awaiting_approval`, until somebody has consented."
    )
    summarizer = serializers.CharField(allow_null=True, help_text="Who would write.")
    model = serializers.CharField(allow_null=True, help_text="The model that would be called; null for none.")
    cost = PlannedCost(allow_null=True, help_text="Null where no model would be called.")
    refused = PlanRefusal(allow_null=True, help_text="Why nothing would be done; null where something would.")


def plan_body(*, plan: Plan, session: Session) -> dict[str, Any]:
    """The plan as it is answered."""
    run, wanted = plan.run, plan.wanted
    forecast = run.forecast if run else None
    draft = forecast.draft if forecast else None
    calls = forecast.calls if forecast else ()
    tokens = session.context_tokens
    body = {
        "dry_run": True,
        "trigger": wanted.trigger,
        "kind": draft.kind.value if draft else None,
        "links": [
            {
                "link": name,
                "would_run": step.draft is not None,
                "why": step.why,
                "tokens_before": step.tokens_before,
                "tokens_after": step.tokens_after,
            }
            for name, step in (forecast.trail if forecast else [])
        ],
        "cut": {
            "scope": wanted.scope.value,
            "asked": wanted.scope_uuid,
            "uuid": plan.cut.uuid,
            "moved": plan.cut.moved,
        }
        if plan.cut and wanted.scope is not Scope.WHOLE
        else None,
        "compacted": _part(run.compacted if run else ()),
        "kept": _part(run.kept if run else ()),
        "attachments": [{"kind": one.kind, "tokens": one.tokens} for one in (draft.attachments if draft else ())],
        "tokens_before": forecast.tokens_before if forecast else tokens,
        "tokens_after_expected": forecast.tokens_after if forecast else tokens,
        "awaits_approval": run is not None and run.awaits_approval,
        "summarizer": run.summarizer if run else None,
        "model": calls[-1].model if calls else None,
        "cost": {
            "request_tokens": sum(call.request_tokens for call in calls),
            "output_tokens": sum(call.output_tokens for call in calls),
            "usd_expected": None if forecast is None or forecast.usd is None else str(forecast.usd),
            "usd_uncached": None if forecast is None or forecast.uncached_usd is None else str(forecast.uncached_usd),
        }
        if calls
        else None,
        "refused": {"code": plan.code, "detail": plan.detail} if plan.code else None,
    }
    return dict(PlanBody(body).data)


def _part(messages: Sequence[Message]) -> dict[str, Any]:
    return {
        "messages": len(messages),
        "tokens": sum(message.tokens for message in messages),
        "first": messages[0].uuid if messages else None,
        "last": messages[-1].uuid if messages else None,
    }

"""Calls of a model on their run: each is written when it has ended, whatever becomes of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from compaction_app import telemetry
from compaction_app.engine.model_summary.calls import CallRecord
from compaction_app.engine.model_summary.cost import total_usage
from compaction_app.models import CompactionRun, ModelCall
from compaction_app.services.claims import Claim

MOST_SAID = 200_000  # characters that are kept of what a model said: many times the longest answer that is asked for


@dataclass(frozen=True, slots=True)
class RunCalls:
    """The book of one run (a `CallBook`)."""

    run: CompactionRun
    held: Claim

    def record(self, *, call: CallRecord) -> None:
        """Write the call and, where rounds had to go for it, the event that tells of them: both or none."""
        cut = call.cut
        with transaction.atomic():
            # A worker that has lost the run may still have a call to tell of.
            CompactionRun.objects.select_for_update().get(pk=self.run.pk)
            last = ModelCall.objects.filter(run=self.run).aggregate(last=Max("ordinal"))["last"] or 0
            ModelCall.objects.create(
                run=self.run,
                ordinal=last + 1,
                attempt=self.held.attempt,
                way=call.way.value,
                model=call.model[:200],
                prompt_version=call.prompt_version,
                started_at=call.started_at,
                seconds=call.seconds,
                request_tokens=call.request_tokens,
                request_bytes=call.request_bytes,
                retry=cut.retry if cut else 0,
                preflight=bool(cut and cut.preflight),
                dropped_groups=cut.dropped_groups if cut else 0,
                remaining_groups=cut.remaining_groups if cut else 0,
                dropped_tokens=cut.dropped_tokens if cut else 0,
                outcome=call.outcome,
                detail=call.detail,
                status=call.status,
                request_id=call.request_id[:128],
                response_id=call.response_id[:128],
                stop_reason=call.stop_reason[:60],
                usage=dict(call.usage) or None,
                cost_usd=call.cost_usd,
                cost_uncached_usd=call.cost_uncached_usd,
                said=call.said[:MOST_SAID],
            )
            if cut is not None and call.is_new_cut:
                telemetry.emit_ptl_retry(
                    run=self.run,
                    now=timezone.now(),
                    payload={
                        "attempt": cut.retry,
                        "preflight": cut.preflight,
                        "dropped": cut.dropped_groups,
                        "remaining": cut.remaining_groups,
                        "dropped_tokens": cut.dropped_tokens,
                        "remaining_tokens": cut.remaining_tokens,
                        "gap_tokens": cut.gap_tokens,
                        "media_dropped": cut.media,
                        "way": call.way.value,
                        "model": call.model,
                        "prompt_version": call.prompt_version,
                        "summarizer": self.run.summarizer,
                        "query_source": self.run.source,
                    },
                )


@dataclass(frozen=True, slots=True)
class Spent:
    """All calls of a run together. Costs in USD: None where a call's model has no price, or nothing was called."""

    calls: int
    cuts: int
    usage: Mapping[str, Any] | None
    cost_usd: Decimal | None
    cost_uncached_usd: Decimal | None
    largest_request_tokens: int
    largest_request_bytes: int
    model: str
    prompt_version: str


def spent(*, run: CompactionRun) -> Spent:
    """What the run's calls have used so far, of all its attempts. A handful of rows."""
    calls = list(ModelCall.objects.filter(run=run).order_by("ordinal"))
    billed = [call for call in calls if call.usage]
    usages: list[Mapping[str, Any]] = [call.usage for call in billed if call.usage is not None]
    return Spent(
        calls=len(calls),
        cuts=sum(call.retry > 0 for call in calls),
        usage=total_usage(usages) if usages else None,
        cost_usd=_sum([call.cost_usd for call in billed]),
        cost_uncached_usd=_sum([call.cost_uncached_usd for call in billed]),
        largest_request_tokens=max((call.request_tokens for call in calls), default=0),
        largest_request_bytes=max((call.request_bytes for call in calls), default=0),
        model=calls[-1].model if calls else "",
        prompt_version=calls[-1].prompt_version if calls else "",
    )


def _sum(costs: list[Decimal | None]) -> Decimal | None:
    """None where nothing was billed, or one of them has no price: a sum of the rest would look like all of it."""
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(costs) else None

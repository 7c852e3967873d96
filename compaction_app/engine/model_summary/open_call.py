"""A call of a model from its begin to its entry in the book, whoever makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from compaction_app.engine.model_summary.calls import CallBook, CallRecord, PromptCut, Way
from compaction_app.engine.model_summary.cost import cost_of
from compaction_app.engine.model_summary.requests import Built
from compaction_app.engine.ports import Completion, ProviderError
from sessions_app.policy import Policy


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has begun, to be written into the book when it has ended. `began`: by the clock; `usages`: of all
    calls together, to which its own is added."""

    book: CallBook
    clock: Callable[[], float]
    policy: Policy
    usages: list[Mapping[str, Any]]
    way: Way
    model: str
    prompt_version: str
    built: Built
    began: float
    at: datetime
    cut: PromptCut | None = None
    is_new_cut: bool = False

    def close(
        self,
        *,
        outcome: str,
        detail: str = "",
        completion: Completion | None = None,
        error: ProviderError | None = None,
        said: str = "",
    ) -> None:
        """`outcome`, `detail`, `said`: as of a CallRecord."""
        usage = dict(completion.usage if completion else error.usage if error else {})
        model = (completion.model if completion else "") or self.model
        cost = cost_of(usage=usage, model=model, policy=self.policy) if usage else None
        if usage:
            self.usages.append(usage)
        self.book.record(
            call=CallRecord(
                way=self.way,
                model=model,
                prompt_version=self.prompt_version,
                started_at=self.at,
                seconds=round(self.clock() - self.began, 3),
                request_tokens=self.built.tokens,
                request_bytes=self.built.size_bytes,
                outcome=outcome,
                detail=detail,
                cut=self.cut,
                is_new_cut=self.is_new_cut,
                status=error.status if error else None,
                request_id=completion.request_id if completion else error.request_id if error else "",
                response_id=completion.response_id if completion else "",
                stop_reason=(completion.stop_reason or "") if completion else "",
                usage=usage,
                cost_usd=cost.usd if cost else None,
                cost_uncached_usd=cost.uncached_usd if cost else None,
                said=said,
            )
        )

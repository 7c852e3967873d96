"""The exact size of a context after a compaction, counted by the provider."""

from __future__ import annotations

import logging

from django.conf import settings

from compaction_app.engine.ports import ProviderError, TokenCounter
from compaction_app.llm.anthropic_api import AnthropicCounter
from sessions_app import selectors as transcripts
from sessions_app.catalog import api_name
from sessions_app.models import CompactBoundary
from sessions_app.policy import Policy
from sessions_app.transcript.request import MessagesRequest, build_request

logger = logging.getLogger(__name__)


def count_exact(*, boundary_id: int, counter: TokenCounter | None = None) -> int | None:
    """Count the context as it stood right after the boundary, in tokens, and keep the figure with the boundary.

    None, and nothing kept, without a key or a model, for a boundary that has its figure or is not there, and when the
    provider does not tell (logged). No transaction is open during the call. `counter`: in place of the provider's.
    """
    if not settings.ANTHROPIC_KEY_SET:
        return None
    waiting = CompactBoundary.objects.filter(pk=boundary_id, tokens_after_exact__isnull=True)
    boundary = waiting.select_related("session").first()
    if boundary is None or not boundary.session.model:
        return None
    request = _request_after(boundary)
    try:
        counter = counter or AnthropicCounter(seconds=Policy().count_exact_seconds)
        tokens = counter.count(model=api_name(boundary.session.model), request=request)
    except ProviderError as error:
        logger.warning("the provider does not count boundary %s (%s); the estimate stands", boundary.uuid, error)
        return None
    return tokens if waiting.update(tokens_after_exact=tokens) else None


def _request_after(boundary: CompactBoundary) -> MessagesRequest:
    session = boundary.session
    view = transcripts.context_view_at(session=session, boundary_uuid=str(boundary.uuid))
    return build_request(view=view, system=session.system, tools=session.tools)

"""What the provider tells of its models: asked once a day, kept in the cache until it tells something else.

Nothing there expires by itself, so that an outage of the provider changes nothing. Readers use
`sessions_app.selectors.model_limits`.
"""

from __future__ import annotations

import logging
from datetime import datetime

from django.conf import settings
from django.core.cache import cache

from compaction_app.engine.ports import ProviderError
from compaction_app.llm import anthropic_api
from sessions_app.catalog import is_one_of
from sessions_app.policy import Policy
from sessions_app.selectors import MODEL_LIMITS_KEY, forget_model_limits

logger = logging.getLogger(__name__)

WITHOUT_COMPACTION = "without_compaction"
TRIED_KEY = "model-limits-tried"  # when the provider was asked last, in seconds since 1970


def due(*, now: datetime) -> bool:
    """Whether the provider should be asked: there is a key, what it told is old, and it was not asked just now."""
    if not settings.ANTHROPIC_KEY_SET:
        return False
    try:
        stored, tried = cache.get(MODEL_LIMITS_KEY) or {}, cache.get(TRIED_KEY)
    except Exception as error:
        logger.warning("the cache does not answer (%s); the provider is not asked for its models", type(error).__name__)
        return False
    policy = Policy()
    fresh = _within(policy.catalog_refresh_seconds, since=stored.get("fetched_at"), now=now)
    return not fresh and not _within(policy.catalog_retry_seconds, since=tried, now=now)


def _within(seconds: int, *, since: float | None, now: datetime) -> bool:
    # A moment that lies ahead is a clock that was set back: it proves nothing.
    return since is not None and 0 <= now.timestamp() - since < seconds


def refresh(*, now: datetime) -> bool:
    """Ask the provider where that is due; whether it told something. Failures are logged and never raised."""
    if not due(now=now):
        return False
    try:
        cache.set(TRIED_KEY, now.timestamp(), timeout=None)
        told = anthropic_api.list_models(seconds=Policy().catalog_ask_seconds)
        models = {name: list(limits) for name, limits in told.limits.items()}
        stored = {"fetched_at": now.timestamp(), "models": models, WITHOUT_COMPACTION: sorted(told.without_compaction)}
        cache.set(MODEL_LIMITS_KEY, stored, timeout=None)
        forget_model_limits()
    except ProviderError as error:
        logger.warning("the provider does not tell its models (%s); what it told before stands", error)
        return False
    except Exception as error:
        logger.warning("the provider's models could not be kept (%s)", type(error).__name__)
        return False
    logger.info("the provider told the windows of %s models", len(models))
    return True


def can_compact(*, model: str) -> bool:
    """False where the provider has told that the model has no compaction of its own. One look-up in the cache."""
    try:
        names = (cache.get(MODEL_LIMITS_KEY) or {}).get(WITHOUT_COMPACTION, [])
    except Exception as error:
        logger.warning("the cache does not answer (%s); the provider will tell", type(error).__name__)
        return True
    return not is_one_of(model=model, names=names)

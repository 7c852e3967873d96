"""What can be done about a problem of the provider: ask for less, ask again, or tell an operator."""

from __future__ import annotations

from compaction_app.engine.ports import ProviderProblem

TOO_LONG = frozenset({ProviderProblem.TOO_LONG, ProviderProblem.TOO_LARGE})
TRANSIENT = frozenset(
    {
        ProviderProblem.RATE_LIMITED,
        ProviderProblem.OVERLOADED,
        ProviderProblem.SERVER_ERROR,
        ProviderProblem.TIMEOUT,
        ProviderProblem.UNREACHABLE,
    }
)
# What an operator can do about it.
ADVICE = {
    ProviderProblem.CREDENTIALS: "the key is missing, wrong or may not do this: look at ANTHROPIC_API_KEY",
    ProviderProblem.REFUSED: "the provider does not take the request: look at the model's name (COMPACTION_MODEL) and "
    "at ANTHROPIC_BASE_URL",
    ProviderProblem.UNREADABLE: "what answers does not speak the Messages API: look at ANTHROPIC_BASE_URL",
    ProviderProblem.RATE_LIMITED: "the provider's rate limit is reached",
    ProviderProblem.OVERLOADED: "the provider is overloaded",
    ProviderProblem.SERVER_ERROR: "the provider has an error of its own",
    ProviderProblem.TIMEOUT: "the provider did not answer in time",
    ProviderProblem.UNREACHABLE: "the provider was not reached, or the connection broke",
}

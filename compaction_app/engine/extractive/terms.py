"""Section 2: the terms that the conversation turns on."""

from __future__ import annotations

import re

from compaction_app.engine.extractive.draft import Draft
from compaction_app.engine.extractive.evidence import Evidence
from compaction_app.engine.extractive.worth import name_worth
from sessions_app.policy import Policy

# A word of code or of a product: no path, flag, file name or number.
_TERM = re.compile(r"[A-Za-z_]\w{3,}(?:\.\w{7,})?", re.ASCII)


def write_terms(*, draft: Draft, evidence: Evidence, end: int, policy: Policy) -> None:
    """The likeliest terms that the agent itself used more than once, in one line."""
    draft.begin(policy.extract_terms_share, most=policy.extract_terms_share)
    terms = [name for name, record in evidence.names.items() if record.written > 1 and _TERM.fullmatch(name)]
    terms.sort(key=lambda name: (-name_worth(evidence.names[name], end=end, policy=policy), name))
    terms = terms[: policy.extract_names_per_row]
    group = draft.group(2)
    while terms and not draft.add(group, f"- {', '.join(terms)}"):
        terms.pop()
    draft.end()

"""The embedded summariser: nine sections written from the stored history itself, with no model.

>>> text = summarize(request=SummaryRequest(history=…, tail=…, budget_tokens=4_000, family=…, policy=Policy()))
"""

from compaction_app.engine.extractive.summary import summarize

__all__ = ["summarize"]

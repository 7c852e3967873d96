"""What somebody does about a run on its page: try it again, or end it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.utils import timezone

from compaction_app import actions, selectors
from compaction_app.admin import cells
from compaction_app.admin.rendering.text import visible
from compaction_app.engine.breaker import told
from compaction_app.engine.command import LONGEST_INSTRUCTIONS
from compaction_app.llm.factory import CHOICES
from compaction_app.models import CompactionRun, RunStatus

AS_IT_WAS = ("", "as it was")
SUMMARIZERS = [AS_IT_WAS, *((one, one.replace("_", " ")) for one in CHOICES)]


class RetryForm(forms.Form):
    summarizer = forms.ChoiceField(required=False, choices=SUMMARIZERS)
    instructions = forms.CharField(required=False, max_length=LONGEST_INSTRUCTIONS, strip=True)


def changes_of(run: CompactionRun) -> dict[str, Any]:
    """What the page offers, to whoever may act."""
    state = selectors.breaker_state(session=run.session)
    return {
        "retry": run.status in (RunStatus.FAILED, RunStatus.CANCELLED),
        "cancel": run.is_at_work,
        "summarizers": SUMMARIZERS,
        "instructions": run.instructions,
        "longest": LONGEST_INSTRUCTIONS,
        "breaker": told(state=state) if state.is_open else "",
    }


def retry(request: HttpRequest, run: CompactionRun) -> str:
    """Queue another run and say what came of it; the address to go to."""
    form = RetryForm(request.POST)
    if not form.is_valid():
        told = " ".join(str(error) for errors in form.errors.values() for error in errors)
        messages.error(request, f"Nothing was queued: {told}")
        return cells.run_url(run.pk)
    try:
        queued = actions.retry_run(
            run=run,
            instructions=form.cleaned_data["instructions"].replace("\r\n", "\n"),
            summarizer=form.cleaned_data["summarizer"] or None,
            now=timezone.now(),
            source=CompactionRun.Source.ADMIN,
            requested_by=request.user,
        )
    except actions.ActiveRun as active:
        messages.warning(request, "Nothing was queued: this run of the session is not finished.")
        return cells.run_url(active.run.pk)
    except (actions.NothingToCompact, actions.PartialRefused, actions.WrongStatus) as refused:
        messages.warning(request, f"Nothing was queued: {visible(str(refused))}")
        return cells.run_url(run.pk)
    messages.success(request, "Queued again.")
    return cells.run_url(queued.pk)


def cancel(request: HttpRequest, run: CompactionRun) -> None:
    """End it, nothing of it stored, and say so."""
    try:
        actions.cancel_run(run=run, by=actions.Decider(user=request.user), now=timezone.now())
    except actions.WrongStatus as ended:
        messages.warning(request, str(ended))
    else:
        messages.success(request, "Cancelled: nothing of it was stored.")

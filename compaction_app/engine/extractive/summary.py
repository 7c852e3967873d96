"""The waterfall: sections filled in order of worth, each within its share, the rest flowing on."""

from __future__ import annotations

from collections.abc import Callable

from compaction_app.engine.extractive.commands import write_commands
from compaction_app.engine.extractive.draft import Draft
from compaction_app.engine.extractive.errors import failures
from compaction_app.engine.extractive.evidence import gather_evidence
from compaction_app.engine.extractive.files import file_records
from compaction_app.engine.extractive.keylines import write_key_lines
from compaction_app.engine.extractive.sections import (
    write_errors,
    write_files,
    write_findings,
    write_open_todos,
    write_plan,
    write_work,
)
from compaction_app.engine.extractive.story import Story, tell, written_texts
from compaction_app.engine.extractive.terms import write_terms
from compaction_app.engine.extractive.text import clean
from compaction_app.engine.extractive.todos import todo_state
from compaction_app.engine.extractive.users import widen_users, write_request, write_users
from compaction_app.engine.extractive.wanted import Wanted
from compaction_app.engine.ports import SummaryRequest


def summarize(*, request: SummaryRequest, progress: Callable[[float], None] | None = None) -> str:
    """A Markdown summary in nine sections, by `estimate_text` at most `request.budget_tokens`.

    The same request gives the same bytes in every process. Nothing in it is invented: it quotes the history.
    `progress` is told the share done, from 0 to 1; what it raises ends the work.
    """
    report = progress or (lambda share: None)
    report(0.0)
    policy = request.policy
    story = tell(messages=request.history, policy=policy)
    tail = tell(messages=request.tail, policy=policy)
    report(0.2)
    evidence = gather_evidence(story=story, policy=policy)
    report(0.6)
    draft = Draft(budget_tokens=request.budget_tokens, family=request.family, policy=policy)
    wanted = Wanted.from_instructions(request.instructions)
    state = todo_state([*story.calls, *tail.calls])
    group = write_users(draft=draft, users=story.users, policy=policy)
    write_request(draft=draft, users=story.users, instructions=clean(request.instructions), policy=policy)
    write_open_todos(draft=draft, state=state, share=policy.extract_todos_share)
    write_files(draft=draft, records=file_records(story.calls), policy=policy)
    found = failures(story.calls, reaction_calls=policy.extract_reaction_calls)
    write_errors(draft=draft, failures=found, policy=policy)
    write_work(draft=draft, story=story, state=state, has_tail=bool(request.tail), policy=policy)
    write_commands(draft=draft, calls=story.calls, length=story.length, policy=policy)
    write_plan(draft=draft, state=state, share=policy.extract_todos_share)
    write_findings(draft=draft, agent=story.agent, wanted=wanted, policy=policy)
    widen_users(draft=draft, group=group, users=story.users, policy=policy)
    write_terms(draft=draft, evidence=evidence, end=story.length + tail.length, policy=policy)
    report(0.7)
    write_key_lines(
        draft=draft,
        evidence=evidence,
        end=story.length + tail.length,
        tail_texts=_texts(tail, request),
        wanted=wanted,
        policy=policy,
    )
    text = draft.finish()
    report(1.0)
    return text


def _texts(story: Story, request: SummaryRequest) -> list[str]:
    """What the tail shows."""
    texts = [said.text for said in (*story.users, *story.agent)]
    for call in story.calls:
        texts.extend(written_texts(call, policy=request.policy))
        texts.append(call.result or "")
    return texts

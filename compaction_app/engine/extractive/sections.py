"""The sections that are filled from calls and from the agent's texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compaction_app.engine.extractive.draft import Draft
from compaction_app.engine.extractive.errors import Failure
from compaction_app.engine.extractive.files import FileRecord, folder_of, short_path, touches
from compaction_app.engine.extractive.story import Call, Said, Story
from compaction_app.engine.extractive.text import bullet, clip, fence, one_line, plain_line, poses_as_section, sentences
from compaction_app.engine.extractive.todos import TodoState
from compaction_app.engine.extractive.wanted import Wanted
from sessions_app.policy import Policy

_CUES = re.compile(
    r"\b(?:decid|because|root cause|the (?:issue|problem|fix|cause|reason) (?:is|was)|turns out|found|discover|realiz"
    r"|must|never|always|instead of|should(?:n't| not)|don't|important|note that|prefer|chose|agreed|works? now|fixed"
    r"|confirmed|verified|conclu)"
    r"|决定|因为|原因|问题(?:是|在)|发现|必须|不要|不能|应该|改为|已修复|修复了|确认|结论|注意|选择|约定"
    r"|原因は|決定|修正|確認|必ず|결정|원인|수정|확인|반드시",
    re.IGNORECASE,
)


def code(text: str) -> str:
    """Inline code; text with backticks gets a longer pair."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def write_files(*, draft: Draft, records: Sequence[FileRecord], policy: Policy) -> None:
    """Section 3: changed files, then files only read, by folder; most recently touched first."""
    draft.begin(policy.extract_files_share)
    changed = [record for record in records if record.is_changed]
    read = [record for record in records if not record.is_changed]
    for title, part in (("Changed:", changed), ("Read:", read)):
        _write_folders(draft, title, part, policy)
    draft.end()


def _write_folders(draft: Draft, title: str, records: Sequence[FileRecord], policy: Policy) -> None:
    group = draft.group(3, title=title)
    folders: dict[str, list[FileRecord]] = {}
    for record in records:
        folders.setdefault(folder_of(record.path), []).append(record)
    for members in folders.values():
        line = bullet(" ".join(_file(record, whole=i == 0, policy=policy) for i, record in enumerate(members)))
        if not draft.add(group, line):
            for record in members:
                draft.add(group, bullet(_file(record, whole=True, policy=policy)))


def _file(record: FileRecord, *, whole: bool, policy: Policy) -> str:
    shown = clip(record.path if whole else short_path(record.path), limit=policy.extract_path_chars)
    return shown + (" (new)" if record.how[0] == "written" else "")


def write_errors(*, draft: Draft, failures: Sequence[Failure], policy: Policy) -> None:
    """Section 4: newest first; each failure's telling lines with the first reaction to it."""
    draft.begin(policy.extract_errors_share)
    group = draft.group(4)
    for failure in failures:
        reaction = _reaction(failure, policy)
        longest = policy.extract_line_chars
        texts = [clip(line, limit=longest) for line in failure.lines]
        if not draft.add(group, bullet(" / ".join(code(text) for text in texts) + reaction)):
            draft.add(group, bullet(code(texts[0]) + reaction))
    draft.end()


def _reaction(failure: Failure, policy: Policy) -> str:
    if failure.edited:
        return f" → edited {code(clip(failure.edited, limit=policy.extract_path_chars))}"
    if failure.command:
        if "\n" in failure.command and len(failure.command) <= policy.extract_command_chars:
            return f" → ran\n{fence(failure.command)}"
        return f" → ran {code(clip(failure.command, limit=policy.extract_command_chars))}"
    return ""


def write_open_todos(*, draft: Draft, state: TodoState, share: float) -> None:
    """Section 7: what is not completed, verbatim."""
    draft.begin(share)
    group = draft.group(7)
    for item in state.items:
        if item.is_open:
            mark = "" if item.status == "pending" else f"({clip(item.status, limit=40)})"
            draft.add(
                group, bullet(f"{item.text} {mark}".rstrip()) if plain_line(item.text) else _block(mark, item.text)
            )
    draft.end()


def _block(mark: str, text: str) -> str:
    return f"{mark}\n{fence(text)}" if mark else fence(text)


def write_plan(*, draft: Draft, state: TodoState, share: float) -> None:
    """Section 7: what is done, then the beginning of the plan, as records."""
    draft.begin(share, most=share)
    done = draft.group(7, title="Done:")
    for item in reversed(state.items):
        if not item.is_open:
            draft.add(done, bullet(one_line(item.text)))
    if state.plan:
        plan = draft.group(7, title="The plan as it was put before the user:", fenced=True)
        for line in state.plan.split("\n"):
            if line.strip() and not poses_as_section(line) and not draft.add(plan, line):
                break
    draft.end()


def write_work(*, draft: Draft, story: Story, state: TodoState, has_tail: bool, policy: Policy) -> None:
    """Sections 8 and 9: the last words and calls of the replaced part, quoted, as a record."""
    draft.begin(policy.extract_work_share)
    last = story.agent[-1].text if story.agent else ""
    quotes = list(sentences(last))
    work = draft.group(8)
    doing = [item.text for item in state.items if item.status == "in_progress"]
    for text in doing:
        draft.add(work, bullet(f"In progress: {one_line(text)}"))
    if quotes and not has_tail:
        draft.add(work, bullet(f"The agent said: “{clip(quotes[0], limit=policy.extract_quote_chars)}”"))
    for line in _last_actions(story.calls, policy):
        draft.add(work, bullet(line))
    following = draft.group(9)
    whose = "The last message before the kept ones" if has_tail else "The last message"
    pending = [item.text for item in state.items if item.is_open]
    if quotes:
        draft.add(following, bullet(f"{whose} said: “{clip(quotes[-1], limit=policy.extract_quote_chars)}”"))
    if pending:
        draft.add(following, bullet(f"First open item: {clip(pending[0], limit=policy.extract_quote_chars)}"))
    draft.end()


def _last_actions(calls: Sequence[Call], policy: Policy) -> list[str]:
    """What the last calls did, oldest first, each thing once."""
    found: dict[str, None] = {}
    for call in reversed(calls):
        touch = next(touches(call), None)
        if touch:
            found[f"{touch.how} {clip(touch.path, limit=policy.extract_quote_chars)}"] = None
        elif call.command:
            found[f"ran {code(clip(call.command, limit=policy.extract_quote_chars))}"] = None
        if len(found) == policy.extract_last_actions:
            break
    return [f"Last actions: {line}" if i == 0 else line for i, line in enumerate(reversed(found))]


def write_findings(*, draft: Draft, agent: Sequence[Said], wanted: Wanted, policy: Policy) -> None:
    """Section 5: sentences of the agent that decide, explain or conclude: what the instructions name, then newest."""
    draft.begin(policy.extract_findings_share, most=policy.extract_findings_share)
    group = draft.group(5, front=True)
    found: dict[str, None] = {}
    for said in reversed(agent):
        for sentence in sentences(said.text):
            fits = policy.extract_shortest_line_chars <= len(sentence) <= policy.extract_quote_chars
            if fits and "```" not in sentence and _CUES.search(sentence):
                found.setdefault(one_line(sentence).lstrip("#-*> ").strip(), None)
    ordered = sorted(found, key=lambda text: -wanted.matches(text))
    for text in ordered:
        if not draft.add(group, bullet(text)) and draft.purse < 20:
            break
    draft.end()

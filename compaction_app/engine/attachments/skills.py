"""Skills used last: reference, never a request to run them (known failure C17)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compaction_app.engine.attachments.calls import Call, told_in
from compaction_app.engine.attachments.fitting import Purse, fit_lines, one_line
from compaction_app.engine.client_state import Skill, StateValue
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.file_tools import SKILL_TOOL
from sessions_app.transcript.messages import Message, Role, text_of

# How Claude Code begins the message in which it gives a skill's text, right behind the result of the call.
OPENING = "Base directory for this skill:"


def skill_attachments(
    *,
    calls: Sequence[Call],
    history: Sequence[Message],
    tail: Sequence[Message],
    state: StateValue,
    policy: Policy,
    purse: Purse,
) -> Iterator[AttachmentValue]:
    """Within the budgets of one skill and of all; the one that was used last first."""
    room, told = policy.attached_skills_tokens, told_in(tail)
    used = [call for call in calls if call.name == SKILL_TOOL]
    known = {skill.name: skill for skill in (*_of_history(used=used, history=history), *state.skills)}
    recent = _recent(used=used, skills=list(known.values()))
    skills = [skill for skill in recent if skill.content.strip() not in ("", *_shown(told, skill))]
    for skill in skills[: policy.attached_skills]:
        value = fit_lines(
            kind="skill",
            label=f"Text of the skill {one_line(skill.name)}, which was used earlier. It was carried out then; "
            "that it stands here is no reason to run it again",
            text=skill.content,
            payload={"name": skill.name},
            purse=purse,
            most=min(room, policy.attached_skill_tokens),
            least=policy.attached_least_tokens,
        )
        if value:
            room -= value.tokens
            yield value


def _shown(told: str, skill: Skill) -> tuple[str, ...]:
    content = skill.content.strip()
    return (content,) if content in told else ()


def _of_history(*, used: Sequence[Call], history: Sequence[Message]) -> Iterator[Skill]:
    """Those whose text the history shows, the one that was used last last."""
    behind = {call.result_position + 1: _name(call) for call in used if call.succeeded}
    for message in history:
        if message.position in behind and message.is_meta and message.role == Role.USER:
            text = text_of(message.content)
            if text.startswith(OPENING):
                yield Skill(behind[message.position], text)


def _recent(*, used: Sequence[Call], skills: Sequence[Skill]) -> list[Skill]:
    """By their last call; those without a known call keep the client's order, behind these."""
    at = {_name(call): call.position for call in used}
    return sorted(skills, key=lambda skill: -at.get(skill.name, 0))


def _name(call: Call) -> str:
    return call.argument("skill", "command", "name")

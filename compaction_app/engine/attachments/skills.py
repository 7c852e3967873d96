"""Skills used last: reference, never a request to run them (known failure C17)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compaction_app.engine.attachments.calls import Call, told_in
from compaction_app.engine.attachments.fitting import Purse, fit_lines, one_line
from compaction_app.engine.client_state import Skill, StateValue
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.file_tools import SKILL_TOOL
from sessions_app.transcript.messages import Message


def skill_attachments(
    *, calls: Sequence[Call], tail: Sequence[Message], state: StateValue, policy: Policy, purse: Purse
) -> Iterator[AttachmentValue]:
    """Within the budgets of one skill and of all; the one that was used last first."""
    room, told = policy.attached_skills_tokens, told_in(tail)
    skills = [s for s in _recent(calls=calls, skills=state.skills) if s.content.strip() not in ("", *_shown(told, s))]
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


def _recent(*, calls: Sequence[Call], skills: Sequence[Skill]) -> list[Skill]:
    """By their last call; those without a known call keep the client's order, behind these."""
    used = {call.argument("skill", "command", "name"): call.position for call in calls if call.name == SKILL_TOOL}
    return sorted(skills, key=lambda skill: -used.get(skill.name, 0))

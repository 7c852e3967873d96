"""Facts on their way from boundary to boundary: those that come with earlier summaries, and those of this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from compaction_app.engine.facts import NONE, FactKind, Facts, as_lines, collect, from_json, is_kept, lost, merge
from compaction_app.engine.segment import Segment
from compaction_app.engine.values import Situation
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import Message


@dataclass(frozen=True, slots=True)
class Carried:
    """`earlier`: of what the earlier summaries stand for, as it stands now; `covered`: of all that this one does."""

    earlier: Facts
    covered: Facts

    def unsaid(self, *, summary: str) -> tuple[str, ...]:
        """In lines for a prompt: what the earlier summaries should tell and don't; nothing where there is none."""
        return as_lines(lost(facts=self.earlier, text=summary)) if summary else ()


def carried(
    *, situation: Situation, segment: Segment, folded: Sequence[Boundary], originals: Sequence[Message]
) -> Carried:
    """`folded`: the boundaries whose summaries this one takes the place of, in their order; `originals`: of all that it
    stands for. They are looked at only where one of these carries no facts: it is older, or was imported."""
    policy, family = situation.policy, situation.family
    earlier = _of_earlier(situation=situation, segment=segment, folded=folded, originals=originals)
    newer = collect(messages=segment.compacted, policy=policy, earlier=earlier)
    still_open = {fact.text for fact in newer[FactKind.TODO]}
    return Carried(
        earlier={**earlier, FactKind.TODO: tuple(one for one in earlier[FactKind.TODO] if one.text in still_open)},
        covered=merge(earlier=earlier, newer=newer, most_tokens=policy.facts_tokens, family=family),
    )


def _of_earlier(
    *, situation: Situation, segment: Segment, folded: Sequence[Boundary], originals: Sequence[Message]
) -> Facts:
    if not folded:
        return NONE
    policy, family = situation.policy, situation.family
    stored = situation.facts_of(folded) if situation.facts_of else ()
    if not stored or not all(map(is_kept, stored)):
        shown = {message.position for message in segment.compacted}
        hidden = [message for message in originals if message.position not in shown]
        found = collect(messages=hidden, policy=policy)
        return merge(earlier=NONE, newer=found, most_tokens=policy.facts_tokens, family=family)

    def both(one: Facts, other: Facts) -> Facts:
        # Neither was collected with the other in mind, so the newer todos stand where there are any.
        todos = other[FactKind.TODO] or one[FactKind.TODO]
        newer = {**other, FactKind.TODO: todos}
        return merge(earlier=one, newer=newer, most_tokens=policy.facts_tokens, family=family)

    return reduce(both, map(from_json, stored))

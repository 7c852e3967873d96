"""The summary while it is being filled: nine sections, a purse, and the hard bound at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from compaction_app.engine.extractive.text import fence
from compaction_app.engine.summary import EMPTY_SECTION, SECTIONS, heading
from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.tokens import estimate_text


@dataclass(slots=True)
class Group:
    """Lines that stand together under an optional title, in one fence or plain; placed in a section by number.

    `front` groups stand before those that were opened earlier. A group without lines leaves no trace.
    """

    section: int
    title: str = ""
    fenced: bool = False
    front: bool = False
    lines: list[str] = field(default_factory=list)

    def render(self) -> str:
        body = "\n".join(self.lines)
        if self.fenced:
            body = fence(body)
        return f"{self.title}\n{body}" if self.title else body


class Draft:
    """Groups in order of worth, and what may still be spent. All sizes are tokens by `estimate_text`."""

    def __init__(self, *, budget_tokens: int, family: TokenizerFamily, policy: Policy) -> None:
        self.budget = budget_tokens
        self._family = family
        self._groups: list[Group] = []
        self._newline = self.cost("a\na") - self.cost("aa")
        # Where the scaffold would take a large part of the budget, empty sections get no placeholder.
        self._placeholder = EMPTY_SECTION
        if self.cost(self._render()) > budget_tokens * policy.extract_scaffold_share:
            self._placeholder = ""
        self.left = budget_tokens - self.cost(self._render())
        self._reserve = int(max(0, self.left) * policy.extract_lines_share)
        self._cap = 0
        self._carry = 0
        self._aside = 0

    def cost(self, text: str) -> int:
        return estimate_text(text=text, family=self._family)

    def line_cost(self, text: str) -> int:
        return self.cost(text) + self._newline

    def begin(self, share: float, *, most: float = 1.0) -> int:
        """Open the purse of the next part: its share of the budget and what parts before it left. Returns it.

        `most` bounds both together, as a share of the budget; what is above flows on.
        """
        self.left = self.budget - self.cost(self._render())
        open_tokens = max(0, min(int(self.budget * share) + self._carry, self.left - self._reserve))
        self._cap = min(open_tokens, int(self.budget * most))
        self._aside = open_tokens - self._cap
        return self._cap

    def begin_last(self) -> int:
        """Open the purse of the last part: all that is left, the reserve included. Returns it."""
        self.left = self.budget - self.cost(self._render())
        self._cap = max(0, self.left)
        return self._cap

    def end(self) -> None:
        """Close the purse; what is in it flows on."""
        self._carry = self._cap + self._aside

    @property
    def purse(self) -> int:
        return self._cap

    def group(self, section: int, *, title: str = "", fenced: bool = False, front: bool = False) -> Group:
        group = Group(section=section, title=title, fenced=fenced, front=front)
        self._groups.append(group)
        return group

    def add(self, group: Group, line: str, *, cost: int | None = None) -> bool:
        """Add a line to a group when the purse holds its cost (and that of title and fence, the first time)."""
        cost = self.line_cost(line) if cost is None else cost
        if not group.lines:
            cost += self.line_cost(group.title) if group.title else 0
            cost += self.cost("```\n```\n") if group.fenced else 0
        if cost > self._cap:
            return False
        group.lines.append(line)
        self._cap -= cost
        self.left -= cost
        return True

    def text(self) -> str:
        """What has been written so far."""
        return self._render()

    def finish(self) -> str:
        """The summary, within the budget: the least worthy lines go until it fits, then the scaffold shrinks."""
        text = self._with_placeholders()
        over = self.cost(text) - self.budget
        while over > 0 and self._drop(over):
            text = self._render()
            over = self.cost(text) - self.budget
        return text if over <= 0 else self._bare()

    def _with_placeholders(self) -> str:
        """The text, with the placeholders that were saved at first when they fit after all."""
        saved, self._placeholder = self._placeholder, EMPTY_SECTION
        text = self._render()
        if self.cost(text) > self.budget:
            self._placeholder = saved
            text = self._render()
        return text

    def _drop(self, tokens: int) -> bool:
        """Take lines of about that many tokens away, last group first; False when none is left."""
        gone = 0
        for group in reversed(self._groups):
            while group.lines and gone < tokens:
                gone += self.line_cost(group.lines.pop())
        return gone > 0

    def _render(self) -> str:
        parts: list[str] = []
        for number in range(1, len(SECTIONS) + 1):
            groups = [group for group in self._groups if group.section == number and group.lines]
            groups.sort(key=lambda group: not group.front)
            parts.append(heading(number))
            parts.extend([group.render() for group in groups] or ([self._placeholder] if self._placeholder else []))
        parts.extend(group.render() for group in self._groups if group.section > len(SECTIONS) and group.lines)
        return "\n".join(parts)

    def _bare(self) -> str:
        """Headings alone; as many as fit when even those are too much."""
        for count in range(len(SECTIONS), 0, -1):
            text = "\n".join(heading(number) for number in range(1, count + 1))
            if self.cost(text) <= self.budget:
                return text
        return ""

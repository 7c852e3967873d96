"""Tools whose calls tell what a session works on: its files, its plan, its skills (facts: Claude Code's names)."""

from __future__ import annotations

READ_TOOLS = frozenset({"Read"})
WRITE_TOOLS = frozenset({"Write"})
EDIT_TOOLS = frozenset({"Edit", "MultiEdit", "NotebookEdit"})
FILE_TOOLS = READ_TOOLS | WRITE_TOOLS | EDIT_TOOLS
PLAN_TOOL = "ExitPlanMode"  # its input is the plan; its result is an error where the person refused it
SKILL_TOOL = "Skill"

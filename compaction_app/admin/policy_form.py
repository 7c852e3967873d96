"""The figures of the policy table as a form: one input each, empty where nothing is overridden.

Teams and sessions use the same form. Each input says what holds without it, and refuses a bad value beside itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError

from compaction_app.admin.policy_tables import (
    HINTS,
    KINDS,
    NO,
    PLACEHOLDERS,
    YES,
    read_table,
    table_lines,
    table_text,
)
from sessions_app import policy
from sessions_app.figures import PolicyError, Tables, bounds

NOT_SET = "not set"
NOT_OF_A_SESSION = ("import_",)  # figures that begin so hold before there is a session

# Of the names that begin with summary_, these are about the call; the others about the text.
CALL_REST = (
    "summary_silence_",
    "summary_retry_",
    "summary_longest_",
    "summary_cleared_",
    "summary_result_",
    "ptl_",
    "request_bytes",
    "price_",
)

# What people change, in the order of their questions. Every other figure is folded under "more".
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Context window and thresholds",
        (
            "context_window",
            "auto_compact_pct",
            "auto_compact_buffer_tokens",
            "warning_buffer_tokens",
            "error_buffer_tokens",
            "summary_output_tokens",
        ),
    ),
    (
        "Automatic compaction and its breaker",
        (
            "compaction_enabled",
            "auto_compact_enabled",
            "breaker_failures",
            "breaker_ineffective",
            "breaker_cooldown_seconds",
            "least_freed_share",
        ),
    ),
    (
        "Clearing old tool results",
        (
            "compactable_tools",
            "time_based_enabled",
            "time_based_idle_ms",
            "time_based_keep_results",
            "cache_edits_enabled",
            "cache_edit_dialect",
            "cache_edit_trigger_results",
            "cache_edit_keep_results",
            "clear_least_tokens",
        ),
    ),
    (
        "The call of a model",
        (
            "cache_prefix",
            "summary_language",
            "summary_deadline_seconds",
            "summary_retries",
            "ptl_retries",
            "last_resort",
            "prices",
        ),
    ),
    (
        "Restored after a compaction",
        (
            "attached_files",
            "attached_file_tokens",
            "attached_files_tokens",
            "attached_plan_tokens",
            "attached_skills",
            "attached_skill_tokens",
            "attached_skills_tokens",
            "attached_delta_tokens",
        ),
    ),
    ("Hooks", ("hook_timeout_seconds",)),
)
MORE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("The call of a model: the rest", CALL_REST),
    ("Summary and kept tail", ("full_", "summary_", "waiting_", "largest_", "attached_")),
    ("Embedded summariser", ("extract_",)),
    ("Import", ("import_",)),
    ("Thresholds, clearing and runs: the rest", ("",)),
)


@dataclass(frozen=True, slots=True)
class Layers:
    """The stored overrides that a form lays over the environment. `own` names the layer that the form edits."""

    own: str
    team: Mapping[str, Any]
    session: Mapping[str, Any] | None = None

    @property
    def edited(self) -> Mapping[str, Any]:
        return (self.session or {}) if self.own == "session" else self.team

    def resolved(self) -> policy.ResolvedPolicy:
        return policy.resolve(environment=settings.COMPACTION_POLICY, team=self.team, session=self.session)

    def beneath(self) -> policy.ResolvedPolicy:
        """What would hold without the layer that is edited."""
        team = self.team if self.own == "session" else None
        return policy.resolve(environment=settings.COMPACTION_POLICY, team=team)


@dataclass(frozen=True, slots=True)
class Setting:
    """What one layer says about a figure."""

    layer: str
    text: str


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure as the form and the table show it. `field` is None where nobody edits it."""

    name: str
    meaning: str
    unit: str
    variable: str
    default: str
    settings: tuple[Setting, ...]
    value: str
    origin: str
    overridden: bool
    field: Any = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was refused, in words that name it, and the id of the input to go to."""

    text: str
    target: str


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[FigureRow, ...]

    @property
    def overridden(self) -> int:
        return sum(row.overridden for row in self.rows)

    @property
    def wrong(self) -> bool:
        return any(row.field.errors for row in self.rows)


class FigureField(forms.CharField):
    """One figure's input. Cleans to the override in the figure's own type, None where the input is empty."""

    def __init__(self, *, name: str, inherited: str, stored: object) -> None:
        self.name = name
        self.metadata = policy.FIGURES[name].metadata
        super().__init__(
            required=False,
            label=name,
            initial=input_text(stored),
            help_text=_hint(self.metadata),
            widget=_widget(metadata=self.metadata, inherited=inherited),
        )

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return policy.check(name=self.name, value=_read(name=self.name, text=text, kind=self.metadata["kind"]))
        except PolicyError as error:
            raise ValidationError(_refusal(error)) from error


class PolicyForm(forms.Form):
    """The figures that the edited layer may override.

    `unknown` names what is stored although the table has no such figure; saving leaves it out.
    """

    def __init__(self, *, layers: Layers, data: Any = None) -> None:
        super().__init__(data=data, prefix="policy")
        self.layers = layers
        beneath = layers.beneath().policy
        for name in overridable(own=layers.own):
            inherited = shown(getattr(beneath, name))
            self.fields[name] = FigureField(name=name, inherited=inherited, stored=layers.edited.get(name))
        self.unknown = sorted(set(layers.edited) - set(overridable()))

    def overrides(self) -> dict[str, Any]:
        """What the layer holds once the form is saved."""
        return {name: value for name, value in self.cleaned_data.items() if value is not None}

    def changes(self) -> dict[str, Any]:
        """The figures whose override becomes another one, None where it is taken back."""
        stored = self.layers.edited
        changed = {name: value for name, value in self.cleaned_data.items() if value != stored.get(name)}
        return {**changed, **dict.fromkeys(self.unknown)}

    def problems(self) -> list[Problem]:
        """What was refused, in the order of the inputs."""
        fields = (row.field for section in (*self.sections(), *self.more()) for row in section.rows)
        return [Problem(text=error, target=field.id_for_label) for field in fields for error in field.errors]

    def sections(self) -> list[Section]:
        return [self._section(title, names) for title, names in SECTIONS]

    def more(self) -> list[Section]:
        left = [name for name in self.fields if not any(name in names for _, names in SECTIONS)]
        found = []
        for title, prefixes in MORE:
            names = tuple(name for name in left if name.startswith(prefixes))
            left = [name for name in left if name not in names]
            found.append(self._section(title, names))
        return found

    def more_is_open(self) -> bool:
        return any(section.wrong for section in self.more())

    def _section(self, title: str, names: tuple[str, ...]) -> Section:
        resolved = self.layers.resolved()
        rows = (_row(name=name, layers=self.layers, resolved=resolved, field=self[name]) for name in names)
        return Section(title=title, rows=tuple(rows))


def overridable(*, own: str = "team") -> list[str]:
    """The figures that the layer `own` may set, in the table's order."""
    return [name for name in _belonging(own=own) if not policy.FIGURES[name].metadata["service"]]


def figure_rows(*, layers: Layers) -> Iterator[FigureRow]:
    """Every figure of the table that says something to the layer, to read."""
    resolved = layers.resolved()
    return (_row(name=name, layers=layers, resolved=resolved) for name in _belonging(own=layers.own))


def _belonging(*, own: str) -> list[str]:
    return [name for name in policy.FIGURES if own != "session" or not name.startswith(NOT_OF_A_SESSION)]


def _row(*, name: str, layers: Layers, resolved: policy.ResolvedPolicy, field: Any = None) -> FigureRow:
    figure = policy.FIGURES[name]
    default = shown(figure.default)
    return FigureRow(
        name=name,
        meaning=figure.metadata["meaning"],
        unit=figure.metadata["unit"],
        variable=variable_of(name),
        default=default,
        settings=tuple(_settings(name=name, default=default, layers=layers)),
        value=shown(getattr(resolved.policy, name)),
        origin=resolved.origin(name),
        overridden=layers.edited.get(name) is not None,
        field=field,
    )


def _settings(*, name: str, default: str, layers: Layers) -> Iterator[Setting]:
    yield Setting(layer=policy.DEFAULT, text=default)
    if variable_of(name):
        yield Setting(layer="environment", text=shown(settings.COMPACTION_POLICY.get(name)))
    if layers.own == "session":
        yield Setting(layer="team", text=shown(layers.team.get(name)))


def variable_of(name: str) -> str:
    """The variable that sets a figure, or switches it off; "" where there is none."""
    return str(policy.FIGURES[name].metadata["env"]).removeprefix("!")


def shown(value: object) -> str:
    """A figure's value for people."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, Tables):
        value = value.as_json()
    return table_text(value) if isinstance(value, Mapping) else str(value)


def input_text(value: object) -> str:
    """A stored override as its input takes it, also one that is not allowed."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return YES if value else NO
    return table_lines(value) if isinstance(value, Mapping) else str(value)


def _hint(metadata: Mapping[str, Any]) -> str:
    if metadata["kind"] in KINDS:
        return HINTS[metadata["kind"]]
    if metadata["kind"] not in ("whole", "number"):
        return ""
    return f"{_grouped(bounds(metadata))} {metadata['unit']}"


def _refusal(error: PolicyError) -> str:
    """The error's words, with what is allowed as the hint tells it and the value as it was typed."""
    value, allowed_is, allowed = str(error).rpartition(": allowed is ")
    return value + allowed_is + _grouped(allowed) if allowed_is else str(error)


def _grouped(text: str) -> str:
    """The text with separators in its whole numbers: "1000 to 10000000" is "1,000 to 10,000,000"."""
    return re.sub(r"(?<![\d.,])\d{4,}(?![\d.])", lambda digits: f"{int(digits[0]):,}", text)


def _widget(*, metadata: Mapping[str, Any], inherited: str) -> forms.Widget:
    kind = metadata["kind"]
    if kind in ("switch", "choice"):
        answers = (YES, NO) if kind == "switch" else metadata["choices"]
        return forms.Select(choices=[("", f"not overridden ({inherited})"), *((one, one) for one in answers)])
    if kind in KINDS:
        return forms.Textarea(attrs={"rows": 4, "placeholder": PLACEHOLDERS[kind], "spellcheck": "false"})
    # Not type="number": a browser sends what is no number as nothing, which would take the override back unseen.
    keys = "numeric" if kind == "whole" else "decimal"
    return forms.TextInput(attrs={"inputmode": keys, "autocomplete": "off", "placeholder": inherited})


def _read(*, name: str, text: str, kind: str) -> Any:
    """The value that a text stands for; the text itself where it stands for none, so that the check can name it."""
    if kind == "switch":
        return {YES: True, NO: False}.get(text, text)
    if kind in KINDS:
        return read_table(name=name, text=text, kind=kind)
    if kind == "choice":
        return text
    try:
        number = int(_ungrouped(text)) if kind == "whole" else float(text)
        # The table has bounds for finite numbers only; JSON has no others.
        return number if abs(number) < float("inf") else text
    except (ValueError, OverflowError):
        return text


def _ungrouped(text: str) -> str:
    """A whole number without its separators, as the hints write them; any other text as it is."""
    return text.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+", text, re.ASCII) else text

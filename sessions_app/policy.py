"""THE TABLE: every figure of the service, one line each: default, unit, meaning, bounds, variable.

`Policy()` holds the defaults. `resolve()` lays environment, team and session values over them and says for each
value where it came from. Nothing else in the code holds a threshold. Sources: the product's mission (rows S1 to S20),
the measured page on quality, and the decisions in docs/architecture.md; named per figure where it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any

from sessions_app.figures import PolicyError, PriceTable, Tables, ToolTable, checked
from sessions_app.figures import figure as _figure

# Tools whose results may be cleared: what they returned can be had again. The rest keeps what a person or another agent
# said. An unknown tool is not compactable (S4).
COMPACTABLE_TOOLS = ToolTable(
    rules=(
        ("Read", True),
        ("Bash", True),
        ("PowerShell", True),
        ("Grep", True),
        ("Glob", True),
        ("WebSearch", True),
        ("WebFetch", True),
        ("Edit", True),
        ("Write", True),
        ("MultiEdit", True),
        ("NotebookEdit", True),
        ("AskUserQuestion", False),
        ("Agent", False),
        ("Task", False),
    )
)
# Tools whose unanswered call waits for a person: the round with the call stays in the context (known failure T8).
APPROVAL_TOOLS: frozenset[str] = frozenset({"AskUserQuestion", "ExitPlanMode"})
CACHE_EDIT_DIALECTS = ("context_management", "cache_edits")
# List prices as far as they were known in 2026; where a version is not named, its class of model is assumed. What was
# really billed is the provider's to say, and a team with other prices sets its own.
PRICES = PriceTable(
    rows=(
        ("claude-opus-", 5, 25),
        ("claude-opus-4-1", 15, 75),
        ("claude-opus-4-0", 15, 75),
        ("claude-opus-4-2025", 15, 75),
        ("claude-sonnet-", 3, 15),
        ("claude-haiku-", 1, 5),
        ("claude-3-7-sonnet", 3, 15),
        ("claude-3-5-sonnet", 3, 15),
        ("claude-3-5-haiku", 0.8, 4),
        ("claude-3-haiku", 0.25, 1.25),
        ("claude-3-opus", 15, 75),
    )
)
# "user": the language of the user's own messages.
SUMMARY_LANGUAGES = (
    "user",
    "English",
    "Chinese",
    "Japanese",
    "Korean",
    "Arabic",
    "Hebrew",
    "Hindi",
    "Russian",
    "German",
    "French",
    "Spanish",
    "Portuguese",
    "Italian",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Resolved figures. Attribute access is typed; `FIGURES` describes each."""

    # Window arithmetic (S8, S9)
    summary_output_tokens: int = _figure(
        20_000, unit="tokens", low=0, meaning="most of the window that is reserved for the summary's own output"
    )
    auto_compact_buffer_tokens: int = _figure(
        13_000, unit="tokens", low=0, meaning="automatic compaction starts this far below the effective window"
    )
    warning_buffer_tokens: int = _figure(
        20_000, unit="tokens", low=0, meaning="the warning level starts this far below the effective window"
    )
    error_buffer_tokens: int = _figure(
        20_000, unit="tokens", low=0, meaning="the error level starts this far below the effective window"
    )
    smallest_threshold_share: float = _figure(
        0.5, unit="share", low=0.1, high=1, meaning="floor of every threshold, as a share of the effective window"
    )
    smallest_effective_share: float = _figure(
        0.1, unit="share", low=0.01, high=1, meaning="floor of the effective window, as a share of the context window"
    )
    context_window: int | None = _figure(
        None,
        optional=True,
        unit="tokens",
        low=1_000,
        high=10_000_000,
        env="CLAUDE_CODE_AUTO_COMPACT_WINDOW",
        meaning="context window in place of the model's own; not set: the model's own",
    )
    auto_compact_pct: int | None = _figure(
        None,
        optional=True,
        unit="percent",
        low=1,
        high=100,
        env="CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
        meaning="automatic threshold as a percentage of the effective window; can only lower it",
    )
    auto_compact_bytes: int = _figure(
        28_000_000,
        unit="bytes",
        low=100_000,
        high=32_000_000,
        meaning="automatic compaction starts when a request's messages hold this much; the API takes bodies of 32 MB",
    )
    compaction_enabled: bool = _figure(
        True,
        unit="switch",
        env="!DISABLE_COMPACT",
        off_is_final=True,
        meaning="whether anything may be compacted at all; switched off in the environment, it stays off",
    )
    auto_compact_enabled: bool = _figure(
        True,
        unit="switch",
        env="!DISABLE_AUTO_COMPACT",
        off_is_final=True,
        meaning="whether compaction may start by itself; switched off in the environment, it stays off",
    )

    # Automatic compaction: what counts as a success, and when it stops by itself (S8, S10; decision 9)
    breaker_failures: int = _figure(
        3, unit="runs", low=1, meaning="failed runs in a row after which nothing starts by itself any more"
    )
    breaker_ineffective: int = _figure(
        3, unit="runs", low=1, meaning="runs in a row that did not help, after which nothing starts by itself"
    )
    breaker_cooldown_seconds: int = _figure(
        3_600, unit="seconds", low=1, meaning="after this an open breaker allows one automatic try"
    )
    least_freed_share: float = _figure(
        0.05, unit="share", low=0, high=1, meaning="a compaction that frees a smaller share did not help"
    )
    auto_retry_tokens: int = _figure(
        2_000,
        unit="tokens",
        low=0,
        meaning="after a run that found nothing to compact, what is shown must have changed by this first",
    )
    decision_near_share: float = _figure(
        0.9, unit="share", low=0, high=1, meaning="decisions are kept from this share of the lowest threshold on"
    )

    # Light links: clearing old tool results (S2, S3, S4; decision 14). Trigger, number kept and batch of the edits are
    # the cheapest together on the recorded sessions (tests/benchmarks/clearing_settings.py).
    compactable_tools: ToolTable = _figure(  # noqa: RUF009
        COMPACTABLE_TOOLS,
        unit="tools",
        meaning="tools whose old results may be cleared; overrides add to the table, patterns such as mcp__* are taken",
    )
    time_based_enabled: bool = _figure(
        True, unit="switch", meaning="whether results are cleared once the prefix cache is cold"
    )
    time_based_idle_ms: int = _figure(
        300_000,
        unit="milliseconds",
        low=0,
        high=2_592_000_000,
        env="CLAUDE_CODE_TIME_BASED_MC_THRESHOLD_MS",
        meaning="the prefix cache is cold when the last assistant message is older than this",
    )
    time_based_keep_results: int = _figure(
        5, unit="results", low=0, meaning="most recent compactable results that stay when the cache is cold"
    )
    time_based_least_tokens: int = _figure(
        2_000, unit="tokens", low=0, meaning="after a first clearing a further one on a cold cache frees at least this"
    )
    cache_edits_enabled: bool = _figure(
        True, unit="switch", meaning="whether results are cleared by edits on the API's side"
    )
    cache_edit_dialect: str = _figure(
        "context_management",
        unit="dialect",
        choices=CACHE_EDIT_DIALECTS,
        env="CACHE_EDIT_DIALECT",
        meaning="how the API is told; cache_edits is refused by the public API",
    )
    cache_edit_trigger_results: int = _figure(
        10, unit="results", low=1, meaning="edits begin when more compactable results than this are shown"
    )
    cache_edit_keep_results: int = _figure(
        3, unit="results", low=0, meaning="most recent compactable results that edits leave alone"
    )
    clear_least_tokens: int = _figure(
        20_000, unit="tokens", low=0, meaning="edits on a warm cache free at least this, so that rewriting it pays"
    )
    clear_least_result_bytes: int = _figure(
        50, unit="bytes", low=0, meaning="a shorter result is left alone: its placeholder would save nothing"
    )
    light_enough_share: float = _figure(
        0.85, unit="share", low=0.1, high=1, meaning="clearing alone is enough up to this share of the auto threshold"
    )

    # Models (S8): asked of the provider, where there is a key
    catalog_refresh_seconds: int = _figure(
        86_400,
        unit="seconds",
        low=60,
        service=True,
        meaning="how long windows that the provider told are not asked again",
    )
    catalog_retry_seconds: int = _figure(
        300, unit="seconds", low=1, service=True, meaning="pause before the provider is asked again that did not tell"
    )
    catalog_held_seconds: int = _figure(
        5, unit="seconds", low=0, service=True, meaning="how long a process holds what it read of models in the cache"
    )
    catalog_pause_seconds: int = _figure(
        30, unit="seconds", low=0, service=True, meaning="pause before a cache is read again that did not answer"
    )
    catalog_ask_seconds: int = _figure(
        10, unit="seconds", low=1, service=True, meaning="longest wait for the provider's list of models"
    )
    count_exact_seconds: int = _figure(
        60, unit="seconds", low=1, service=True, meaning="longest wait for the provider's count of a context"
    )

    # Estimates (S12)
    estimate_tolerance_share: float = _figure(
        0.1,
        service=True,
        unit="share",
        low=0,
        high=0.9,
        meaning="how far an estimate may be off before a usage contradicts it",
    )

    calibration_half_tokens: int = _figure(
        40_000,
        service=True,
        unit="tokens",
        low=1,
        meaning="what a step taught about a session's estimates counts half after so many estimated tokens more",
    )
    calibration_prior_tokens: int = _figure(
        20_000,
        service=True,
        unit="tokens",
        low=1,
        meaning="a session begins as if so many tokens had been billed as estimated",
    )
    calibration_least_tokens: int = _figure(
        100, service=True, unit="tokens", low=1, meaning="a step that is estimated smaller teaches nothing"
    )
    calibration_least_ratio: float = _figure(
        0.6,
        service=True,
        unit="factor",
        low=0.1,
        high=1,
        meaning="least of billed / estimated that is believed, of one step and of a session (facts: Anthropic API, 13)",
    )
    calibration_most_ratio: float = _figure(
        2.5, service=True, unit="factor", low=1, high=10, meaning="most of billed / estimated that is believed"
    )

    old_context_share: float = _figure(
        0.15,
        unit="share",
        low=0,
        service=True,
        meaning="how far apart the contexts before and after a boundary must lie to tell whose a later usage is",
    )
    largest_overhead_tokens: int = _figure(
        60_000,
        unit="tokens",
        low=0,
        meaning="more than this is history that its client did not give; it is not sent after a compaction of ours",
    )

    # Full compaction (S5): how big what replaces the history may be
    full_budget_share: float = _figure(
        0.2, unit="share", low=0.01, high=0.9, meaning="summary and kept tail together, as a share of what they replace"
    )
    full_budget_tokens: int = _figure(
        16_000, unit="tokens", low=500, meaning="most that summary and kept tail may take together"
    )
    full_budget_floor_tokens: int = _figure(
        6_000, unit="tokens", low=0, meaning="least that summary and kept tail may take, where so much is shown"
    )
    full_small_share: float = _figure(
        0.25, unit="share", low=0.05, high=0.95, meaning="where the overhead leaves no room: share of what is shown"
    )
    full_floor_share: float = _figure(
        0.6, unit="share", low=0.05, high=0.95, meaning="the floor never takes more of what is shown than this"
    )
    full_tail_share: float = _figure(
        0.3, unit="share", low=0, high=0.9, meaning="share of that budget for recent rounds kept verbatim; 0: none"
    )
    waiting_round_tokens: int = _figure(
        8_000, unit="tokens", low=0, meaning="a round that waits for a person's answer is kept up to this size"
    )
    full_target_share: float = _figure(
        0.3,
        unit="share",
        low=0.05,
        high=0.95,
        meaning="attachments stop where the context would pass this share of before",
    )
    summary_least_tokens: int = _figure(
        130, unit="tokens", low=1, meaning="nine headings alone take about this much; with less there is no summary"
    )
    summary_source_messages: int = _figure(
        20_000, unit="messages", low=100, meaning="newest stored messages that a summary is made from; prompts besides"
    )

    # The call of a model that writes the summary (S5, S16, S17; facts: Anthropic API, sections 3, 4 and 12)
    cache_prefix: bool = _figure(
        True,
        unit="switch",
        env="COMPACT_CACHE_PREFIX",
        meaning="the summary request shares the conversation's cached prefix; off: a small stand-alone request",
    )
    summary_language: str = _figure(
        "user",
        unit="language",
        choices=SUMMARY_LANGUAGES,
        meaning="language of a summary that a model writes; user: that of the user's messages",
    )
    summary_deadline_seconds: int = _figure(
        600,
        unit="seconds",
        low=1,
        high=1_700,
        meaning="longest that a run may wait for a model, all its calls together",
    )
    summary_silence_seconds: int = _figure(
        120, unit="seconds", low=1, high=1_700, meaning="a call is given up when the provider is silent for so long"
    )
    summary_retries: int = _figure(
        3, unit="calls", low=0, high=10, meaning="how often a call is made again that failed of overload or the network"
    )
    summary_retry_seconds: float = _figure(
        1.0, unit="seconds", low=0, high=60, meaning="pause before the first of these; it doubles from call to call"
    )
    summary_longest_pause_seconds: float = _figure(
        60.0, unit="seconds", low=0, meaning="a provider that asks to wait longer than this has failed"
    )
    native_deadline_share: float = _figure(
        0.5,
        unit="share",
        low=0.05,
        high=1,
        meaning="share of the deadline that the provider's own compaction may take; the rest is for another way",
    )
    ptl_retries: int = _figure(
        3,
        unit="calls",
        low=0,
        high=10,
        meaning="how often a request that was too long is made again without its oldest",
    )
    ptl_drop_share: float = _figure(
        0.2, unit="share", low=0.01, high=0.9, meaning="share of the rounds that go where the provider names no gap"
    )
    ptl_margin_share: float = _figure(
        0.05, unit="share", low=0, high=0.5, meaning="how much more than the gap goes, because rounds are estimated"
    )
    ptl_least_output_tokens: int = _figure(
        4_000, unit="tokens", low=100, meaning="a request may ask for as little output as this before rounds go"
    )
    ptl_digest_tokens: int = _figure(
        4_000, unit="tokens", low=0, meaning="rounds that had to go are told in so much, extracted without a model"
    )
    request_bytes: int = _figure(
        30_000_000,
        unit="bytes",
        low=10_000,
        high=32_000_000,
        meaning="largest body of a summary request; the API: 32 MB",
    )
    summary_cleared_tokens: int = _figure(
        20_000,
        unit="tokens",
        low=0,
        meaning="results that were cleared are shown again to whoever summarises, up to this",
    )
    summary_result_tokens: int = _figure(
        8_000, unit="tokens", low=100, meaning="most that one result or text takes in a stand-alone summary request"
    )
    last_resort: bool = _figure(
        True, unit="switch", meaning="the embedded summariser finishes an automatic run whose provider has failed"
    )
    prices: PriceTable = _figure(  # noqa: RUF009
        PRICES, unit="USD a million tokens", meaning="input and output price by model; overrides add to the table"
    )
    price_write_factor: float = _figure(
        1.25, unit="factor", low=0, high=10, meaning="price of writing the cache (5 minutes), in input prices"
    )
    price_long_write_factor: float = _figure(
        2.0, unit="factor", low=0, high=10, meaning="price of writing the cache for an hour, in input prices"
    )
    price_read_factor: float = _figure(
        0.1, unit="factor", low=0, high=10, meaning="price of reading the cache, in input prices"
    )

    # Session memory (S6)
    memory_enabled: bool = _figure(
        True, unit="switch", meaning="whether a session's memory document may stand for its past"
    )
    memory_tokens: int = _figure(
        12_000,
        unit="tokens",
        low=100,
        meaning="most that a memory takes in a context; the rest is cut, marked",
    )
    memory_section_tokens: int = _figure(
        2_000,
        unit="tokens",
        low=50,
        meaning="most that one section of it takes where all do not fit, unless its fair share is more",
    )
    memory_tail_least_tokens: int = _figure(
        10_000, unit="tokens", low=0, meaning="least of the newest messages that stays verbatim behind a memory"
    )
    memory_tail_least_texts: int = _figure(
        5, unit="messages", low=0, meaning="least number of messages with text that stays verbatim behind a memory"
    )
    memory_tail_tokens: int = _figure(
        40_000, unit="tokens", low=1, meaning="most of the newest messages that stays verbatim behind a memory"
    )
    memory_extraction: bool = _figure(
        True, unit="switch", meaning="whether a memory is written in the background as a session grows"
    )
    memory_first_tokens: int = _figure(
        10_000, unit="tokens", low=1, meaning="a memory is first written once this much was appended"
    )
    memory_step_tokens: int = _figure(
        5_000, unit="tokens", low=1, meaning="and again after this much more, together with the calls below"
    )
    memory_lost_seconds: int = _figure(
        600, unit="seconds", low=1, meaning="an extraction that was handed out so long ago is lost, and asked for again"
    )
    memory_step_calls: int = _figure(3, unit="calls", low=0, meaning="tool calls between two extractions of a memory")

    # A request that the provider has refused as too long (S19, reactive)
    reactive_compact: bool = _figure(
        False,
        unit="switch",
        env="REACTIVE_COMPACT",
        meaning="whether a client may ask for a context that fits after the provider refused its request as too long",
    )
    reactive_room_share: float = _figure(
        0.9, unit="share", low=0.1, high=1, meaning="share of the room that a context may take after that, at most"
    )

    # Candidates that somebody looks at first, and compactions of compactions
    approve_compactions: bool = _figure(
        False, unit="switch", meaning="whether a summary waits for somebody who accepts it, before it is stored"
    )
    rebuild_generations: int = _figure(
        3,
        unit="generations",
        low=1,
        meaning="once so many summaries lie between, a summary is made from originals again, and by our own summariser",
    )
    rebuild_chunks: int = _figure(
        8, unit="calls", low=1, high=100, meaning="most parts in which originals are read where they do not fit at once"
    )
    rebuild_deadline_share: float = _figure(
        0.6,
        unit="share",
        low=0.05,
        high=1,
        meaning="share of the deadline that this may take; the rest is for another way",
    )
    facts_tokens: int = _figure(
        2_000, unit="tokens", low=0, meaning="most that a boundary carries of what must survive the next compaction too"
    )
    fact_chars: int = _figure(
        400, unit="characters", low=80, meaning="most of one message or line among these; the rest is cut, marked"
    )

    # Attachments (S15)
    attached_skills: int = _figure(5, unit="skills", low=0, meaning="most recently used skills restored")
    attached_skill_tokens: int = _figure(5_000, unit="tokens", low=0, meaning="most that one restored skill may take")
    attached_skills_tokens: int = _figure(
        25_000, unit="tokens", low=0, meaning="most that all restored skills may take"
    )
    attached_delta_tokens: int = _figure(
        4_000, unit="tokens", low=0, meaning="most that each list of tools, agents or MCP instructions may take"
    )
    attached_calls_read: int = _figure(
        400, unit="calls", low=1, meaning="newest calls on files that are searched for what to restore"
    )
    attached_files: int = _figure(5, unit="files", low=0, meaning="most recently read files restored after compaction")
    attached_least_tokens: int = _figure(
        200, unit="tokens", low=0, meaning="where less is left than this, a file or plan is not restored at all"
    )
    attached_file_tokens: int = _figure(5_000, unit="tokens", low=0, meaning="most that one restored file may take")
    attached_files_tokens: int = _figure(50_000, unit="tokens", low=0, meaning="most that all restored files may take")
    attached_plan_tokens: int = _figure(5_000, unit="tokens", low=0, meaning="most that the restored plan may take")

    # Context analysis (S13)
    analysis_rows: int = _figure(
        10, service=True, unit="rows", low=1, meaning="how many files, messages and tools an analysis lists"
    )
    analysis_tracked: int = _figure(
        2_000,
        service=True,
        unit="calls",
        low=1,
        meaning="newest calls, and files read, that an analysis remembers: a result is looked for no further back",
    )
    analysis_notable_share: float = _figure(
        0.05, service=True, unit="share", low=0, high=1, meaning="an analysis remarks on waste from this share on"
    )
    analysis_large_share: float = _figure(
        0.25,
        service=True,
        unit="share",
        low=0,
        high=1,
        meaning="an analysis remarks on one tool, on overhead and on a difference from this share on",
    )

    # Embedded summariser (B3). Shares are of the summary's budget and are caps, filled in this order: what a section
    # leaves unused flows on (facts: quality.md, the waterfall; figures tuned with tools/measure_compaction.py).
    extract_user_share: float = _figure(
        0.36, unit="share", low=0, high=1, meaning="most that the human's messages may take of an extractive summary"
    )
    extract_request_share: float = _figure(
        0.05, unit="share", low=0, high=1, meaning="most that section 1 and the instructions add to that"
    )
    extract_files_share: float = _figure(
        0.16, unit="share", low=0, high=1, meaning="most that the list of files may take of an extractive summary"
    )
    extract_errors_share: float = _figure(
        0.12, unit="share", low=0, high=1, meaning="most that errors with their fixes may take of an extractive summary"
    )
    extract_todos_share: float = _figure(
        0.12, unit="share", low=0, high=1, meaning="most that todo items and plan may take of an extractive summary"
    )
    extract_work_share: float = _figure(
        0.06,
        unit="share",
        low=0,
        high=1,
        meaning="most that current work and next step may take of an extractive summary",
    )
    extract_commands_share: float = _figure(
        0.18, unit="share", low=0, high=1, meaning="most that the commands run may take of an extractive summary"
    )
    extract_findings_share: float = _figure(
        0.04, unit="share", low=0, high=1, meaning="most that findings and decisions may take of an extractive summary"
    )
    extract_terms_share: float = _figure(
        0.02, unit="share", low=0, high=1, meaning="most that the key terms may take of an extractive summary"
    )
    extract_lines_share: float = _figure(
        0.26,
        unit="share",
        low=0,
        high=1,
        meaning="least that key lines and names get, whatever the sections would take",
    )
    extract_lines_kept_share: float = _figure(
        0.45, unit="share", low=0, high=1, meaning="what is left above this goes to the human's messages that were cut"
    )
    extract_result_head_chars: int = _figure(
        60_000, unit="characters", low=100, meaning="how far from its start one text is read for lines and names"
    )
    extract_result_tail_chars: int = _figure(
        20_000, unit="characters", low=0, meaning="how much of the end of a longer text is read as well"
    )
    extract_line_chars: int = _figure(
        240, unit="characters", low=20, meaning="longest line that may become a key line, an error line or a finding"
    )
    extract_command_chars: int = _figure(
        1_500, unit="characters", low=20, meaning="longest command that is repeated verbatim"
    )
    extract_reaction_calls: int = _figure(
        8, unit="calls", low=1, meaning="how many calls after a failure are searched for the reaction to it"
    )

    # Chances that a name or a line is written again within the next 40 messages; they fall as 1 / (1 + age / half age),
    # the age in messages. Counted on the recorded sessions; the shape matters, the second digit doesn't.
    extract_own_name_chance: float = _figure(
        0.4, unit="chance", low=0, high=1, meaning="a name that the agent has just written is written again"
    )
    extract_own_name_half_age: int = _figure(30, unit="messages", low=1, meaning="age at which that chance has halved")
    extract_repeat_gain: float = _figure(
        0.35,
        unit="share",
        low=0,
        meaning="what each of up to three more uses of a name or command adds",
    )
    extract_seen_name_chance: float = _figure(
        0.055, unit="chance", low=0, high=1, meaning="a name that a result or the human has just shown is written"
    )
    extract_seen_half_age: int = _figure(
        40, unit="messages", low=1, meaning="age at which the chance of what was only seen has halved"
    )
    extract_own_line_chance: float = _figure(
        0.2, unit="chance", low=0, high=1, meaning="a line that the agent has just written is written again"
    )
    extract_own_line_half_age: int = _figure(12, unit="messages", low=1, meaning="age at which that chance has halved")
    extract_repeated_line_factor: float = _figure(
        2.5, unit="factor", low=1, meaning="how much likelier an own line returns that was there more than once"
    )
    extract_seen_line_chance: float = _figure(
        0.015, unit="chance", low=0, high=1, meaning="a line that has just been shown is written"
    )
    extract_shown_name_share: float = _figure(
        0.04, unit="share", low=0, high=1, meaning="worth of a further line with a name that is shown already"
    )
    extract_bare_line_share: float = _figure(
        0.2, unit="share", low=0, high=1, meaning="worth of a line without any name: it takes what is left over"
    )
    extract_wanted_chance: float = _figure(
        0.5, unit="chance", low=0, high=1, meaning="added for each name or word of the person's instructions"
    )
    extract_name_cost_share: float = _figure(
        0.9, unit="share", low=0.1, meaning="below 1 single names are preferred over lines"
    )
    extract_shortest_line_chars: int = _figure(
        24,
        unit="characters",
        low=1,
        meaning="shortest line that may become a key line (facts: quality.md, metric line)",
    )
    extract_names_per_row: int = _figure(12, unit="names", low=1, meaning="how many names stand on a row of the ledger")
    extract_quote_chars: int = _figure(
        300, unit="characters", low=20, meaning="longest quotation from the agent's texts or the instructions"
    )
    extract_request_chars: int = _figure(
        160, unit="characters", low=20, meaning="how much of a request section 1 quotes; section 6 has it whole"
    )
    extract_path_chars: int = _figure(400, unit="characters", low=20, meaning="longest path that is listed uncut")
    extract_favour: int = _figure(
        2, unit="factor", low=1, meaning="how much longer than others the first and newest message may be before a cut"
    )
    extract_least_marks: int = _figure(
        2, unit="cut marks", low=2, meaning="a message is cut only where it keeps this many times what the mark costs"
    )
    extract_scaffold_share: float = _figure(
        0.25, unit="share", low=0, high=1, meaning="above this share of the budget the scaffold leaves placeholders out"
    )
    extract_last_actions: int = _figure(3, unit="actions", low=1, meaning="how many last actions current work names")

    # Runs
    lease_seconds: int = _figure(60, unit="seconds", low=5, meaning="a worker that is silent for longer lost its run")
    progress_seconds: int = _figure(
        1, service=True, unit="seconds", low=0, meaning="progress lands on a run's row at most this often"
    )
    sweep_seconds: int = _figure(
        30, service=True, unit="seconds", low=1, meaning="pause between sweeps for runs left behind"
    )
    sweep_sessions: int = _figure(
        100,
        service=True,
        unit="sessions",
        low=1,
        meaning="most sessions over their threshold that one sweep decides for; the next goes on from there",
    )
    hand_out_again_seconds: int = _figure(
        300,
        service=True,
        unit="seconds",
        low=5,
        meaning="a queued run that nobody took is given to the queue again after this",
    )
    run_attempts: int = _figure(3, unit="attempts", low=1, meaning="how often a run is taken up again before it fails")
    run_stages: int = _figure(
        200, service=True, unit="stages", low=10, meaning="most that are kept of a run; about ten an attempt"
    )

    # Hooks
    hook_timeout_seconds: int = _figure(
        5, unit="seconds", low=1, high=30, meaning="how long a hook may take where it sets nothing else"
    )
    hook_tries: int = _figure(8, service=True, unit="tries", low=1, meaning="how often an event is sent to a hook")
    hook_retry_seconds: int = _figure(
        5,
        service=True,
        unit="seconds",
        low=0,
        meaning="pause before the second try; it grows five times each, to 6 hours",
    )
    hook_longest_pause_seconds: int = _figure(
        21_600, service=True, unit="seconds", low=1, meaning="longest pause between two tries"
    )
    hook_answer_bytes: int = _figure(
        65_536, service=True, unit="bytes", low=100, meaning="a longer answer of a hook is not read"
    )
    hook_instruction_chars: int = _figure(
        4_000, service=True, unit="characters", low=0, meaning="most that a hook's instructions may take"
    )

    # Import
    import_batch_lines: int = _figure(200, unit="lines", low=1, meaning="lines of a transcript that are stored at once")
    import_batch_bytes: int = _figure(
        8_000_000, unit="bytes", low=1, meaning="a batch ends after this much, so that long lines do not add up"
    )
    import_kept_problems: int = _figure(
        1_000, unit="lines", low=1, meaning="lines not understood that a report lists; the rest is counted"
    )
    import_line_bytes: int = _figure(
        64_000_000, unit="bytes", low=1_000, meaning="a longer line is reported and passed over, so memory stays flat"
    )
    import_sessions: int = _figure(
        1_000, service=True, unit="sessions", low=1, meaning="most that one file may hold; one with more is refused"
    )
    import_inline_bytes: int = _figure(
        1_000_000, service=True, unit="bytes", low=0, meaning="a larger transcript is imported by the worker"
    )
    import_upload_bytes: int = _figure(
        1_000_000_000, service=True, unit="bytes", low=1_000, meaning="largest transcript that imports/ takes, as sent"
    )
    import_unpacked_bytes: int = _figure(
        2_000_000_000, service=True, unit="bytes", low=1_000, meaning="most that a gzip of it may unpack to"
    )
    import_orphan_hours: int = _figure(
        24, service=True, unit="hours", low=1, meaning="an upload that belongs to no import is deleted after this"
    )

    # REST API
    api_requests_per_minute: int = _figure(
        6_000, unit="requests", low=0, meaning="most that one API key may send in a minute; 0: as many as it likes"
    )
    api_rate_pause_seconds: int = _figure(
        30, service=True, unit="seconds", low=0, meaning="pause before requests are counted again in a silent cache"
    )
    idempotency_hours: int = _figure(
        24, service=True, unit="hours", low=1, meaning="how long the answer to an Idempotency-Key is kept"
    )
    idempotency_lost_seconds: int = _figure(
        120, service=True, unit="seconds", low=61, meaning="a call that has no answer by then has lost its server"
    )
    idempotency_retry_seconds: int = _figure(
        1, service=True, unit="seconds", low=1, meaning="when a call may be sent again whose first one is under way"
    )
    idempotency_purge_rows: int = _figure(
        1_000, service=True, unit="answers", low=1, meaning="most answers past their time that one sweep deletes"
    )
    events_poll_seconds: float = _figure(
        0.5, service=True, unit="seconds", low=0.05, meaning="how often the rows of watched runs are looked at"
    )
    events_heartbeat_seconds: float = _figure(
        15, service=True, unit="seconds", low=0.05, meaning="a stream of events that has nothing to tell says so"
    )
    events_retry_seconds: float = _figure(
        2, service=True, unit="seconds", low=0.05, meaning="when a client comes again whose stream has broken"
    )
    events_stream_seconds: float = _figure(
        900,
        service=True,
        unit="seconds",
        low=0.05,
        meaning="a stream lasts no longer; whoever comes again is asked for a key again, which may be revoked by now",
    )

    search_snippet_chars: int = _figure(
        160, service=True, unit="characters", low=20, meaning="what a hit of a search shows of its text"
    )
    telemetry_top_sessions: int = _figure(
        10, service=True, unit="sessions", low=1, meaning="sessions that telemetry lists by tokens freed"
    )


FIGURES: dict[str, Field[Any]] = {f.name: f for f in fields(Policy)}
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """A policy; for each figure that is not at its default, who set it; and stored values that are not allowed."""

    policy: Policy
    origins: Mapping[str, str]
    ignored: tuple[str, ...] = ()

    def origin(self, name: str) -> str:
        """Who set a figure: "default", "environment", "team" or "session"."""
        return self.origins.get(name, DEFAULT)


def check(*, name: str, value: object) -> Any:
    """The value in the figure's own type, as a team or a session may set it.

    Raises PolicyError naming the figure, the value and what is allowed.
    """
    figure = FIGURES.get(name)
    if figure is None:
        raise PolicyError(f"{name}: no such figure")
    if figure.metadata["service"]:
        raise PolicyError(f"{name}: holds for the whole service; no team or session sets it")
    return checked(name=name, value=value, metadata=figure.metadata)


def resolve(
    *,
    environment: Mapping[str, object] | None = None,
    team: Mapping[str, object] | None = None,
    session: Mapping[str, object] | None = None,
) -> ResolvedPolicy:
    """Lay the layers over the defaults, later ones winning. Keys are figure names; None values are skipped.

    A table of tools or prices is laid row by row. A switch whose `off_is_final` stays off where the environment says
    so: the operator's way to stop it everywhere at once. Values are refused where they enter (`check`). One that is
    stored all the same, say by an earlier release that knew another figure, must not stop every append: it is left out
    and named in `ignored`.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    ignored: list[str] = []
    for origin, layer in (("environment", environment), ("team", team), ("session", session)):
        for name, value in (layer or {}).items():
            if value is None:
                continue
            try:
                taken = check(name=name, value=value)
            except PolicyError as error:
                ignored.append(f"{origin}: {error}")
                continue
            if values.get(name) is False and origins[name] == "environment" and FIGURES[name].metadata["off_is_final"]:
                continue
            before = values.get(name, FIGURES[name].default)
            values[name] = before.overridden(taken) if isinstance(before, Tables) else taken
            origins[name] = origin
    return ResolvedPolicy(policy=replace(Policy(), **values), origins=origins, ignored=tuple(ignored))

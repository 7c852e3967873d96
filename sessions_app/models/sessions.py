"""A session: one conversation of one agent, with counters that keep append and decision flat."""

from __future__ import annotations

import uuid
from typing import Self

from django.db import models

from sessions_app.models.fields import ExactJSONField
from sessions_app.models.teams import Team
from sessions_app.policy import Policy
from sessions_app.transcript.window import Level

LEVEL_CHOICES = [(level.value, level.value.replace("_", " ")) for level in Level]


class SessionQuerySet(models.QuerySet["Session"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(team=team)


class Session(models.Model):
    class Thread(models.TextChoices):
        MAIN = "main"
        SUBAGENT = "subagent"

    class ContextSource(models.TextChoices):
        """What `context_tokens` rests on (facts: a figure says whether it was measured or estimated)."""

        USAGE = "usage"
        USAGE_AND_ESTIMATE = "usage+estimate"
        ESTIMATE = "estimate"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="sessions")
    external_id = models.CharField(max_length=255, null=True, blank=True)
    title = models.CharField(max_length=300, blank=True)
    model = models.CharField(max_length=200, blank=True)
    thread = models.CharField(max_length=10, choices=Thread, default=Thread.MAIN)
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    # Where the history came from: "api", or the transcript format that was imported.
    source = models.CharField(max_length=30, default="api")
    system = ExactJSONField(null=True, blank=True)
    tools = ExactJSONField(null=True, blank=True)
    metadata = ExactJSONField(default=dict, blank=True)
    policy_overrides = models.JSONField(default=dict, blank=True, help_text="figures of the policy table, by name")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    last_message_at = models.DateTimeField(null=True, blank=True)
    last_assistant_at = models.DateTimeField(null=True, blank=True)

    # Counters, kept by append and by boundary commits under the session's row lock.
    last_position = models.PositiveIntegerField(default=0)
    leaf_position = models.PositiveIntegerField(default=0, help_text="newest message on the live path")
    # The last response: where it began and its API message id; where the last human prompt stands.
    round_position = models.PositiveIntegerField(default=0)
    round_message_id = models.CharField(max_length=255, null=True, blank=True)
    last_prompt_position = models.PositiveIntegerField(default=0)
    boundary_count = models.PositiveIntegerField(default=0)
    context_tokens = models.PositiveIntegerField(default=0)
    context_source = models.CharField(max_length=15, choices=ContextSource, default=ContextSource.ESTIMATE)
    peak_prompt_tokens = models.PositiveIntegerField(default=0, help_text="largest prompt that a response reported")
    view_tokens = models.PositiveIntegerField(
        default=0, help_text="estimate of what the model is shown, without overhead"
    )
    view_bytes = models.PositiveBigIntegerField(default=0, help_text="size of what a request's messages hold")
    # Of all that was ever appended to the conversation, so that what is due each so many can be told without a sum.
    appended_tokens = models.PositiveBigIntegerField(default=0, help_text="estimate of all messages appended so far")
    appended_calls = models.PositiveBigIntegerField(default=0, help_text="tool calls appended so far")
    overhead_tokens = models.PositiveIntegerField(default=0, help_text="system prompt and tools")
    given_overhead_tokens = models.PositiveIntegerField(
        default=0, help_text="estimate of the system prompt and tools that the client gave"
    )
    overhead_measured = models.BooleanField(default=False, help_text="taken from a usage, not from system and tools")
    overhead_due = models.BooleanField(default=True, help_text="the next usage measures the overhead")
    # How full it was when it last changed; a figure that changes since is taken in with the next append.
    level = models.CharField(max_length=15, choices=LEVEL_CHOICES, default=Level.OK.value)
    # How far this session's estimates were off, by model (sessions_app/transcript/calibration.py).
    calibration = ExactJSONField(null=True, blank=True)
    # The newest boundary: the context before it, and what was shown right after. They tell which of the two a later
    # usage is of (services/accounting.py). 0 where there was none.
    compacted_from_tokens = models.PositiveIntegerField(default=0)
    compacted_view_tokens = models.PositiveIntegerField(default=0)
    ignored_prompt_tokens = models.PositiveIntegerField(
        default=0, help_text="prompt of the last usage, where that was of another context than what would be sent now"
    )
    prepared = models.BooleanField(default=False, help_text="a client has asked what to send since the newest boundary")
    # The last usage (sessions_app/transcript/tokens.py: UsageAnchor); void or null after a boundary until the next one.
    anchor = ExactJSONField(null=True, blank=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "external_id"], name="session_external_id_once"),
            models.CheckConstraint(
                condition=models.Q(leaf_position__lte=models.F("last_position")), name="session_leaf_is_stored"
            ),
        ]
        indexes = [
            models.Index(fields=["team", "-context_tokens", "-id"], name="session_fullest_first"),
            models.Index(fields=["team", "-id"], name="session_newest_first"),
            # The sweep for sessions that are over their threshold without a run.
            models.Index(
                fields=["id"], name="session_over_threshold", condition=models.Q(level=Level.AUTO_COMPACT.value)
            ),
        ]

    def __str__(self) -> str:
        return self.title or self.external_id or str(self.uuid)

    def fixed_overhead_tokens(self, *, policy: Policy) -> int:
        """What no compaction can take away. More than the policy's figure was measured because the client did not give
        all history, and that goes with a compaction: then only what the client gave as system prompt and tools."""
        if self.overhead_tokens > policy.largest_overhead_tokens:
            return self.given_overhead_tokens
        return self.overhead_tokens

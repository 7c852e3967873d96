"""Compact boundaries: rows that say how the history is to be read from then on."""

from __future__ import annotations

import uuid
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from sessions_app.models.fields import ExactJSONField
from sessions_app.models.sessions import Session
from sessions_app.models.teams import Team
from sessions_app.transcript import boundary as values

KIND_CHOICES = [(kind.value, kind.value.replace("_", " ")) for kind in values.BoundaryKind]
PLACEMENT_CHOICES = [(place.value, place.value.replace("_", " ")) for place in values.Placement]
CLEARING_CHOICES = [(way.value, way.value.replace("_", " ")) for way in values.Clearing]
SUMMARIZES = Q(kind__in=[kind.value for kind in values.SUMMARIZING_KINDS])


class BoundaryQuerySet(models.QuerySet["CompactBoundary"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(session__team=team)

    def summarizing(self) -> Self:
        return self.filter(SUMMARIZES)


class CompactBoundary(models.Model):
    class Trigger(models.TextChoices):
        AUTO = "auto"
        MANUAL = "manual"
        PREPARE = "prepare"
        REACTIVE = "reactive"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="boundaries")
    kind = models.CharField(max_length=20, choices=KIND_CHOICES)
    trigger = models.CharField(max_length=10, choices=Trigger)
    covers_to = models.PositiveIntegerField(help_text="last position that is hidden")
    committed_at_position = models.PositiveIntegerField(help_text="the session's last position when this was written")
    summary = models.TextField(null=True, blank=True)
    summary_tokens = models.PositiveIntegerField(
        default=0, help_text="estimate of the message that the summary becomes"
    )
    # A provider's signed block in place of the summary, to the letter; the summary is then what a person reads of it.
    summary_blocks = ExactJSONField(null=True, blank=True)
    generation = models.PositiveSmallIntegerField(
        default=1, help_text="summaries between the originals and this text: 1 was made from originals alone"
    )
    # What must survive the next compaction too, as engine/facts.py keeps it.
    facts = ExactJSONField(null=True, blank=True)
    # What wrote the summary: "extractive", or the client whose transcript was imported.
    summarizer = models.CharField(max_length=40, blank=True)
    instructions = models.TextField(blank=True)
    # The call that wrote the summary, where a model did.
    model = models.CharField(max_length=200, blank=True)
    prompt_version = models.CharField(max_length=20, blank=True)
    response_id = models.CharField(max_length=128, blank=True)
    usage = ExactJSONField(null=True, blank=True, help_text="of all calls that led to the summary")
    # {"cleared": [{"cache", "scope", "why", "held_by"}], "kept": [the same], "failed": [the same, where any]} (S14).
    cleanup = ExactJSONField(null=True, blank=True)
    preserved_first = models.PositiveIntegerField(null=True, blank=True)
    preserved_last = models.PositiveIntegerField(null=True, blank=True)
    preserved_placement = models.CharField(max_length=15, choices=PLACEMENT_CHOICES, blank=True)
    base = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="the boundary that the kept early prefix is read through",
    )
    source_key = models.CharField(
        max_length=200, blank=True, help_text="key of the transcript's line that it was read from"
    )
    # The kept messages as their uuids, for a loader that rebuilds the chain (S7).
    head_uuid = models.CharField(max_length=128, blank=True)
    anchor_uuid = models.CharField(max_length=128, blank=True)
    tail_uuid = models.CharField(max_length=128, blank=True)
    cleared_tool_use_ids = ExactJSONField(default=list, blank=True)
    # The same with tool, position, tokens freed and reason (transcript/boundary.py: ClearedResult).
    cleared_results = ExactJSONField(default=list, blank=True)
    clearing = models.CharField(
        max_length=15,
        choices=CLEARING_CHOICES,
        default=values.Clearing.PLACEHOLDER.value,
        help_text="how results are cleared",
    )
    why = models.TextField(blank=True, help_text="what a light link did, in words")
    tokens_before = models.PositiveIntegerField()
    tokens_after = models.PositiveIntegerField(null=True, blank=True)
    # Counted by the API after the compaction, where there is a key; the figures above are estimates.
    tokens_after_exact = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField()
    reverted_at = models.DateTimeField(null=True, blank=True)
    reverted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    reverted_with = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="fell_with",
        help_text="the summarising boundary that was taken back, itself or the one below; null where a rewind did it",
    )
    # The moment of it without a clock, so that an earlier context can be told exactly.
    reverted_after = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="key of the session's newest boundary then"
    )
    reverted_position = models.PositiveIntegerField(null=True, blank=True, help_text="the session's last position then")
    restores = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="restored_by",
        help_text="the boundary whose copy this one is, the first of them all",
    )

    objects = BoundaryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "compact boundaries"
        constraints = [
            models.CheckConstraint(
                condition=(SUMMARIZES & Q(summary__isnull=False) & ~Q(summary=""))
                | (~SUMMARIZES & Q(summary__isnull=True)),
                name="boundary_summary_when_it_summarizes",
            ),
            models.CheckConstraint(
                condition=Q(preserved_first__isnull=True, preserved_last__isnull=True, preserved_placement="")
                | (
                    Q(preserved_first__isnull=False, preserved_last__gte=models.F("preserved_first"))
                    & ~Q(preserved_placement="")
                ),
                name="boundary_preserved_whole_or_none",
            ),
            models.CheckConstraint(
                condition=Q(covers_to__lte=models.F("committed_at_position")), name="boundary_covers_history"
            ),
        ]
        indexes = [
            # The head of the view in one look-up.
            models.Index(fields=["session", "-id"], name="boundary_head", condition=Q(reverted_at__isnull=True)),
            # What a time has brought.
            models.Index(fields=["session", "created_at"], name="boundary_by_time"),
            # The few that were taken back, so that a view need not look through all of them.
            models.Index(
                fields=["session", "reverted_position"],
                name="boundary_taken_back",
                condition=Q(reverted_position__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} to {self.covers_to}"

    def as_value(self) -> values.Boundary:
        """The boundary with its attachments, which should have been prefetched; a `base` costs two more queries."""
        preserved = None
        if self.preserved_first is not None and self.preserved_last is not None:
            preserved = values.PreservedSegment(
                first=self.preserved_first,
                last=self.preserved_last,
                placement=values.Placement(self.preserved_placement),
            )
        return values.Boundary(
            id=str(self.uuid),
            kind=values.BoundaryKind(self.kind),
            covers_to=self.covers_to,
            committed_at=self.committed_at_position,
            created_at=self.created_at,
            sequence=self.pk,
            summary=self.summary,
            summary_tokens=self.summary_tokens,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after or 0,
            preserved=preserved,
            attachments=tuple(attachment.as_value() for attachment in self.attachments.all()),
            cleared_tool_use_ids=frozenset(self.cleared_tool_use_ids),
            cleared_at=frozenset((row["position"], row["tool_use_id"]) for row in self.cleared_results),
            clearing=values.Clearing(self.clearing),
            reverted_at=self.reverted_at,
            reverted_after=self.reverted_after,
            reverted_position=self.reverted_position,
            origin=self.lineage,
            summary_blocks=tuple(self.summary_blocks or ()),
            generation=self.generation,
            base=self.base.as_value() if self.base else None,
        )

    @property
    def lineage(self) -> int:
        """Key of the boundary that this one is, or is a copy of: the same for all that show the same."""
        return self.restores_id or self.pk

    def as_past_value(self) -> values.Boundary:
        """Of a boundary that was taken back: when it held, and nothing of what it showed. No query."""
        return values.Boundary(
            id=str(self.uuid),
            kind=values.BoundaryKind(self.kind),
            covers_to=self.covers_to,
            committed_at=self.committed_at_position,
            created_at=self.created_at,
            sequence=self.pk,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after or 0,
            reverted_at=self.reverted_at,
            reverted_after=self.reverted_after,
            reverted_position=self.reverted_position,
            origin=self.lineage,
        )


class Attachment(models.Model):
    """State that stands after a boundary's summary: a file's content, the plan."""

    boundary = models.ForeignKey(CompactBoundary, on_delete=models.PROTECT, related_name="attachments")
    ordinal = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=40)
    text = models.TextField()
    payload = ExactJSONField(default=dict, blank=True)
    tokens = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["ordinal"]  # a handful of rows each, and their order is part of what the model sees
        constraints = [models.UniqueConstraint(fields=["boundary", "ordinal"], name="attachment_ordinal_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.ordinal}"

    def as_value(self) -> values.AttachmentValue:
        return values.AttachmentValue(kind=self.kind, text=self.text, payload=self.payload, tokens=self.tokens)

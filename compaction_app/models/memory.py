"""The memory of a session (S6): a Markdown document, and how far into the history it reaches."""

from __future__ import annotations

from django.db import models

from compaction_app.engine.memory import says_nothing
from sessions_app.models import Session
from sessions_app.models.fields import StorableTextField


class SessionMemory(models.Model):
    """One a session; a later one takes its place."""

    class Source(models.TextChoices):
        CLIENT = "client"
        EXTRACTED = "extracted"

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="memory")
    content = StorableTextField(blank=True)
    covers_uuid = models.CharField(max_length=128, blank=True, help_text="last message that it covers")
    covers_position = models.PositiveIntegerField(default=0)
    source = models.CharField(max_length=10, choices=Source)
    # What extracted it; "" where a client gave it.
    summarizer = models.CharField(max_length=40, blank=True)
    model = models.CharField(max_length=200, blank=True)
    generation = models.PositiveSmallIntegerField(default=1, help_text="as of a boundary's summary")
    tokens = models.PositiveIntegerField(default=0, help_text="estimate of the whole document")
    updated_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "session memories"

    def __str__(self) -> str:
        return f"memory up to position {self.covers_position}"

    @property
    def is_kept_by_client(self) -> bool:
        """Whether a client gave it, and it says something: then none is extracted."""
        return self.source == self.Source.CLIENT and not says_nothing(content=self.content)

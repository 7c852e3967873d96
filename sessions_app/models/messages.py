"""The history: append-only rows. Nothing here is ever edited or deleted but `left_path_at`, an index of ours."""

from __future__ import annotations

from typing import Self

from django.db import models

from sessions_app.models.fields import ExactJSONField
from sessions_app.models.sessions import Session
from sessions_app.transcript import messages as values

ROLE_CHOICES = [(role.value, role.value) for role in values.Role]
KIND_CHOICES = [(kind.value, kind.value.replace("_", " ")) for kind in values.MessageKind]


class MessageQuerySet(models.QuerySet["Message"]):
    def live_at(self, position: int) -> Self:
        """Messages that were on the live path when the session had `position` messages."""
        return self.filter(
            models.Q(left_path_at__isnull=True) | models.Q(left_path_at__gt=position),
            position__lte=position,
            is_sidechain=False,
        )


class Message(models.Model):
    """One entry as its client gave it. `content` is the Messages API's shape, `envelope` the rest of the entry."""

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="messages")
    position = models.PositiveIntegerField()
    uuid = models.CharField(max_length=128)
    parent_uuid = models.CharField(max_length=128, blank=True)
    role = models.CharField(max_length=10, choices=ROLE_CHOICES)
    kind = models.CharField(max_length=20, choices=KIND_CHOICES, default=values.MessageKind.NORMAL)
    message_id = models.CharField(max_length=255, null=True, blank=True)
    model = models.CharField(max_length=200, blank=True)
    content = ExactJSONField()
    envelope = ExactJSONField(null=True, blank=True)
    digest = models.CharField(max_length=64)
    usage = ExactJSONField(null=True, blank=True)
    tokens = models.PositiveIntegerField(default=0)
    content_bytes = models.PositiveIntegerField(default=0, help_text="size of the content as JSON")
    is_meta = models.BooleanField(default=False)
    is_sidechain = models.BooleanField(default=False)
    is_prompt = models.BooleanField(default=False, help_text="typed by a person")
    # Position of the message that it hangs on, as the live path was followed; 0: on nothing.
    path_parent = models.PositiveIntegerField(null=True, blank=True)
    # Position of the message that took the conversation to another branch; null while on the live path.
    left_path_at = models.PositiveIntegerField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = MessageQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "position"], name="message_position_once"),
            models.UniqueConstraint(fields=["session", "uuid"], name="message_uuid_once"),
            models.CheckConstraint(condition=models.Q(position__gte=1), name="message_position_from_1"),
        ]
        indexes = [
            # What the human asked for, in order: the summariser and the history page's "prompts only".
            models.Index(fields=["session", "position"], name="message_prompts", condition=models.Q(is_prompt=True)),
            # What was left behind since a moment: a boundary's commit asks, and its cost must not follow the history.
            models.Index(
                fields=["session", "left_path_at"],
                name="message_left_path",
                condition=models.Q(left_path_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.position} {self.role}"

    def as_value(self) -> values.Message:
        return values.Message(
            position=self.position,
            uuid=self.uuid,
            role=values.Role(self.role),
            content=self.content,
            tokens=self.tokens,
            content_bytes=self.content_bytes,
            message_id=self.message_id,
            kind=values.MessageKind(self.kind),
            is_meta=self.is_meta,
            is_sidechain=self.is_sidechain,
            model=self.model or None,
            sent_at=self.sent_at,
            usage=values.Usage.from_json(self.usage),
            left_path_at=self.left_path_at,
        )


class ToolCall(models.Model):
    """An index of tool_use and tool_result blocks, so that nobody has to search contents for them.

    A use without a result is an open (or dead) call; a result without a use is an orphan. Clients that run parallel
    calls while the response still streams write some results before their use, so neither position is always the
    smaller. Real histories use one id twice, so the id alone is not unique.
    """

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="tool_calls")
    tool_use_id = models.CharField(max_length=255)
    name = models.CharField(max_length=200, blank=True)
    target = models.CharField(max_length=1000, blank=True, help_text="the file that the call names")
    use_position = models.PositiveIntegerField(null=True, blank=True)
    result_position = models.PositiveIntegerField(null=True, blank=True)
    result_tokens = models.PositiveIntegerField(default=0)
    is_error = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "use_position", "tool_use_id"], name="tool_call_once"),
            models.CheckConstraint(
                condition=models.Q(use_position__isnull=False) | models.Q(result_position__isnull=False),
                name="tool_call_has_a_place",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "tool_use_id"], name="tool_call_by_id"),
            models.Index(fields=["session", "result_position"], name="tool_call_by_result"),
            # The newest calls of a tool, however many others there are: what to restore after a compaction.
            models.Index(fields=["session", "name", "use_position"], name="tool_call_by_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.tool_use_id} at {self.use_position or self.result_position}"


class TranscriptEntry(models.Model):
    """A line of an imported transcript that is no message (progress, system, attachment, title, unknown), kept raw.

    Needed for the way back out, and to resolve a message whose parent is such a line.
    """

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="entries")
    key = models.CharField(max_length=200, help_text="the entry's uuid, else line number and digest")
    line_number = models.PositiveIntegerField()
    after_position = models.PositiveIntegerField(help_text="last message before it in the file")
    # The message that this line hangs on, through other such lines; 0: on nothing; null: not known.
    anchor_position = models.PositiveIntegerField(null=True, blank=True)
    type = models.CharField(max_length=60)
    subtype = models.CharField(max_length=60, blank=True)
    raw = ExactJSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "key"], name="entry_once")]
        verbose_name_plural = "transcript entries"

    def __str__(self) -> str:
        return f"{self.type} line {self.line_number}"


class PathAbsence(models.Model):
    """Messages that had left the live path and have come back: a branch that was gone to again.

    Written once a return, so that the context of the time between can still be told exactly (decision 4).
    """

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="path_absences")
    left_at = models.PositiveIntegerField(help_text="position of the message with which they left the path")
    back_at = models.PositiveIntegerField(help_text="position of the message with which they came back")
    positions = ExactJSONField(default=list)

    class Meta:
        indexes = [models.Index(fields=["session", "left_at"], name="path_absence_by_left")]

    def __str__(self) -> str:
        return f"away from {self.left_at} to {self.back_at}"

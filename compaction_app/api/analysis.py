"""sessions/{id}/analysis/: what fills the context."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from sessions_app.models import Session
from sessions_app.transcript.analysis import Part

PERCENT = "Per cent of the context, one digit after the point."
EACH_PART = {
    Part.PROMPTS: "What people typed.",
    Part.INJECTED: "Text in user messages that nobody typed: reminders, notices, marks of commands.",
    Part.LOCAL_OUTPUT: "Output of commands that a person ran in the client.",
    Part.ASSISTANT_TEXT: "The model's own text.",
    Part.THINKING: "The model's thinking.",
    Part.SYSTEM_TEXT: "Messages of role `system`.",
    Part.TOOL_REQUESTS: "Calls of tools.",
    Part.TOOL_RESULTS: "Results of tools, cleared ones at what their placeholder takes.",
    Part.MEDIA: "Images and documents that stand in messages by themselves; those in results are part of the results.",
    Part.SUMMARY: "The summary that stands for what was compacted.",
    Part.ATTACHMENTS: "State restored after the summary.",
    Part.OTHER: "Blocks of types that are not known.",
}


class Share(serializers.Serializer[Any]):
    tokens = serializers.IntegerField(help_text="Tokens.")
    percent = serializers.FloatField(help_text=PERCENT)


class Counted(Share):
    count = serializers.IntegerField(help_text="How many.")


class WholeContext(serializers.Serializer[Any]):
    tokens = serializers.IntegerField(help_text="Size of the context that would be sent now.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=Session.ContextSource.values, help_text="Whether that was measured by the API or estimated."
    )
    context_window = serializers.IntegerField(help_text="All that the model can take.")
    percent_used = serializers.FloatField(help_text="The context in per cent of the window.")


class Overhead(Share):
    measured = serializers.BooleanField(help_text="Whether the whole was taken from a usage, or is an estimate.")
    system = Share(help_text="The session's system prompt, estimated.")
    tools = Share(help_text="The session's tool definitions, estimated.")
    other = Share(help_text="The rest: what the client adds without telling.")


class Parts(serializers.Serializer[Any]):
    """They add up to what is shown."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {part.value: Share(help_text=meaning) for part, meaning in EACH_PART.items()}


class Shown(Share):
    messages = serializers.IntegerField(help_text="Stored messages that are shown.")
    parts = Parts(help_text="What they are; each token is counted once.")


class ToolRow(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="The tool; `(unknown)`: its call is not shown, `(others)`: after 200 tools.")
    calls = serializers.IntegerField(help_text="Calls that are shown.")
    request_tokens = serializers.IntegerField(help_text="What the calls take.")
    results = serializers.IntegerField(help_text="Results that are shown.")
    result_tokens = serializers.IntegerField(help_text="What the results take.")
    errors = serializers.IntegerField(help_text="Results that are errors.")  # type: ignore[assignment]
    cleared = serializers.IntegerField(help_text="Results that are shown as a placeholder.")
    percent = serializers.FloatField(help_text=PERCENT)


class AttachmentRow(Counted):
    kind = serializers.CharField(help_text="`file`, `plan`, …")


class ReadRow(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="The file.")
    reads = serializers.IntegerField(help_text="Readings of it that are shown.")
    repeated = serializers.IntegerField(help_text="Those whose lines a newer reading shows again.")
    wasted_tokens = serializers.IntegerField(help_text="What these take.")
    percent = serializers.FloatField(help_text=PERCENT)


class RepeatedReads(serializers.Serializer[Any]):
    repeated = serializers.IntegerField(help_text="Readings whose lines a newer one shows again, of all files.")
    wasted_tokens = serializers.IntegerField(help_text="What these take.")
    percent = serializers.FloatField(help_text=PERCENT)
    files = ReadRow(many=True, help_text="The files that waste most.")


class LargestRow(serializers.Serializer[Any]):
    position = serializers.IntegerField(help_text="Its number in the session.")
    uuid = serializers.CharField(help_text="Its uuid.")
    role = serializers.CharField(help_text="Its role.")
    what = serializers.ChoiceField(choices=[part.value for part in Part], help_text="What most of it is.")
    tool = serializers.CharField(help_text="The tool of a call or result, else empty.")
    target = serializers.CharField(help_text="The file that the call names, else empty.")
    tokens = serializers.IntegerField(help_text="What it takes.")
    percent = serializers.FloatField(help_text=PERCENT)


class LinkRow(serializers.Serializer[Any]):
    link = serializers.CharField(help_text="A light link: it clears old results without a summary.")
    would_run = serializers.BooleanField(help_text="Whether it would clear them now, if it were the only one.")
    why = serializers.CharField(help_text="Why, or why not, with figures.")
    results = serializers.IntegerField(help_text="Results that it clears once its moment has come.")
    tokens = serializers.IntegerField(help_text="What that frees.")


class AnalysisBody(serializers.Serializer[Any]):
    """`overhead`, `shown` and `difference` add up to the context. Parts and rows are estimates, all in tokens."""

    context = WholeContext(help_text="The whole.")  # type: ignore[assignment]
    overhead = Overhead(help_text="System prompt, tools and the like.")
    shown = Shown(help_text="What is shown of the conversation.")
    difference = Share(help_text="What the whole is beyond the estimates of its parts; below zero where it is less.")
    tools = ToolRow(many=True, help_text="By tool, largest first.")
    attachments = AttachmentRow(many=True, help_text="By kind, largest first.")
    images = Counted(help_text="Images, those in results included.")
    documents = Counted(help_text="Documents, those in results included.")
    repeated_reads = RepeatedReads(help_text="Files that were read more than once.")
    cleared = Counted(help_text="Results that are shown as a placeholder, and what they would take in full.")
    largest = LargestRow(many=True, help_text="The largest messages.")
    links = LinkRow(many=True, help_text="What each light link could free.")
    remarks = serializers.ListField(child=serializers.CharField(), help_text="What stands out, in words.")


class AnalysisView(ApiView):
    @extend_schema(
        summary="What fills the context",
        description="Reads all that is shown: on a session of 100,000 messages it takes seconds. Changes nothing.",
        responses=AnalysisBody,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        report = selectors.analysis(session=self.session(session_id), now=timezone.now())
        return Response(AnalysisBody(report.as_json()).data)

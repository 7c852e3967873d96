"""Sizes of what is stored already: of each message's content, of what each session's view holds, and of the system
prompt and tools that a client gave.

A migration imports no moving code, so it counts more plainly than an append does: a size is the length of the stored
text (a byte is a character, without the few words that stand before a summary and an attachment), a token is three
characters of JSON. The next boundary of a session counts its view exactly.
"""

import json

from django.db import migrations
from django.db.models import F, IntegerField, Q, Sum, TextField, Value
from django.db.models.functions import Cast, Coalesce, Length

BATCH = 10_000
AT_ONCE = 500  # values in one query
CHARACTERS_OF_A_TOKEN = 3


def fill(apps, schema_editor):
    Message = apps.get_model("sessions_app", "Message")
    newest = Message.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    for first in range(0, newest + 1, BATCH):
        Message.objects.filter(pk__gt=first, pk__lte=first + BATCH).update(content_bytes=_length("content"))
    _fill_given_overhead(apps)
    for session in apps.get_model("sessions_app", "Session").objects.only("pk").iterator(chunk_size=500):
        _fill_view(apps, session)


def _length(column):
    return Coalesce(Length(Cast(column, TextField())), Value(0), output_field=IntegerField())


def _fill_given_overhead(apps):
    """Until a usage measured it, the overhead was the estimate of what the client gave; then that is gone."""
    sessions = apps.get_model("sessions_app", "Session").objects
    sessions.filter(overhead_measured=False).update(given_overhead_tokens=F("overhead_tokens"))
    sessions.filter(overhead_measured=True).update(
        given_overhead_tokens=(_length("system") + _length("tools")) / CHARACTERS_OF_A_TOKEN
    )


def _fill_view(apps, session):
    in_force = apps.get_model("sessions_app", "CompactBoundary").objects.filter(session=session, reverted_at=None)
    head = in_force.exclude(kind="microcompact").order_by("-pk").first()
    shown = Q(position__gt=head.covers_to if head else 0)
    if head and head.preserved_first is not None:
        shown |= Q(position__range=(head.preserved_first, head.preserved_last))
    rows = apps.get_model("sessions_app", "Message").objects.filter(
        shown, session=session, left_path_at=None, is_sidechain=False, kind="normal"
    )
    total = rows.aggregate(total=Sum("content_bytes"))["total"] or 0
    cleared = _cleared(apps, session, rows, in_force.filter(pk__gte=head.pk if head else 0, clearing="placeholder"))
    size = max(total - cleared, 0) + (_put_in(apps, head) if head else 0)
    apps.get_model("sessions_app", "Session").objects.filter(pk=session.pk).update(view_bytes=size)


def _put_in(apps, head):
    """What the head boundary puts in: its summary and its attachments."""
    attachments = apps.get_model("sessions_app", "Attachment").objects.filter(boundary=head)
    return len(head.summary or "") + (attachments.aggregate(total=Sum(Length("text")))["total"] or 0)


def _cleared(apps, session, rows, boundaries):
    """What the results hold that are shown as placeholders."""
    sizes = {}
    for boundary in boundaries.order_by("pk"):
        places = {(row["position"], row["tool_use_id"]) for row in boundary.cleared_results}
        # A client's own clearing tells ids only: it holds for what stood before it.
        places = places or _places(apps, session, boundary)
        positions = sorted({position for position, _ in places})
        for first in range(0, len(positions), AT_ONCE):
            messages = rows.filter(position__in=positions[first : first + AT_ONCE], role="user")
            for position, content in messages.values_list("position", "content"):
                for block in content if isinstance(content, list) else ():
                    use_id = block.get("tool_use_id")
                    if block.get("type") == "tool_result" and isinstance(use_id, str) and (position, use_id) in places:
                        sizes[position, use_id] = _size(block.get("content"))
    return sum(sizes.values())


def _places(apps, session, boundary):
    calls = apps.get_model("sessions_app", "ToolCall").objects.filter(
        session=session, result_position__lte=boundary.committed_at_position
    )
    ids, found = boundary.cleared_tool_use_ids, set()
    for first in range(0, len(ids), AT_ONCE):
        wanted = calls.filter(tool_use_id__in=ids[first : first + AT_ONCE])
        found.update(wanted.values_list("result_position", "tool_use_id"))
    return found


def _size(content):
    if isinstance(content, str):
        return len(content)
    return len(json.dumps(content)) if content else 0


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0003_bytes_and_given_overhead")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]

"""Sizes of what is stored already: of each message's content, and of what each session's view holds."""

from django.db import migrations
from django.db.models import Q, Sum, TextField
from django.db.models.functions import Cast, Length

BATCH = 10_000


def fill(apps, schema_editor):
    Message = apps.get_model("sessions_app", "Message")
    newest = Message.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    for first in range(0, newest + 1, BATCH):
        Message.objects.filter(pk__gt=first, pk__lte=first + BATCH).update(
            content_bytes=Length(Cast("content", TextField()))
        )
    for session in apps.get_model("sessions_app", "Session").objects.only("pk").iterator(chunk_size=500):
        _fill_view(apps, session)


def _fill_view(apps, session):
    Boundary = apps.get_model("sessions_app", "CompactBoundary")
    head = Boundary.objects.filter(session=session, reverted_at=None).exclude(kind="microcompact").order_by("-pk").first()
    shown = Q(position__gt=head.covers_to if head else 0)
    if head and head.preserved_first is not None:
        shown |= Q(position__range=(head.preserved_first, head.preserved_last))
    rows = apps.get_model("sessions_app", "Message").objects.filter(
        shown, session=session, left_path_at=None, is_sidechain=False, kind="normal"
    )
    total = rows.aggregate(total=Sum("content_bytes"))["total"] or 0
    apps.get_model("sessions_app", "Session").objects.filter(pk=session.pk).update(view_bytes=total)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0003_bytes_and_given_overhead")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]

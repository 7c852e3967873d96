"""The search texts of what is stored already.

The folding is the code's own, whatever it has become by then: it must be the same that a search folds its query with.
Each batch is stored by itself, and what is there is passed over, so that it can be broken off and begun again.
"""

from django.db import migrations

from sessions_app.transcript.search_text import fold, search_text

BATCH = 500  # rows; their contents may be large


def fill(apps, schema_editor):
    SearchText = apps.get_model("sessions_app", "SearchText")
    messages = apps.get_model("sessions_app", "Message").objects.only("content", "session__team_id")
    boundaries = apps.get_model("sessions_app", "CompactBoundary").objects.filter(summary__isnull=False)
    for rows, name, text_of in (
        (messages, "message", lambda row: search_text(content=row.content)),
        (boundaries.only("summary", "session__team_id"), "boundary", lambda row: row.summary),
    ):
        for batch in _batches(rows.filter(search_text=None).select_related("session")):
            SearchText.objects.bulk_create(
                [
                    SearchText(
                        team_id=row.session.team_id,
                        session_id=row.session_id,
                        text=fold(text=text_of(row)),
                        **{f"{name}_id": row.pk},
                    )
                    for row in batch
                ],
                ignore_conflicts=True,
            )


def _batches(rows):
    last = 0
    while batch := list(rows.filter(pk__gt=last).order_by("pk")[:BATCH]):
        yield batch
        last = batch[-1].pk


def empty(apps, schema_editor):
    apps.get_model("sessions_app", "SearchText").objects.all().delete()


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("sessions_app", "0012_search_texts_of_a_team")]
    operations = [migrations.RunPython(fill, empty)]

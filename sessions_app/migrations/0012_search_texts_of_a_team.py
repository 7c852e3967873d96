"""Nothing has been written to the table yet, so the column needs no value for what is stored."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0011_search_erasures_expiry")]

    operations = [
        migrations.AddField(
            model_name="searchtext",
            name="team",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="search_texts",
                to="sessions_app.team",
            ),
        ),
        migrations.AddIndex(
            model_name="searchtext",
            index=models.Index(fields=["team", "-id"], name="search_text_newest_first"),
        ),
    ]

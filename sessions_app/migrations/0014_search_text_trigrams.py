"""PostgreSQL's index of trigrams, with the team in front, so that no other team's texts are looked through.

A server on which the extensions may not be made is served without it: a search reads the texts of its team then.
"""

import logging

from django.db import Error, migrations, transaction

logger = logging.getLogger(__name__)
INDEX = "search_text_trigrams"
MAKE = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE EXTENSION IF NOT EXISTS btree_gin",
    f"CREATE INDEX IF NOT EXISTS {INDEX} ON sessions_app_searchtext USING gin (team_id, text gin_trgm_ops)",
)


def make(apps, schema_editor):
    connection = schema_editor.connection
    if connection.vendor != "postgresql":
        return
    try:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for statement in MAKE:
                cursor.execute(statement)
    except Error as error:
        logger.warning("search goes without its index (%s); docs/running.md tells how to make it", str(error).strip())


def drop(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP INDEX IF EXISTS {INDEX}")


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0013_fill_search_texts")]
    operations = [migrations.RunPython(make, drop)]

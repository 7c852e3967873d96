from collections import Counter

from django.db import migrations

BATCH = 2_000  # runs


def group_what_has_failed(apps, schema_editor):
    """Runs that failed before there were groups. Begun again, it goes on with those that have none yet."""
    run_model = apps.get_model("compaction_app", "CompactionRun")
    group_model = apps.get_model("compaction_app", "FailureGroup")
    day_model = apps.get_model("compaction_app", "FailureDay")
    failed = run_model.objects.filter(status="failed", failure_group__isnull=True).order_by("pk")
    while rows := list(
        failed.values_list("pk", "session__team", "failure_reason", "session__model", "finished_at", "queued_at")[:BATCH]
    ):
        kinds = {}
        for pk, team, reason, model, finished, queued in rows:
            kinds.setdefault((team, reason, model[:200]), []).append((pk, finished or queued))
        for (team, reason, model), runs in kinds.items():
            moments = [at for _, at in runs]
            group, _ = group_model.objects.get_or_create(
                team_id=team,
                reason=reason,
                model=model,
                defaults={"first_seen": min(moments), "last_seen": max(moments)},
            )
            group.count += len(runs)
            group.first_seen = min(group.first_seen, *moments)
            group.last_seen = max(group.last_seen, *moments)
            group.save()
            for date, count in Counter(at.date() for at in moments).items():
                day, _ = day_model.objects.get_or_create(group=group, day=date)
                day.count += count
                day.save()
            run_model.objects.filter(pk__in=[pk for pk, _ in runs]).update(failure_group=group)


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0009_failures_in_groups")]

    operations = [migrations.RunPython(group_what_has_failed, migrations.RunPython.noop)]

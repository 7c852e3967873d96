"""The Celery application; tasks are found in the apps' tasks.py."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")

app = Celery("compaction_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

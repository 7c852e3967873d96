"""Loading the Celery app here makes `shared_task` use it, as Celery's guide to Django has it."""

from compaction_site.celery import app as celery_app

__all__ = ("celery_app",)

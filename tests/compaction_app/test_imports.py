"""Imports by the worker: done once, whatever happens to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from compaction_app.engine.outcome import RunErrored
from compaction_app.models import ImportStatus, TranscriptImport
from compaction_app.selectors.imports import progress_key
from compaction_app.services import imports, uploads
from sessions_app.models import Message, Session, Team
from tests.factories import make_team
from tests.transcript_lines import file_of, human, reply

FILE = file_of(human("u1", None, "Hello"), reply("u2", "u1", "Hi")).getvalue()


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Any) -> Any:
    settings.MEDIA_ROOT = settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    return tmp_path


def queued(team: Team | None = None, data: bytes = FILE) -> TranscriptImport:
    file = SimpleUploadedFile("a.jsonl", data)
    return imports.queue(team=team or make_team(), file=file, name="a.jsonl", format_name="auto", now=timezone.now())


def waiting(folder: Any) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def states() -> list[str]:
    return list(TranscriptImport.objects.order_by("pk").values_list("status", flat=True))


@pytest.mark.django_db
class TestExecute:
    def test_a_second_delivery_does_nothing(self) -> None:
        row = queued()
        assert imports.execute(import_id=row.pk) is not None
        assert imports.execute(import_id=row.pk) is None
        assert Message.objects.count() == 2

    def test_what_is_no_transcript_fails_with_the_reason(self, folder: Any) -> None:
        row = queued(data=b"junk")
        imports.execute(import_id=row.pk)
        row.refresh_from_db()
        assert (row.status, row.detail) == ("failed", "no line of it is a JSON object")
        assert waiting(folder) == 0

    def test_a_file_that_is_gone_fails(self) -> None:
        row = queued()
        uploads.drop(name=row.upload)
        imports.execute(import_id=row.pk)
        row.refresh_from_db()
        assert (row.status, row.detail) == ("failed", "its file is gone")

    def test_what_is_unexpected_stores_nothing_and_quotes_nothing(self, monkeypatch: Any) -> None:
        real = imports.import_transcript

        def broken(**given: Any) -> Any:
            real(**given)
            raise ValueError("secret words of the transcript")

        monkeypatch.setattr(imports, "import_transcript", broken)
        row = queued()
        with pytest.raises(RunErrored):
            imports.execute(import_id=row.pk)
        row.refresh_from_db()
        assert row.status == "failed"
        assert "ValueError" in row.detail
        assert "secret" not in row.detail
        assert not Session.objects.exists()

    def test_a_worker_that_lost_it_meanwhile_stores_nothing(self, monkeypatch: Any) -> None:
        real = imports.import_transcript

        def slow(**given: Any) -> Any:
            report = real(**given)
            TranscriptImport.objects.update(claim_token="6dcb4a8b-0000-4000-8000-000000000000")
            return report

        monkeypatch.setattr(imports, "import_transcript", slow)
        row = queued()
        assert imports.execute(import_id=row.pk) is None
        assert not Session.objects.exists()

    def test_an_orderly_stop_gives_it_back(self, monkeypatch: Any, folder: Any) -> None:
        def stopped(**given: Any) -> Any:
            raise SystemExit

        monkeypatch.setattr(imports, "import_transcript", stopped)
        row = queued()
        with pytest.raises(SystemExit):
            imports.execute(import_id=row.pk)
        assert states() == ["queued"]
        assert waiting(folder) == 1
        monkeypatch.undo()
        assert imports.recover(now=timezone.now()) == [row.pk]


@pytest.mark.django_db
class TestSweep:
    def running(self, *, attempt: int = 1) -> TranscriptImport:
        row = queued()
        held = imports._claim(import_id=row.pk, now=timezone.now() - timedelta(hours=1))
        assert held
        TranscriptImport.objects.update(attempt=attempt)
        return row

    def test_a_silent_worker_loses_it(self) -> None:
        row = self.running()
        assert imports.recover(now=timezone.now()) == [row.pk]
        assert states() == ["queued"]
        imports.execute(import_id=row.pk)
        assert states() == ["succeeded"]

    def test_one_that_tells_of_itself_keeps_it(self) -> None:
        row = self.running()
        cache.set(progress_key(row=row), {"read": 1, "total": 2}, timeout=60)
        assert imports.recover(now=timezone.now()) == []
        assert states() == ["running"]

    def test_after_three_it_fails(self, folder: Any) -> None:
        row = self.running(attempt=3)
        assert imports.recover(now=timezone.now()) == []
        row.refresh_from_db()
        assert (row.status, row.detail) == (ImportStatus.FAILED, "its worker went silent 3 times")
        assert waiting(folder) == 0

    def test_what_the_queue_may_have_lost_is_handed_out_again(self) -> None:
        row = queued()
        now = timezone.now()
        assert imports.recover(now=now) == []
        assert imports.recover(now=now, broker_is_new=True) == [row.pk]
        assert imports.recover(now=now + timedelta(minutes=6)) == [row.pk]

    def test_uploads_without_a_row_go_and_others_stay(self, folder: Any) -> None:
        queued()
        uploads.keep(file=SimpleUploadedFile("lost", b"x"))
        assert uploads.tidy(now=timezone.now()) == 0
        assert uploads.tidy(now=timezone.now() + timedelta(hours=25)) == 1
        assert waiting(folder) == 1

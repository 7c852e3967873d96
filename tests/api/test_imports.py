"""imports/: a transcript goes in by one call; large ones by the worker."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from compaction_app.models import TranscriptImport
from compaction_app.services import imports
from sessions_app.models import Message, Session
from sessions_app.policy import Policy
from tests.cast import BASE, Cast, errors
from tests.transcript_lines import file_of, human, reply

PLAIN = [human("u1", None, "Fix the login page."), reply("u2", "u1", "On it.")]
UUID = "0b8a8b0e-0f0e-4a53-9a39-4a5c6a1c1b7e"
NAME = f"{UUID}.jsonl"


def content(*lines: Any) -> bytes:
    return file_of(*(lines or PLAIN)).getvalue()


def post(
    api: Any, data: bytes | None = None, *, name: str = NAME, more: dict[str, Any] | None = None, **headers: str
) -> Any:
    form: dict[str, Any] = {"file": SimpleUploadedFile(name, content() if data is None else data), **(more or {})}
    return api.post(BASE + "imports/", form, headers=headers)


@pytest.fixture
def uploads(settings: Any, tmp_path: Any) -> Any:
    """Each test's own folder."""
    settings.MEDIA_ROOT = settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def own_folder(uploads: Any) -> None:
    pass


def waiting(folder: Any) -> list[Any]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.django_db
class TestSmall:
    def test_it_is_imported_within_the_call(self, cast: Cast) -> None:
        answer = post(cast.alice)
        assert answer.status_code == 201, answer.content
        told = answer.json()
        session = Session.objects.get(team=cast.alices_team, external_id=UUID)
        assert (told["status"], told["progress"], told["session"]) == ("succeeded", 1.0, str(session.uuid))
        assert (told["messages"], told["duplicates"], told["problem_count"]) == (2, 0, 0)
        counts = {"messages": 2, "duplicates": 0, "entries": 0, "boundaries": 0}
        assert told["sessions"] == [{"id": str(session.uuid), "external_id": UUID, "created": True, **counts}]
        assert cast.alice.read(f"imports/{told['id']}/").json() == told
        assert cast.alice.read("imports/").json()["results"] == [told]

    def test_again_it_adds_nothing(self, cast: Cast) -> None:
        post(cast.alice)
        told = post(cast.alice).json()
        assert (told["messages"], told["duplicates"], told["sessions"][0]["created"]) == (0, 2, False)
        assert Message.objects.count() == 2

    def test_lines_that_can_not_be_read_are_told(self, cast: Cast) -> None:
        told = post(cast.alice, content(PLAIN[0], b"junk", PLAIN[1])).json()
        [problem] = told["problems"]
        assert (problem["line"], problem["kept"]) == (2, False)
        assert problem["reason"].startswith("not JSON")
        assert told["problem_count"] == 1

    def test_gzip_is_unpacked_and_the_session_is_known_by_the_name_without_it(self, cast: Cast) -> None:
        told = post(cast.alice, gzip.compress(content()), name=f"{NAME}.gz").json()
        assert told["sessions"][0]["external_id"] == UUID
        assert told["messages"] == 2

    def test_the_format_may_be_named(self, cast: Cast) -> None:
        assert post(cast.alice, more={"format": "claude-code"}).json()["format"] == "claude-code"

    def test_the_key_that_makes_it_safe_to_repeat(self, cast: Cast) -> None:
        first = post(cast.alice, **{"Idempotency-Key": "one"})
        again = post(cast.alice, **{"Idempotency-Key": "one"})
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["Idempotency-Replayed"] == "true"
        other = post(cast.alice, content(PLAIN[0]), **{"Idempotency-Key": "one"})
        assert errors(other) == [("idempotency_conflict", "Idempotency-Key")]
        assert TranscriptImport.objects.count() == 1


def bomb() -> bytes:
    return gzip.compress(b"{" * 5_000_000)


@pytest.mark.django_db
class TestRefused:
    @pytest.mark.parametrize(
        ("data", "name", "why"),
        [
            (b"  \n", NAME, "the file is empty"),
            (b"junk\n", NAME, "no line of it is a JSON object"),
            (b"\x89PNG\x00\x00", "a.png", "binary"),
            (b"PK\x03\x04....", "a.zip", "zip archive"),
            (gzip.compress(content())[:-9], NAME, "its end is missing"),
            (gzip.compress(content()) + b"junk", NAME, "a broken gzip"),
            (b"\x1f\x8b\x08\x00 and no more", NAME, "gzip"),
            (gzip.compress(b"PK\x03\x04"), NAME, "no line of it"),
            (b'{"a":' * 10_000, NAME, "no line of it is a JSON object"),
            (b'{"type": "user", "n": NaN}', NAME, ""),
        ],
        ids="blank junk binary zip cut trailing broken packed-zip deep nan".split(),  # noqa: SIM905
    )
    def test_what_can_not_be_imported_leaves_nothing(
        self, cast: Cast, uploads: Any, data: bytes, name: str, why: str
    ) -> None:
        answer = post(cast.alice, data, name=name)
        assert (answer.status_code, errors(answer)) == (400, [("import_refused", "file")])
        assert why in answer.json()["errors"][0]["detail"]
        assert not TranscriptImport.objects.exists()
        assert not Session.objects.exists()
        assert waiting(uploads) == []

    def test_a_bomb_is_given_to_the_worker_who_refuses_it(self, cast: Cast, uploads: Any, monkeypatch: Any) -> None:
        figures = {"import_inline_bytes": 10_000, "import_unpacked_bytes": 1_000_000}
        monkeypatch.setattr(imports, "Policy", lambda: Policy(**figures))
        answer = post(cast.alice, bomb(), name="b.jsonl.gz")
        assert answer.status_code == 202
        imports.execute(import_id=TranscriptImport.objects.get().pk)
        told = cast.alice.read(f"imports/{answer.json()['id']}/").json()
        assert (told["status"], told["detail"]) == ("failed", "a gzip that unpacks to more than 1,000,000 bytes")
        assert waiting(uploads) == []

    def test_the_form(self, cast: Cast) -> None:
        url = BASE + "imports/"
        file = SimpleUploadedFile(NAME, content())
        for form, expected in (
            ({}, ("required", "file")),
            ({"file": "text"}, ("invalid", "file")),
            ({"file": SimpleUploadedFile(NAME, b"")}, ("empty", "file")),
            ({"file": [file, SimpleUploadedFile("b", content())]}, ("invalid", "file")),
            ({"file": SimpleUploadedFile(NAME, content()), "format": "word"}, ("invalid_choice", "format")),
            ({"file": SimpleUploadedFile(NAME, content()), "fromat": "auto"}, ("unknown_field", "fromat")),
        ):
            answer = cast.alice.post(url, form)
            assert (answer.status_code, errors(answer)) == (400, [expected]), form
        assert cast.alice.call("POST", "imports/", {"file": "x"}).status_code == 415
        broken = cast.alice.call("POST", "imports/", b"--x", content_type="multipart/form-data")
        assert (broken.status_code, errors(broken)) == (400, [("parse_error", None)])
        assert not TranscriptImport.objects.exists()

    def test_a_file_that_is_too_large_is_not_taken_to_its_end(self, cast: Cast, uploads: Any, monkeypatch: Any) -> None:
        import compaction_app.api.imports as api

        monkeypatch.setattr(api, "Policy", lambda: Policy(import_upload_bytes=1_000))
        answer = post(cast.alice, content() * 100)
        assert (answer.status_code, errors(answer)) == (413, [("body_too_large", None)])
        assert waiting(uploads) == []


@pytest.mark.django_db
class TestContents:
    def test_odd_characters_come_back_as_they_were(self, cast: Cast) -> None:
        odd = "a\x00b\ud800c\u2028d"
        told = post(cast.alice, content(human("u1", None, odd))).json()
        exported = b"".join(cast.alice.read(f"sessions/{told['session']}/export/").streaming_content)
        assert json.loads(exported.splitlines()[0])["message"]["content"] == odd

    def test_a_line_of_ten_million_characters(self, cast: Cast) -> None:
        file = content(human("u1", None, "x" * 10_000_000))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(imports, "Policy", lambda: Policy(import_inline_bytes=50_000_000))
            assert post(cast.alice, file).json()["messages"] == 1


@pytest.mark.django_db
class TestByTheWorker:
    @pytest.fixture(autouse=True)
    def everything_is_large(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(imports, "Policy", lambda: Policy(import_inline_bytes=0))

    def test_it_waits_and_is_done(self, cast: Cast, uploads: Any) -> None:
        answer = post(cast.alice, content(PLAIN[0], b"junk", PLAIN[1]))
        assert answer.status_code == 202
        told = answer.json()
        assert (told["status"], told["progress"], told["session"], told["finished_at"]) == ("queued", 0.0, None, None)
        assert len(waiting(uploads)) == 1
        assert not Message.objects.exists()
        imports.execute(import_id=TranscriptImport.objects.get().pk)
        told = cast.alice.read(f"imports/{told['id']}/").json()
        assert (told["status"], told["messages"], told["problem_count"]) == ("succeeded", 2, 1)
        assert cast.alice.read(f"sessions/{told['session']}/").status_code == 200
        assert waiting(uploads) == []

    def test_while_it_runs_it_tells_how_far_it_is(self, cast: Cast, monkeypatch: Any) -> None:
        post(cast.alice, content(*PLAIN))
        row = TranscriptImport.objects.get()
        seen = []
        real = imports._Pulse.read

        def read(self: Any, size: int) -> None:
            real(self, size)
            seen.append(cast.alice.read(f"imports/{row.uuid}/").json())

        monkeypatch.setattr(imports._Pulse, "read", read)
        monkeypatch.setattr(imports, "Policy", lambda: Policy(import_inline_bytes=0, progress_seconds=0))
        imports.execute(import_id=row.pk)
        assert {one["status"] for one in seen} == {"running"}
        parts = [one["progress"] for one in seen]
        assert parts == sorted(parts)
        assert 0 < parts[0] < 1

    def test_a_list_of_those_that_wait(self, cast: Cast) -> None:
        post(cast.alice)
        assert len(cast.alice.read("imports/", status="queued").json()["results"]) == 1
        assert cast.alice.read("imports/", status="failed").json()["results"] == []

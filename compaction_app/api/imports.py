"""imports/: transcript files that come in; small ones within the call, large ones by the worker."""

from __future__ import annotations

import tempfile
from typing import IO, Any
from uuid import UUID

from django.conf import settings
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import BodyTooLarge
from compaction_app.api.fields import Described, StrictSerializer
from compaction_app.api.filters import ImportFilter
from compaction_app.api.idempotency import HEADER, IDEMPOTENCY_KEY, RepeatableView, digest_of_file
from compaction_app.api.schema import error
from compaction_app.models import IMPORT_AT_WORK, ImportStatus, TranscriptImport
from compaction_app.selectors.imports import imports_of, progress_of
from sessions_app.policy import Policy
from sessions_app.transcript.formats import AUTO, FORMATS

PIECE = 1024 * 1024  # bytes of a chunked body that are taken at once
FORM_BYTES = 1024 * 1024  # what the form may have around the file

REFUSED = error(
    "The form is wrong; `import_refused`: the file as a whole can't be imported, and nothing of it was stored.",
    code="import_refused",
    detail="This can not be imported: the file is empty.",
    attr="file",
)
NO_FORM = error(
    "The body is not sent as multipart/form-data.",
    code="unsupported_media_type",
    detail='Unsupported media type "application/json" in request.',
)
TOO_LARGE = error(
    f"The file is larger than {Policy().import_upload_bytes:,} bytes.",
    code="body_too_large",
    detail=f"The file is larger than {Policy().import_upload_bytes:,} bytes.",
)


class ImportRequest(StrictSerializer):
    file = serializers.FileField(
        max_length=255, help_text="The transcript; packed by gzip, if you like. Its name names the session."
    )
    format = serializers.ChoiceField(
        choices=[(name, name) for name in FORMATS],
        required=False,
        help_text=f"The transcript's format; default `{AUTO}`: it is found out.",
    )


class ImportedSession(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="The session.")
    external_id = serializers.CharField(allow_null=True, help_text="What its client calls it, or the file's name.")
    created = serializers.BooleanField(help_text="Whether it is new.")
    messages = serializers.IntegerField(help_text="Messages that were stored.")
    duplicates = serializers.IntegerField(help_text="Messages that were there already.")
    entries = serializers.IntegerField(help_text="Other lines that were kept.")
    boundaries = serializers.IntegerField(help_text="Compactions that its client had made.")


class ImportProblem(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="Number of the line, from 1.")
    reason = serializers.CharField(help_text="What is wrong with it.")
    kept = serializers.BooleanField(help_text="Whether it is stored raw all the same.")


class ImportBody(Described, serializers.ModelSerializer[TranscriptImport]):
    meanings = {
        "id": "The import's id.",
        "name": "The file's name.",
        "format": "As it was asked for.",
        "status": "`succeeded` and `failed` are final.",
        "progress": "0 to 1: how much of the file was read.",
        "size_bytes": "The file's size, as it was sent.",
        "session": "The first of its sessions; null before there is one.",
        "sessions": "The sessions that the file holds, in its order.",
        "messages": "Messages that were stored, of all sessions.",
        "duplicates": "Messages that were there already.",
        "entries": "Other lines that were kept.",
        "boundaries": "Compactions that its client had made.",
        "problem_count": "Lines that were not understood.",
        "problems": f"These lines, of very many the first {Policy().import_kept_problems:,}.",
        "detail": "Why it failed; empty otherwise.",
        "queued_at": "When the file had come.",
        "started_at": "When it was first taken up; null before.",
        "finished_at": "When it ended; null before.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    status = serializers.ChoiceField(choices=ImportStatus.choices, read_only=True)
    progress = serializers.SerializerMethodField()
    session = serializers.SerializerMethodField()
    sessions = ImportedSession(many=True, read_only=True)
    problems = ImportProblem(many=True, read_only=True)

    class Meta:
        model = TranscriptImport
        fields = (
            "id",
            "name",
            "format",
            "status",
            "progress",
            "size_bytes",
            "session",
            "sessions",
            "messages",
            "duplicates",
            "entries",
            "boundaries",
            "problem_count",
            "problems",
            "detail",
            "queued_at",
            "started_at",
            "finished_at",
        )
        read_only_fields = fields

    def get_progress(self, row: TranscriptImport) -> float:
        return progress_of(row=row)

    def get_session(self, row: TranscriptImport) -> UUID | None:
        return UUID(row.sessions[0]["id"]) if row.sessions else None


class _ToDisk(TemporaryFileUploadHandler):
    """Every file goes to disk as it comes, and no further than it may. Raises BodyTooLarge."""

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        most = Policy().import_upload_bytes
        if start + len(raw_data) > most:
            self.file.close()  # which deletes it
            raise BodyTooLarge(f"The file is larger than {most:,} bytes.")
        super().receive_data_chunk(raw_data, start)


class ImportsView(RepeatableView):
    parser_classes = [MultiPartParser]
    filterset_class = ImportFilter
    queryset = TranscriptImport.objects.none()  # tells the OpenAPI document the model

    def take_body(self, request: Request) -> None:
        """Nothing of it stays in memory; one that is sent in chunks, and names no length, is measured on disk."""
        http: Any = request._request
        most = Policy().import_upload_bytes + FORM_BYTES
        http.upload_handlers = [_ToDisk(http)]
        length = request.META.get("CONTENT_LENGTH") or ""
        if length.isdigit() and int(length) > most:
            raise BodyTooLarge(f"The file is larger than {Policy().import_upload_bytes:,} bytes.")
        if not length and "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
            http._stream, size = _on_disk(http, most=most)
            http._read_started = False  # so that it is read from there
            request.META["CONTENT_LENGTH"] = str(size)

    def handle_exception(self, exc: Exception) -> Response:
        """A form that breaks off after its file's last byte leaves the file to nobody."""
        for handler in self.request._request.upload_handlers:
            handler.upload_interrupted()
        return super().handle_exception(exc)

    @extend_schema(
        summary="List imports", description="The team's imports, newest first.", responses=ImportBody(many=True)
    )
    def get(self, request: Request) -> Response:
        return self.page(imports_of(team=self.team), ImportBody)

    @extend_schema(
        summary="Import a transcript",
        description="A file of a known format, or an export of this service. Sending it again adds only what is new "
        "in it. A small one is imported within the call (201), all of it or nothing; a larger one by the worker (202): "
        "`imports/{id}/` tells how far it is, and what became of it. Lines that are not understood are reported, never "
        "dropped in silence.",
        parameters=[IDEMPOTENCY_KEY],
        request={"multipart/form-data": ImportRequest},
        responses={
            201: OpenApiResponse(ImportBody, description="It is imported."),
            202: OpenApiResponse(ImportBody, description="The worker imports it."),
            400: REFUSED,
            413: TOO_LARGE,
            415: NO_FORM,
        },
        examples=[
            OpenApiExample(
                "a file",
                value={"file": "(the bytes)", "format": AUTO},
                request_only=True,
                media_type="multipart/form-data",
            )
        ],
        filters=False,
    )
    def post(self, request: Request) -> Response:
        given = self.body(ImportRequest)
        if len(request.FILES.getlist("file")) > 1:
            raise serializers.ValidationError({"file": "One file a call."}, code="invalid")
        file, wanted = given["file"], given.get("format", AUTO)
        body = [file.name, wanted, digest_of_file(file)] if HEADER in request.headers else []

        def do(call: actions.HeldCall | None) -> Response:
            if call is not None and call.subject is not None:
                return _answer(self.one(imports_of(team=self.team), call.subject, name="import"))
            row = actions.import_upload(
                team=self.team, file=file, name=file.name, format_name=wanted, now=timezone.now(), call=call
            )
            return _answer(row)

        return self.once(request, do, body=body)


def _answer(row: TranscriptImport) -> Response:
    code = status.HTTP_202_ACCEPTED if row.status in IMPORT_AT_WORK else status.HTTP_201_CREATED
    return Response(ImportBody(row).data, status=code)


def _on_disk(http: Any, *, most: int) -> tuple[IO[bytes], int]:
    """The body, and its size in bytes. Raises BodyTooLarge."""
    body = tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - closed with the request
    size = 0
    while piece := http.read(PIECE):
        size += len(piece)
        if size > most:
            raise BodyTooLarge(f"The file is larger than {Policy().import_upload_bytes:,} bytes.")
        body.write(piece)
    body.seek(0)
    return body, size


class ImportView(ApiView):
    @extend_schema(summary="Show an import", responses=ImportBody)
    def get(self, request: Request, import_id: UUID) -> Response:
        return Response(ImportBody(self.one(imports_of(team=self.team), import_id, name="import")).data)

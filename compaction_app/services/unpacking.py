"""An uploaded file as its bytes are meant: what is packed by gzip is unpacked to disk, within a limit."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from django.conf import settings

from sessions_app.services.transcripts import ImportRefused

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
PIECE = 1024 * 1024  # bytes that are unpacked at once


class TooMuch(ImportRefused):
    """It unpacks to more than it may."""


@contextmanager
def unpacked(*, stream: IO[bytes], most: int) -> Iterator[tuple[IO[bytes], int]]:
    """The stream to read, seekable and at its beginning, and its size in bytes. `stream`: seekable.

    Raises ImportRefused: a broken gzip, one of more than `most` bytes, a zip.
    """
    stream.seek(0)
    head = stream.read(len(ZIP))
    stream.seek(0)
    if head.startswith(ZIP):
        raise ImportRefused("a zip archive: send each transcript by itself, packed by gzip at most")
    if not head.startswith(GZIP):
        size = stream.seek(0, 2)
        stream.seek(0)
        yield stream, size
        return
    with tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR) as plain:
        size = _unpack(stream, to=plain, most=most)
        yield plain, size


def is_larger(*, stream: IO[bytes], than: int) -> bool:
    """Whether it holds more bytes than that, unpacked; no more of it is unpacked than tells. What is broken is not."""
    try:
        with unpacked(stream=stream, most=than) as (_, size):
            return size > than
    except TooMuch:
        return True
    except ImportRefused:
        return False
    finally:
        stream.seek(0)


def _unpack(stream: IO[bytes], *, to: IO[bytes], most: int) -> int:
    size = 0
    try:
        with gzip.GzipFile(fileobj=stream) as packed:
            while piece := packed.read(PIECE):
                size += len(piece)
                if size > most:
                    raise TooMuch(f"a gzip that unpacks to more than {most:,} bytes")
                to.write(piece)
    except EOFError:
        raise ImportRefused("a gzip that is cut: its end is missing") from None
    except (gzip.BadGzipFile, zlib.error):
        raise ImportRefused("a broken gzip") from None
    to.seek(0)
    return size

"""A session file as its client resumes it: from the newest line up through the parents to a boundary.

Written from what is known of the client (facts: transcript formats, sections 4 and 5), not from our exporter: messages
that a boundary keeps are hung on its anchor, what hung on the anchor follows them, and the walk ends at the boundary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sessions_app.transcript.view import CLEARED_RESULT

Line = dict[str, Any]


def read(data: bytes) -> list[Line]:
    assert data.endswith(b"\n")
    rows = data.decode().splitlines()  # as strict as a reader can be: it splits at every kind of line end
    assert len(rows) == data.count(b"\n")
    return [json.loads(row) for row in rows]


def chain_of(lines: Iterable[Line], *, relinked: bool = True) -> list[Line]:
    """The lines from the root to the leaf. `relinked`: as the interactive client; else as its SDK lists a session."""
    rows = [line for line in lines if line.get("uuid") and "parentUuid" in line]
    places = {row["uuid"]: number for number, row in reversed(list(enumerate(rows)))}
    assert len(places) == len(rows), "each uuid once"
    by_uuid = {row["uuid"]: row for row in rows}
    parents = {row["uuid"]: row["parentUuid"] for row in rows}
    if relinked:
        for boundary in [row for row in rows if row.get("subtype") == "compact_boundary" and not row["isSidechain"]][
            -1:
        ]:
            _relink(boundary, parents)
    leaf = _leaf(rows, by_uuid, parents)
    chain: list[Line] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at and at in by_uuid and at not in seen:
        seen.add(at)
        chain.append(by_uuid[at])
        at = parents[at]
    return chain[::-1]


def _leaf(rows: list[Line], by_uuid: dict[str, Line], parents: dict[str, str | None]) -> str:
    """The newest message that is on no side chain, is not injected, and that nothing goes on from but side lines."""
    pointed_at = set(parents.values())
    places = {row["uuid"]: number for number, row in enumerate(rows)}
    found: list[tuple[int, str]] = []
    for row in rows:
        at: Line | None = row if row["uuid"] not in pointed_at else None
        seen: set[str] = set()
        while at and at["type"] not in ("user", "assistant") and at["uuid"] not in seen:
            seen.add(at["uuid"])
            at = by_uuid.get(parents[at["uuid"]] or "")
        if at and at["type"] in ("user", "assistant") and not at.get("isSidechain") and not at.get("isMeta"):
            found.append((places[at["uuid"]], at["uuid"]))
    return max(found)[1]


def _relink(boundary: Line, parents: dict[str, str | None]) -> None:
    """Hang what the boundary keeps on its anchor, and what hung on the anchor on the last of it."""
    kept = (boundary.get("compactMetadata") or {}).get("preservedMessages")
    if not kept:
        return
    uuids, anchor = kept["uuids"], kept["anchorUuid"]
    segment = boundary["compactMetadata"]["preservedSegment"]
    assert (segment["headUuid"], segment["anchorUuid"], segment["tailUuid"]) == (uuids[0], anchor, uuids[-1])
    for uuid, parent in parents.items():
        if parent == anchor:
            parents[uuid] = uuids[-1]
    parents.update(zip(uuids, [anchor, *uuids[:-1]], strict=True))


def messages_of(chain: Iterable[Line]) -> list[tuple[str, Any]]:
    """(role, content blocks) of what the model is sent: neighbours of one role joined, errors left out, results that a
    later line of the chain has cleared as placeholders."""
    joined: list[tuple[str, list[Any]]] = []
    for line in chain:
        if line.get("subtype") == "microcompact_boundary":
            _clear(joined, set(line["microcompactMetadata"]["compactedToolIds"]))
        if line["type"] not in ("user", "assistant") or line.get("isApiErrorMessage"):
            continue
        content = line["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if joined and joined[-1][0] == line["message"]["role"]:
            joined[-1][1].extend(blocks)
        else:
            joined.append((line["message"]["role"], blocks))
    return joined


def _clear(joined: list[tuple[str, list[Any]]], ids: set[str]) -> None:
    for _, blocks in joined:
        blocks[:] = [{**b, "content": CLEARED_RESULT} if b.get("tool_use_id") in ids else b for b in blocks]

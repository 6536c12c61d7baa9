"""The history file: a mirror of the evicted messages, through django-storages (SPEC F8).

The rows are the truth and `GET …/history/` is served from them. The object is written whole and atomically; a failure
marks it stale and blocks nothing. Its key is built from the project's and the session's own ids, never from input.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, storages
from django.db import transaction
from django.utils import timezone

from compaction import doorbell, gather
from compaction.engine import history, types
from compaction.engine.errors import Malformed
from compaction.models import Compaction
from sessions_app.models import Session, Tombstone

log = logging.getLogger(__name__)
PAGE = 500  # messages read at a time


def key(session: Session) -> str:
    """Name of the session's object: two UUIDs, so that no id of a client becomes a path."""
    return f"{session.project_id}/conversation_history/{session.pk}.md"


def evicted_through(session: Session) -> int:
    """First message that no ready compaction covers and no turn dropped: the history ends before it."""
    ready = (
        session.compactions_made.filter(status=Compaction.Status.READY)
        .order_by("-kept_from")
        .values_list("kept_from", flat=True)
        .first()
    )
    dropped = session.turns.order_by("-first_seq").values_list("first_seq", flat=True).first()
    return max(ready or 0, dropped or 0)


def markdown(session: Session, through: int) -> Iterator[str]:
    """The messages before `through` as markdown, read page by page."""

    def messages() -> Iterator[types.Message]:
        for first in range(0, through, PAGE):
            yield from gather.messages(session, first, min(first + PAGE, through) - 1)

    yield from history.markdown(messages(), session_id=session.public_id)


def mirror(session: Session, through: int) -> bool:
    """Writes the object whole. False when the storage failed: the compaction goes on, the mirror is stale."""
    try:
        storage = storages["history"]
        name = key(session)
        text = "".join(markdown(session, through)).encode("utf-8", "replace")
        if isinstance(storage, FileSystemStorage):
            _write_atomically(Path(storage.path(name)), text)
        else:
            storage.delete(name)
            storage.save(name, ContentFile(text))
        if not Session.objects.filter(pk=session.pk).exists():  # erased while it was written
            Tombstone.objects.filter(session_id=session.pk).update(object_name=name)
            delete_erased()
            return False
    except Exception as error:
        log.exception("the history mirror of session %s is stale: %s", session.pk, type(error).__name__)
        return False
    return True


def mirror_later(row: Compaction) -> None:
    """Mirrors after the transaction, outside the request's own work; the sweep tries again when it fails."""
    from compaction import tasks  # noqa: PLC0415 - the task imports this module

    transaction.on_commit(lambda: doorbell.ring(tasks.mirror, str(row.pk)), robust=True)


def mirror_stale(limit: int = 20) -> None:
    """Asks again for the mirrors that were not written: the storage or the broker was away."""
    moment = timezone.now() - timedelta(seconds=30)
    rows = Compaction.objects.filter(status=Compaction.Status.READY, mirrored=False, finished_at__lt=moment)
    newest: dict[object, Compaction] = {}
    for row in rows.only("session_id").order_by("-finished_at")[: 10 * limit]:
        newest.setdefault(row.session_id, row)  # one of each session: the file is written whole
    for row in list(newest.values())[:limit]:
        mirror_later(row)


def delete_erased(limit: int = 50) -> None:
    """Deletes the objects of erased sessions. What the storage does not take now, the next sweep tries again."""
    for row in Tombstone.objects.exclude(object_name="").order_by("erased_at")[:limit]:
        try:
            storages["history"].delete(row.object_name)
        except Exception as error:
            log.error("the history of an erased session is still stored: %s", type(error).__name__)
            return
        Tombstone.objects.filter(pk=row.pk).update(object_name="")


def _write_atomically(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# --- reading it back

MOST_PATTERN = 200  # characters


def window(query: Mapping[str, str]) -> dict[str, Any]:
    """Checked `offset` and `limit` (lines) and `pattern` of a read. Raises `Malformed`."""
    found: dict[str, Any] = {"offset": 0, "limit": None, "pattern": query.get("pattern") or None}
    for name in ("offset", "limit"):
        if (text := query.get(name)) is not None:
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise Malformed(f"{name} has to be a whole number of lines, 0 or more")
            found[name] = int(text)
    if found["pattern"] is not None and len(found["pattern"]) > MOST_PATTERN:
        raise Malformed(f"pattern has to have at most {MOST_PATTERN} characters")
    return found


def lines(
    session: Session, *, offset: int = 0, limit: int | None = None, pattern: str | None = None
) -> Iterator[str]:
    """Lines [offset, offset + limit) of the history; with `pattern` only those that contain it (any case), numbered."""
    whole = (
        line
        for text in markdown(session, evicted_through(session))
        for line in text.splitlines(keepends=True)
    )
    if pattern is not None:
        wanted = pattern.casefold()
        whole = (f"{number}: {line}" for number, line in enumerate(whole) if wanted in line.casefold())
    return itertools.islice(whole, offset, None if limit is None else offset + limit)

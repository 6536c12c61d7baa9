"""The history file: a mirror of the evicted messages, through django-storages (SPEC F8).

The rows are the truth and `GET …/history/` is served from them. The object is written whole and atomically; a failure
marks it stale and blocks nothing. Its key is built from the project's and the session's own ids, never from input.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, storages
from django.db import transaction

from compaction import gather
from compaction.engine import history
from compaction.models import Compaction
from sessions_app.models import Session

log = logging.getLogger(__name__)
PAGE = 500  # messages read at a time


def key(session: Session) -> str:
    """Name of the session's object: two UUIDs, so that no id of a client becomes a path."""
    return f"{session.project_id}/conversation_history/{session.pk}.md"


def evicted_through(session: Session) -> int:
    """First message that no ready compaction covers and no turn dropped: the history ends before it."""
    ready = session.compactions_made.filter(status=Compaction.Status.READY).order_by("-kept_from").values_list("kept_from", flat=True).first()
    dropped = session.turns.order_by("-first_seq").values_list("first_seq", flat=True).first()
    return max(ready or 0, dropped or 0)


def markdown(session: Session, through: int) -> Iterator[str]:
    """The messages before `through` as markdown, read page by page."""

    def messages() -> Iterator[gather.types.Message]:
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
    except Exception as error:
        log.exception("the history mirror of session %s is stale: %s", session.pk, type(error).__name__)
        return False
    return True


def mirror_later(row: Compaction) -> None:
    """Mirrors after the transaction, outside the request's own work; the sweep tries again when it fails."""
    from compaction import tasks  # noqa: PLC0415 - the task imports this module

    def send() -> None:
        try:
            tasks.mirror.apply_async((str(row.pk),), retry=False)
        except Exception as error:
            log.warning("the broker did not take a message, the sweep will: %s", type(error).__name__)

    transaction.on_commit(send, robust=True)


def erase(session: Session) -> None:
    """Deletes the object. Raises what the storage raises: an erasure that did not happen must not look like one."""
    storages["history"].delete(key(session))


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

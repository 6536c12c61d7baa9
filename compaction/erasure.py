"""Erasing a session: rows, work that is under way and the history file; and sessions that nobody has used for long.

A tombstone is written in the same transaction, so that an erasure is either recorded and done or neither. The file goes
after the commit: a storage that is away holds up nothing, the tombstone remembers the file until it is deleted. A
summary that is being written meanwhile finds its row gone and is thrown away.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from compaction import offload
from compaction.engine import types
from compaction.models import Frame, Turn
from sessions_app.models import Message, Session, Tombstone

log = logging.getLogger(__name__)
AT_A_TIME = 100  # sessions that one run of the retention erases
Reason = Tombstone.Reason


def erase(session: Session, *, reason: Tombstone.Reason, by: str = "") -> Tombstone:
    """Erases all that is stored of a session, and the system prompts and memories that no other session's turns are made
    of. `by`: who asked, as the audit record shows it."""
    with transaction.atomic():
        Session.objects.select_for_update(no_key=True).only("pk").get(pk=session.pk)
        tombstone = _erase_rows(session, reason, by)
    offload.delete_erased()
    log.info("erased a session (%s): %d messages", reason, tombstone.messages)
    return tombstone


def _erase_rows(session: Session, reason: Tombstone.Reason, by: str) -> Tombstone:
    frames = set(session.turns.values_list("frame", flat=True))
    turns, _ = session.turns.all().delete()
    session.compactions_made.update(base=None)
    compactions, _ = session.compactions_made.all().delete()
    messages, _ = Message.objects.filter(session=session).delete()
    tombstone = Tombstone.objects.create(
        project_id=session.project_id, session_id=session.pk, public_id_digest=types.digest_of(session.public_id),
        reason=reason, by=by, messages=messages, turns=turns, compactions=compactions, object_name=offload.key(session),
    )  # fmt: skip
    session.delete()
    used = Turn.objects.filter(frame__in=frames).values_list("frame", flat=True)
    Frame.objects.filter(pk__in=frames.difference(used)).delete()
    return tombstone


# --- retention


def expire() -> int:
    """Erases sessions that were last used more than HANGO_RETENTION_DAYS ago, oldest first, a batch a run. How many."""
    if not settings.HANGO_RETENTION_DAYS:
        return 0
    limit = timezone.now() - timedelta(days=settings.HANGO_RETENTION_DAYS)
    expired = list(_unused_since(limit).order_by("created_at").values_list("pk", flat=True)[:AT_A_TIME])
    return sum(_expire(pk, limit) for pk in expired)


def _expire(pk: UUID, limit: datetime) -> bool:
    with transaction.atomic():
        # An append takes the same lock: whoever came first is seen by the other.
        locked = Session.objects.select_for_update(no_key=True).filter(pk=pk)
        session = locked.first()
        if session is None or not _unused_since(limit).filter(pk=pk).exists():
            return False
        _erase_rows(session, Reason.RETENTION, "")
    offload.delete_erased()
    return True


def _unused_since(limit: datetime) -> QuerySet[Session]:
    newest = Message.objects.filter(session=OuterRef("pk")).order_by("-seq").values("created_at")[:1]
    sessions = Session.objects.filter(created_at__lt=limit).annotate(newest=Subquery(newest))
    return sessions.filter(Q(newest=None) | Q(newest__lt=limit))

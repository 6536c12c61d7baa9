"""Revoking a compaction: it, and all built on it, are shown no more; the transcript needs no repair."""

from __future__ import annotations

from django.db import transaction

from compaction.models import LIVE, Compaction


def revoke(row: Compaction) -> list[Compaction]:
    """Revokes it and everything that was built on it; the view is computed anew at the next new turn."""
    with transaction.atomic():
        found = [row]
        for one in found:  # grows while it is walked: a chain of summaries is short
            found += list(Compaction.objects.filter(base=one).exclude(status=Compaction.Status.REVOKED))
        Compaction.objects.filter(
            pk__in=[one.pk for one in found], status__in=(*LIVE, Compaction.Status.READY)
        ).update(status=Compaction.Status.REVOKED, lease_until=None)
    return found

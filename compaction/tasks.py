"""Celery doors: each takes one id and calls one flow."""

from __future__ import annotations

import contextlib

from celery import shared_task

from compaction import compact as flow
from compaction import counting, erasure, jobs, offload
from compaction.engine.errors import NotFound
from compaction.models import Compaction
from sessions_app import idempotency


@shared_task(name="compaction.compact", ignore_result=True)
def compact(job_id: str) -> None:
    with contextlib.suppress(NotFound):  # erased while the summary was written
        flow.run(job_id)


@shared_task(name="compaction.mirror", ignore_result=True)
def mirror(compaction_id: str) -> None:
    row = (
        Compaction.objects.select_related("session")
        .filter(pk=compaction_id, status=Compaction.Status.READY)
        .first()
    )
    if row is not None and offload.mirror(row.session, offload.evicted_through(row.session)):
        Compaction.objects.filter(session=row.session, status=Compaction.Status.READY).update(mirrored=True)


@shared_task(name="compaction.count", ignore_result=True)
def count(turn_id: int) -> None:
    counting.count_closed(turn_id)


@shared_task(name="compaction.sweep", ignore_result=True)
def sweep() -> None:
    jobs.sweep()
    offload.mirror_stale()
    offload.delete_erased()


@shared_task(name="compaction.expire", ignore_result=True)
def expire() -> None:
    erasure.expire()
    idempotency.forget_old()

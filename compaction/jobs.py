"""The queue: compactions as rows that are asked for, claimed, given back and finished.

The database is the queue and Celery only the doorbell: each change is one conditional UPDATE, so that a lost, doubled or
late message, a killed worker or a second sweep costs time and never a record. `fence` grows with every claim; only the
holder of the newest may save anything.
"""

from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from compaction import budget, crash, doorbell, gather, spending
from compaction.again import again
from compaction.engine import trigger
from compaction.engine.errors import BudgetSpent, ProviderFailed
from compaction.engine.types import Reason
from compaction.models import LIVE, Circuit, Compaction
from compaction.providers import registry
from sessions_app.models import Message, Project, Session

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 6  # claims of one row that ended in an error that may pass, or in a worker that was lost
MAX_PER_CUT = 2  # automatic compactions tried over the same span
LOOKED_AT, IN_USE = 500, timedelta(minutes=10)  # of the newest messages: whose sessions the sweep looks at
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 5.0, 900.0
Status = Compaction.Status


# --- asking


def request(
    state: gather.State,
    *,
    reason: Reason,
    size: int,
    keep: int,
    instructions: str = "",
    turn: int | None = None,
    for_worker: bool = True,
) -> Compaction:
    """The session's live job, made now if there is none. A forced one joins a live job: what that writes is then shown from
    the next new turn on. `keep`: the model's tokens to keep verbatim. Rings the worker when the transaction commits, unless
    the caller works on it itself (`for_worker` False)."""
    forced = reason in (Reason.MANUAL, Reason.TOOL)
    apply = Compaction.Apply.AT_TRIGGER if reason == Reason.THRESHOLD else Compaction.Apply.NEXT_BUILD
    try:
        with transaction.atomic():
            job = Compaction.objects.create(
                session=state.session, turn=turn, reason=reason, apply=apply, instructions=instructions, tokens_before=size,
                keep_tokens=keep, offload_path=state.session.history_path,
            )  # fmt: skip
    except IntegrityError:
        live = state.session.compactions_made.filter(status__in=LIVE).first()
        if live is None:  # it ended between the two looks
            return request(
                state, reason=reason, size=size, keep=keep, instructions=instructions, turn=turn, for_worker=for_worker
            )  # fmt: skip
        job = live
        if forced:
            _join(job, reason, keep, instructions)
    if for_worker:
        ring(str(job.pk))
    return job


def _join(job: Compaction, reason: Reason, keep: int, instructions: str) -> None:
    """What is still waiting becomes the forced one; what is being written is shown as soon as it is ready."""
    rows = Compaction.objects.filter(pk=job.pk)
    rows.filter(status__in=LIVE).update(apply=Compaction.Apply.NEXT_BUILD)
    rows.filter(status=Status.REQUESTED, partial="").update(
        reason=reason,
        keep_tokens=keep,
        kept_from=None,
        base=None,
        folded_through=0,
        next_at=None,
        **({"instructions": instructions} if instructions else {}),
    )
    job.refresh_from_db()


def ring(job_id: str) -> None:
    """The doorbell. A broker that is away costs time only: the sweep rings again."""

    def rung() -> None:
        crash.at("after-append-commit")
        _send(job_id)

    transaction.on_commit(rung, robust=True)


def _send(job_id: str) -> None:
    from compaction import tasks  # noqa: PLC0415 - the task imports this flow

    doorbell.ring(tasks.compact, job_id)


def ring_if_due(session: Session, state: gather.State | None = None) -> None:
    """Asks for a compaction in the background when the session is over its precompute line (SPEC F15). Idempotent.

    Rings again for a live one whose back-off is over, so that a sweep that is late, or dead, only slows things."""
    state = state or gather.state(session)
    if state.live is not None and state.live.next_at is not None and state.live.next_at <= timezone.now():
        ring(str(state.live.pk))
    if session.limits.get("precompute_frac", 0) is None or state.last_seq < 0 or state.live is not None:
        return
    size, at, view = budget.standing(state)
    if at.precompute is None or size <= at.precompute:
        return
    ready = state.candidate
    if ready is None or (ready.kept_from or 0) <= view.kept_from:
        ready = None
    if ready and budget.after_swap(state, ready.kept_from or 0, ready.head_tokens) <= at.clear:
        return
    if due(state, size, at, kept_from=view.kept_from):
        request(state, reason=Reason.THRESHOLD, size=size, keep=at.snapshot_keep)


def due(state: gather.State, size: int, at: trigger.Lines, *, kept_from: int) -> bool:
    """Whether an automatic compaction may be begun: it is worth it, and no failure holds it back (DESIGN 5)."""
    base = state.candidate if state.candidate and (state.candidate.kept_from or 0) > kept_from else None
    covered = base.kept_from or 0 if base else kept_from
    evictable = state.through - gather.weight_before(state.session, covered)
    if not trigger.worthwhile(evictable - at.snapshot_keep, at):
        return False
    failed = next((j for j in state.jobs if j.status not in LIVE), None)
    if failed is None or failed.status not in (Status.FAILED, Status.REJECTED, Status.SKIPPED):
        return True
    if failed.next_at is not None and failed.next_at > timezone.now():
        return False
    return size >= (failed.tokens_before or 0) + at.gain


def tried_enough(job: Compaction, base: Compaction | None, kept_from: int) -> bool:
    """Whether an automatic compaction of just this span was tried often enough (DESIGN 5)."""
    earlier = Compaction.objects.filter(
        session_id=job.session_id, base=base, kept_from=kept_from, status__in=(Status.FAILED, Status.REJECTED)
    )
    return earlier.count() >= MAX_PER_CUT


def may_call(state: gather.State) -> bool:
    """Whether a summary could be written now: circuit closed, tokens left for today, and no live job told to wait for longer."""
    due_at = state.live.next_at if state.live else None
    if due_at is not None and (due_at - timezone.now()).total_seconds() > state.limits.max_wait_s:
        return False
    return not circuit_open() and not spending.spent(state.session.project)


# --- working


def claim(job_id: str) -> Compaction | None:
    """The job, claimed with a lease and a higher fence; None when someone has it or nothing is due."""
    now = timezone.now()
    claimed = _claimable(now).filter(pk=job_id).update(
        status=Status.RUNNING, fence=F("fence") + 1, attempts=F("attempts") + 1, lease_until=now + lease(), started_at=now,
    )  # fmt: skip
    if not claimed:
        _end_lost(now, pk=job_id)
        return None
    return Compaction.objects.select_related("session", "session__project", "base").get(pk=job_id)


def _claimable(now: datetime) -> QuerySet[Compaction]:
    """The jobs that are due, and those whose lease ran out and that may be tried once more."""
    waiting = Q(status=Status.REQUESTED) & (Q(next_at=None) | Q(next_at__lte=now))
    lost = Q(status=Status.RUNNING, lease_until__lt=now, attempts__lt=MAX_ATTEMPTS)
    return Compaction.objects.filter(waiting | lost)


def _end_lost(now: datetime, **which: str) -> None:
    """Ends the jobs whose last allowed holder was lost as well: a transcript that kills each worker kills no more."""
    rows = Compaction.objects.filter(
        status=Status.RUNNING, lease_until__lt=now, attempts__gte=MAX_ATTEMPTS, **which
    )
    ended = rows.update(
        status=Status.FAILED, error_code="worker-lost", error=f"{MAX_ATTEMPTS} workers were lost over it",
        finished_at=now, next_at=now + timedelta(seconds=FIRST_BACKOFF_S * 2), lease_until=None,
    )  # fmt: skip
    if ended:
        log.error("given up after %d lost workers: %s", MAX_ATTEMPTS, which.get("pk", f"{ended} jobs"))


def lease() -> timedelta:
    return timedelta(seconds=settings.HANGO_LEASE_S)


def save(job: Compaction, **values: object) -> bool:
    """Records values on a claimed job, only if the claim still holds. False: a zombie, whose work is thrown away."""
    held = Compaction.objects.filter(pk=job.pk, fence=job.fence, status=Status.RUNNING)
    changed = again(lambda: held.update(**values))
    if not changed:
        log.warning("a result came too late and was thrown away: job %s, fence %s", job.pk, job.fence)
        return False
    for name, value in values.items():
        setattr(job, name, value)
    return True


def end(job: Compaction, status: Compaction.Status, code: str, detail: str = "") -> None:
    """Ends a job without a summary. Failures hold back the next automatic one for a while."""
    after = timezone.now() + timedelta(seconds=FIRST_BACKOFF_S * 2) if status != Status.SKIPPED else None
    save(
        job, status=status, error_code=code, error=detail[:500], finished_at=timezone.now(), next_at=after,
        lease_until=None,
    )  # fmt: skip


def give_back(job: Compaction, error: ProviderFailed | None = None) -> None:
    """Back to `requested`: another chunk is to be folded, or an error may pass and is tried again later."""
    values: dict[str, object] = {"status": Status.REQUESTED, "lease_until": None, "next_at": None}
    if error is None:
        values["attempts"] = 0
    else:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, hides nothing
        wait = max(error.retry_after_s or 0.0, jitter * FIRST_BACKOFF_S * 2 ** (job.attempts - 1))
        values |= {
            "next_at": timezone.now() + timedelta(seconds=min(wait, LONGEST_BACKOFF_S)),
            "error_code": error.kind or error.code,
        }
    save(job, **values)


def reject(compaction_id: str | None) -> None:
    """A compaction that led to an invalid request is never shown again."""
    if compaction_id:
        Compaction.objects.filter(pk=compaction_id).update(
            status=Status.REJECTED, error_code="invalid-request"
        )


def sweep(limit: int = 200) -> int:
    """Rings again for what is due: a lost doorbell, a lease that ran out, a back-off that is over. How many it rang.

    Asks as well for what nobody asked for in sessions that are in use, as a changed limit leaves it.
    """
    now = timezone.now()
    _end_lost(now)
    ids = [str(pk) for pk in _claimable(now).order_by("created_at").values_list("pk", flat=True)[:limit]]
    for job_id in ids:
        _send(job_id)
    recent = Message.objects.order_by("-pk").values_list("session_id", flat=True)[:LOOKED_AT]
    used = Session.objects.filter(pk__in=set(recent), messages__created_at__gte=now - IN_USE).distinct()
    for session in used.exclude(compactions_made__status__in=LIVE):
        ring_if_due(session)
    return len(ids)


# --- the circuit of the provider's key


def circuit_open() -> bool:
    return _open_circuits().exists()


def held_back(job_id: str) -> bool:
    """Whether the circuit is open, or the project's tokens for today are spent, so that a worker leaves the job; it is due
    again when that is over."""
    if registry.provider() is None:
        return False
    circuit = _open_circuits().first()
    project = Project.objects.filter(sessions__compactions_made__pk=job_id).first()
    if circuit is not None:
        until, told = circuit.open_until, {}
    elif project is not None and spending.spent(project):
        until, told = spending.until(), {"error_code": BudgetSpent.code}
    else:
        return False
    waiting = Compaction.objects.filter(pk=job_id, status=Status.REQUESTED)
    waiting.filter(Q(next_at=None) | Q(next_at__lt=until)).update(next_at=until, **told)
    return True


def _open_circuits() -> QuerySet[Circuit]:
    return Circuit.objects.filter(key_digest=registry.key_digest(), open_until__gt=timezone.now())


def note_failure(error: ProviderFailed) -> None:
    """Opens the circuit: at once for a key that is refused, after three failures in a row for an outage."""
    row, _ = Circuit.objects.get_or_create(key_digest=registry.key_digest())
    failures = row.failures + 1
    refused = error.http_status in (401, 403)
    pause = 300.0 if refused else max(error.retry_after_s or 0.0, 15.0) if failures >= 3 else 0.0
    Circuit.objects.filter(pk=row.pk).update(
        failures=failures, error_code=error.kind or error.code,
        open_until=timezone.now() + timedelta(seconds=pause) if pause else row.open_until,
    )  # fmt: skip


def note_success() -> None:
    Circuit.objects.filter(key_digest=registry.key_digest(), failures__gt=0).update(
        failures=0, open_until=None, error_code=""
    )

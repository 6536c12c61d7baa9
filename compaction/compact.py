"""FLOW 3: compact. Claim → cut → summarise → check → record; the Celery task and a waiting build run the same function.

gather: the claimed row, its span and base → decide: where to cut, what the answer lost → apply: record `ready`, only
if the fence is still ours. No transaction and no lock is held while the model writes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from compaction import (
    again,
    budget,
    conf,
    crash,
    desk,
    facts,
    frames,
    gather,
    jobs,
    offload,
    spending,
    summary,
)
from compaction.engine import briefing, cut, trigger, types
from compaction.engine import overflow as rungs
from compaction.engine.errors import NotFound, ProviderFailed, SummaryRejected
from compaction.models import LIVE, Compaction
from compaction.providers import registry

log = logging.getLogger(__name__)

CACHE_LIVES_S = 240  # of the five minutes that a prompt cache entry lives after its last use
POLL_S = 0.05  # how often a build that waits for another's job looks at the row
Status = Compaction.Status


@dataclass(frozen=True, slots=True)
class Span:
    """What a job summarises: messages [base cut, kept_from) and what stood for the ones before."""

    state: gather.State
    base: Compaction | None
    evicted: list[types.Message]
    kept_from: int
    lines: trigger.Lines
    factor: float


def run(job_id: str, *, deadline_s: float | None = None) -> Compaction | None:
    """Works on a job once: to its end, or to the next chunk of a long span. None when there was nothing to claim.

    `deadline_s`: seconds that a caller waits; the model call gets no more, and what it began is given back.
    """
    if deadline_s is None and jobs.held_back(job_id):
        return None
    job = jobs.claim(job_id)
    if job is None:
        return None
    crash.at("after-claim")
    try:
        span = _span(job)
        if span is None:
            jobs.end(
                job, Status.SKIPPED, "nothing-to-compact", "what could be evicted is not worth a summary"
            )
        else:
            _summarise(job, span, deadline_s)
    except ProviderFailed as error:
        if (
            deadline_s is None or error.http_status is not None
        ):  # that a caller could not wait says nothing of the provider
            jobs.note_failure(error)
        _later_or_failed(job, error)
    except SummaryRejected as error:
        jobs.end(job, Status.FAILED, error.code, error.detail)
    except SoftTimeLimitExceeded:  # the worker is about to be killed over this job
        _later_or_failed(job, ProviderFailed("the worker's time was over", kind="time-limit", retryable=True))
    except Exception as error:
        if again.away(
            error
        ):  # no fault of the job's: tried later, by the lease if not even that can be written now
            with contextlib.suppress(DatabaseError):
                _later_or_failed(job, ProviderFailed("no database", kind="database", retryable=True))
        else:
            jobs.end(job, Status.FAILED, "internal", type(error).__name__)
        raise
    return _fresh(job)


def _learned(job: Compaction, error: ProviderFailed) -> bool:
    """Whether the summarizer's window was smaller than thought and the error named it: the next chunk is smaller."""
    limit = rungs.limits_of(error.message).limit
    if not limit:
        return False
    model = summary.summarizer(job.session)
    known = conf.profile(model, facts.of(model)).max_input_tokens
    facts.learn_limit(model, limit, known)
    return facts.believed(limit, known) and limit != known


def _later_or_failed(job: Compaction, error: ProviderFailed) -> None:
    if (error.may_pass or _learned(job, error)) and job.attempts < jobs.MAX_ATTEMPTS:
        jobs.give_back(job, error)
    else:
        jobs.end(job, Status.FAILED, error.kind or error.code, error.detail)


_waiting = threading.BoundedSemaphore(max(1, settings.HANGO_WEB_THREADS // 2))


def a_thread_may_wait() -> bool:
    """Whether one more of this process's web threads may wait for a summary: at most half of them do (DESIGN 5)."""
    if not _waiting.acquire(blocking=False):
        return False
    _waiting.release()
    return True


def now(state: gather.State, *, size: int, keep: int, deadline_s: float) -> Compaction | None:
    """A due compaction, made or waited for by a build, for at most `deadline_s` seconds."""
    job = state.live or jobs.request(
        state, reason=types.Reason.THRESHOLD, size=size, keep=keep, for_worker=False
    )
    if not _waiting.acquire(blocking=False):
        jobs.ring(str(job.pk))
        return job
    try:
        return wait(job, deadline_s)
    finally:
        _waiting.release()


def wait(job: Compaction, deadline_s: float, *, final: bool = False) -> Compaction:
    """Works on the job, or watches whoever does, until it is ended or the time is over.

    `final`: the caller takes no later answer, so that an error that may pass ends the job as failed.
    """
    until = time.monotonic() + deadline_s
    while job.status in LIVE and (left := until - time.monotonic()) > 0:
        done = run(str(job.pk), deadline_s=left)
        job = _fresh(job)
        if done is not None and final and job.next_at is not None:
            rows = Compaction.objects.filter(pk=job.pk, status=Status.REQUESTED)
            rows.update(status=Status.FAILED, finished_at=timezone.now())
            return _fresh(job)
        if job.next_at is not None and (job.next_at - timezone.now()).total_seconds() > left:
            return job
        if done is None:
            time.sleep(min(POLL_S, left))
    if job.status == Status.REQUESTED:
        jobs.ring(str(job.pk))
    return job


def _fresh(job: Compaction) -> Compaction:
    """The row as it is now. Raises `NotFound` when its session was erased meanwhile: nothing is brought back."""
    try:
        job.refresh_from_db()
    except Compaction.DoesNotExist:
        raise NotFound("the session was erased meanwhile") from None
    return job


# --- gather and decide


def _span(job: Compaction) -> Span | None:
    """What this job evicts. The cut is chosen at the first claim and stays; None: nothing is worth it."""
    state = gather.state(job.session)
    base = _base(state, job)
    start = base.kept_from or 0 if base else 0
    messages = gather.readable(job.session, start)
    factor = budget.factor(state)
    at = budget.lines(state, job.session.fixed_tokens)
    if job.kept_from is None:
        evictable = int(sum(m.tokens for m in messages) * factor)
        expected = trigger.expected_summary(evictable, at)
        forced = job.reason in (types.Reason.MANUAL, types.Reason.TOOL)
        place = cut.choose(
            messages,
            keep=int(min(job.keep_tokens, at.keep) / factor),
            enough=int(max(0, (job.tokens_before or 0) - at.clear + expected) / factor),
            worth=int((expected if forced else expected + at.gain) / factor),
            keep_messages=state.limits.keep_messages,
        )
        if place is None or (base is not None and messages[place].seq <= start):
            return None
        # What was dropped mechanically is shown by nobody, so it is summarised now.
        first_seq = state.view().first_seq
        dropped = next((i for i in cut.allowed(messages) if messages[i].seq == first_seq), 0)
        kept_from = messages[max(place, dropped)].seq
        if not forced and jobs.tried_enough(job, base, kept_from):
            return None
        row = job.session.messages.only("digest").get(seq=kept_from - 1)
        if not jobs.save(job, kept_from=kept_from, prefix_digest=row.digest, base=base, folded_through=start):
            return None
    kept_from = job.kept_from or 0
    return Span(state, base, [m for m in messages if m.seq < kept_from], kept_from, at, factor)


def _base(state: gather.State, job: Compaction) -> Compaction | None:
    """What stands for the messages before the span. With a model at hand never an extractive one: that span is read again."""
    if job.kept_from is not None:
        return job.base
    return gather.latest_valid(state.session, models_only=registry.provider() is not None)


# --- summarise and apply


def _summarise(job: Compaction, span: Span, deadline_s: float | None) -> None:
    """One chunk of the span, or its end. A lost lease repeats one chunk, and the worker is free in between."""
    pending = [m for m in span.evicted if m.seq >= job.folded_through]
    crash.at("before-provider")
    written = summary.write(
        job.session,
        pending,
        job.partial or (span.base.summary if span.base else None),
        instructions=job.instructions,
        longest=span.lines.summary,
        factor=span.factor,
        timeout_s=min(settings.HANGO_SUMMARY_TIMEOUT_S, deadline_s or settings.HANGO_SUMMARY_TIMEOUT_S),
        warm=_warm(job, span),
    )
    crash.at("after-provider")
    jobs.note_success()
    spending.note(job.session.project, written.usage)
    usage = summary.added(job.usage or {}, written.usage or {})
    if written.through < span.kept_from:
        if jobs.save(job, folded_through=written.through, partial=written.text, usage=usage):
            jobs.give_back(job)
            jobs.ring(str(job.pk))
        return
    _record(job, span, written, usage)


def _warm(job: Compaction, span: Span) -> summary.Warm | None:
    """The conversation up to the cut, when the provider's cache still holds it and it shows the whole span (DESIGN 5)."""
    provider, turn, start = registry.provider(), span.state.last, span.evicted[0].seq
    if provider is None or turn is None or not provider.capabilities.prompt_caching:
        return None
    if summary.summarizer(job.session) != job.session.model:
        return None  # another model's cache holds nothing of it
    young = (timezone.now() - turn.created_at).total_seconds() < CACHE_LIVES_S
    shows = (turn.compaction_id == (span.base.pk if span.base else None)) and turn.first_seq == start
    if not (young and shows) or job.partial or span.kept_from > turn.last_seq + 1:
        return None
    if list(frames.read(turn.frame.body).redact) != (job.session.limits.get("redact") or []):
        return None  # what was sent may hold what must not leave any more
    turn.session = job.session
    request, weight = desk.prefix(turn, span.kept_from)
    size = int(weight * span.factor)
    fits = size + 2 * span.lines.summary + 2_000 <= span.state.limits.window
    return summary.Warm(request, size) if fits else None


def _record(job: Compaction, span: Span, written: summary.Written, usage: dict[str, Any]) -> None:
    """Records the summary as ready: ledger, summary message, history mirror, tokens after."""
    made = summary.composed(
        span.state,
        span.base,
        span.evicted,
        span.kept_from,
        span.lines,
        span.factor,
        written.text,
        job.partial,
    )
    saved = jobs.save(
        job, **made, kind=written.kind, summarizer_model=written.model, usage=usage or None, notes=list(written.notes),
        cost_usd=conf.price(written.model, usage) if usage else None, prompt_version=briefing.PROMPT_VERSION,
    )  # fmt: skip
    if not saved:
        return
    crash.at("before-mirror")
    mirrored = offload.mirror(job.session, span.kept_from)
    crash.at("after-mirror")
    after = budget.after_swap(span.state, span.kept_from, job.head_tokens)
    crash.at("before-ready")
    jobs.save(
        job, status=Status.READY, mirrored=mirrored, tokens_after=min(after, job.tokens_before or after),
        partial="", error_code="", error="", lease_until=None, next_at=None, finished_at=timezone.now(),
    )  # fmt: skip
    crash.at("after-ready")

"""FLOW 3: compact. Claim → cut → summarise → check → record; the Celery task and a waiting build run the same function.

gather: the claimed row, its span and base → decide: where to cut, what the answer lost → apply: record `ready`, only
if the fence is still ours. No transaction and no lock is held while the model writes.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import timezone

from compaction import budget, conf, gather, jobs, offload
from compaction.engine import answer as check
from compaction.engine import briefing, cut, identifiers, tokens, trigger, types
from compaction.engine.errors import NotFound, ProviderFailed, SummaryRejected
from compaction.engine.profiles import ModelProfile
from compaction.models import LIVE, Compaction
from compaction.providers import extractive, registry
from compaction.providers.base import Call, Provider, Reply
from sessions_app.models import Session

log = logging.getLogger(__name__)

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


def run(job_id: str, *, at_once: bool = False, deadline_s: float | None = None) -> Compaction | None:
    """Works on a job once: to its end, or to the next chunk of a long span. None when there was nothing to claim.

    `deadline_s`: seconds that a caller waits; the model call gets no more, and what it began is given back.
    """
    job = jobs.claim(job_id, at_once=at_once)
    if job is None:
        return None
    try:
        span = _span(job)
        if span is None:
            jobs.end(job, Status.SKIPPED, "nothing-to-compact", "what could be evicted is not worth a summary")
        else:
            _summarise(job, span, deadline_s)
    except ProviderFailed as error:
        jobs.note_failure(error)
        if error.may_pass and job.attempts < jobs.MAX_ATTEMPTS:
            jobs.give_back(job, error)
        else:
            jobs.end(job, Status.FAILED, error.kind or error.code, error.detail)
    except SummaryRejected as error:
        jobs.end(job, Status.FAILED, error.code, error.detail)
    except Exception as error:
        jobs.end(job, Status.FAILED, "internal", type(error).__name__)
        raise
    return _fresh(job)


def now(state: gather.State, *, size: int, keep: int, deadline_s: float) -> Compaction | None:
    """A due compaction, made or waited for by a build, for at most `deadline_s` seconds."""
    job = state.live or jobs.request(state, reason=types.Reason.THRESHOLD, size=size, keep=keep)
    return wait(job, deadline_s)


def wait(job: Compaction, deadline_s: float, *, final: bool = False) -> Compaction:
    """Works on the job, or watches whoever does, until it is ended or the time is over.

    `final`: the caller takes no later answer, so that an error that may pass ends the job as failed.
    """
    until = time.monotonic() + deadline_s
    while job.status in LIVE and (left := until - time.monotonic()) > 0:
        done = run(str(job.pk), at_once=True, deadline_s=left)
        if done is None:
            time.sleep(min(POLL_S, left))
        elif done.status == Status.REQUESTED and done.next_at is not None:
            if final:
                Compaction.objects.filter(pk=job.pk, status=Status.REQUESTED).update(status=Status.FAILED, finished_at=timezone.now())
            return _fresh(job)
        job = _fresh(job)
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
    messages = gather.messages(job.session, start)
    factor = budget.factor(state)
    at = budget.lines(state, job.session.fixed_tokens)
    if job.kept_from is None:
        evictable = int(sum(m.tokens for m in messages) * factor)
        summary = trigger.expected_summary(evictable, at)
        forced = job.reason in (types.Reason.MANUAL, types.Reason.TOOL)
        place = cut.choose(
            messages,
            keep=int(min(job.keep_tokens, at.keep) / factor),
            enough=int(max(0, (job.tokens_before or 0) - at.clear + summary) / factor),
            worth=int((summary if forced else summary + at.gain) / factor),
            keep_messages=state.limits.keep_messages,
        )
        if place is None or (base is not None and messages[place].seq <= start):
            return None
        kept_from = messages[place].seq
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


# --- summarise


def _summarise(job: Compaction, span: Span, deadline_s: float | None) -> None:
    provider = registry.provider()
    previous = job.partial or (span.base.summary if span.base else None)
    pending = [m for m in span.evicted if m.seq >= job.folded_through]
    estimate = span.state.estimator.estimate
    if provider is None:
        _act_like_a_model()
        text = extractive.summarise(pending, previous, max_tokens=int(span.lines.summary / span.factor), estimate=estimate)
        _record(job, span, text, kind=Compaction.Kind.EXTRACTIVE, model="", usage={}, notes=[])
        return
    model = _summarizer(job.session)
    profile = conf.profile(model)
    longest = min(span.lines.summary, profile.max_output_tokens or span.lines.summary)
    mode: briefing.Mode = "update" if previous else "create"
    system = briefing.instructions(mode, focus=job.instructions, max_tokens=longest)
    room = model_room(profile, longest, estimate(system) + estimate(previous or ""))
    chunk, rendered = _chunk(pending, room, span.state.estimator)
    call = Call(
        model=model,
        system=system,
        messages=({"role": "user", "content": [{"type": "text", "text": briefing.user_prompt(mode, previous, rendered, job.instructions)}]},),
        max_tokens=longest,
        timeout_s=min(settings.HANGO_SUMMARY_TIMEOUT_S, deadline_s or settings.HANGO_SUMMARY_TIMEOUT_S),
    )
    reply, usage = _written(provider, call, estimate, sum(m.tokens for m in chunk))
    jobs.note_success()
    said = [gather.text_of(m) for m in chunk if m.asks]
    text = check.without_invented_quotes(reply.text, [*said, previous or ""])
    usage = _added(job.usage or {}, usage)
    if chunk[-1].seq < span.evicted[-1].seq:
        # One chunk a claim: a lost lease repeats one chunk, and the worker is free in between.
        if jobs.save(job, folded_through=chunk[-1].seq + 1, partial=text, usage=usage):
            jobs.give_back(job)
            jobs.ring(str(job.pk))
        return
    notes = [] if briefing.has_sections(reply.text) else ["no-headings"]
    _record(job, span, text, kind=Compaction.Kind.MODEL, model=model, usage=usage, notes=notes)


def _act_like_a_model() -> None:
    if settings.HANGO_SUMMARIZER_DELAY_S:
        time.sleep(settings.HANGO_SUMMARIZER_DELAY_S)


def _summarizer(session: Session) -> str:
    profile = conf.profile(session.model)
    return session.summarizer_model or settings.HANGO_SUMMARIZER_MODEL or profile.summarizer_model or session.model


def model_room(profile: ModelProfile, longest: int, beside: int) -> int:
    """Base units of transcript that one call of the summarizer may read, `beside` other base units in it: instructions and
    notes. Some is left for the reminder and for what an estimate misses."""
    room = (profile.window - longest) * 0.97 / profile.estimate_factor - beside - 400
    return max(500, int(room))


def _chunk(
    messages: list[types.Message], room: int, estimator: tokens.Estimator
) -> tuple[list[types.Message], str]:
    """(the oldest messages that one call can read beside the previous notes, as rendered); at least one message, whose
    parts are cut further when it alone is too large."""
    limits = briefing.Limits()
    chunk: list[types.Message] = []
    weight = 0
    for message in messages:
        weight += estimator.estimate(briefing.render([message], limits=limits))
        if chunk and weight > room:
            break
        chunk.append(message)
    rendered = briefing.render(chunk, limits=limits)
    while estimator.estimate(rendered) > room and limits.text > 200:
        limits = briefing.Limits(max(100, limits.argument // 2), max(100, limits.result // 2), max(100, limits.text // 2))
        rendered = briefing.render(chunk, limits=limits)
    return chunk, rendered


def _written(provider: Provider, call: Call, estimate: briefing.Estimate, input_tokens: int) -> tuple[Reply, dict[str, Any]]:
    """(a usable answer, the usage of all calls): checked, with one reminder. Raises `SummaryRejected`."""
    usage: dict[str, Any] = {}
    problem = ""
    for attempt in range(2):
        if attempt:
            told = {"role": "user", "content": [*call.messages[0]["content"], {"type": "text", "text": check.reminder(problem)}]}
            call = Call(call.model, call.system, (told,), call.max_tokens, call.timeout_s, call.purpose)
        reply = provider.complete(call)
        usage = _added(usage, reply.usage)
        found = check.check(
            reply.text, stop_reason=reply.stop_reason, has_tool_call=reply.called_tool, input_tokens=input_tokens, estimate=estimate
        )
        if found is None:
            return reply, usage
        problem = found
        log.warning("a summary was not accepted (%s)", problem)
    raise SummaryRejected(problem)


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The sum of two usages: their whole-number fields."""
    numbers = {k: v for k, v in {**one, **other}.items() if isinstance(v, int) and not isinstance(v, bool)}
    return {k: _number(one.get(k)) + _number(other.get(k)) for k in numbers}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


# --- apply


def _record(
    job: Compaction, span: Span, text: str, *, kind: Compaction.Kind, model: str, usage: dict[str, Any], notes: list[str]
) -> None:
    """Records the summary as ready: ledger, summary message, history mirror, tokens after."""
    saved = jobs.save(
        job, **_composed(span.state, span.base, span.evicted, span.kept_from, span.lines, span.factor, text, job.partial),
        kind=kind, summarizer_model=model, usage=usage or None, cost_usd=conf.price(model, usage) if usage else None,
        prompt_version=briefing.PROMPT_VERSION, notes=notes,
    )  # fmt: skip
    if not saved:
        return
    mirrored = offload.mirror(job.session, job.kept_from or 0)
    after = max(1, (job.tokens_before or 0) - int(sum(m.tokens for m in span.evicted) * span.factor) + int(job.head_tokens * span.factor))
    jobs.save(
        job, status=Status.READY, mirrored=mirrored, tokens_after=after, partial="", error_code="", error="", lease_until=None,
        next_at=None, finished_at=timezone.now(),
    )  # fmt: skip


def _composed(
    state: gather.State,
    base: Compaction | None,
    evicted: list[types.Message],
    kept_from: int,
    at: trigger.Lines,
    factor: float,
    text: str,
    partial: str = "",
) -> dict[str, Any]:
    """The record's fields that are made by code, not by the model."""
    session, estimate = state.session, state.estimator.estimate
    # What an earlier summary or ledger carried counts as the user's own: it was chosen once already.
    earlier = identifiers.lines([*(base.identifiers_kept if base else ()), *identifiers.find(partial)])
    carried = [types.Message(0, "user", (types.Block.text_of(earlier),))] if earlier else []
    ledger = identifiers.ledger([*carried, *evicted], text, limit_tokens=int(at.ledger / factor), estimate=estimate)
    pins, asked = gather.carried(session, 0, kept_from)
    head = briefing.compose(
        text, session_id=session.public_id, history_path=session.history_path, ledger=ledger.listed, pinned=pins, last_request=asked,
        state=_tool_state(session, kept_from), limit_tokens=int(at.head / factor), estimate=estimate,
    )  # fmt: skip
    return {
        "summary": text, "head": head, "head_tokens": tokens.message_tokens(state.estimator, (types.Block.text_of(head),)),
        "evicted_messages": len(evicted), "identifiers_found": list(ledger.found)[:500],
        "identifiers_kept": [*ledger.kept, *ledger.listed][:500], "ledger": list(ledger.listed), "offload_path": session.history_path,
    }  # fmt: skip


def dropped_note(session: Session, pins: list[str], asked: str | None) -> str:
    """The text that stands for messages dropped without a summary."""
    return briefing.dropped_note(history_path=session.history_path, pinned=pins, last_request=asked)


def _tool_state(session: Session, kept_from: int) -> list[tuple[str, str]]:
    """(tool, its latest input before the cut) of the tools whose input is state, such as a todo list (`limits.state_tools`)."""
    found: dict[str, str] = {}
    wanted = set(session.limits.get("state_tools") or ())
    if not wanted:
        return []
    for row in session.messages.filter(role="assistant", seq__lt=kept_from, content__contains='"tool_use"').order_by("-seq").iterator():
        for call in reversed(gather.message(row).calls):
            name = str(call.data["name"])
            if name in wanted and name not in found:
                found[name] = types.exact.dumps(call.data["input"])
        if found.keys() >= wanted:
            break
    return sorted(found.items())


# --- without a model


def extract(state: gather.State, at: trigger.Lines, size: int, reason: types.Reason, target: int | None = None) -> Compaction | None:
    """A ready briefing that no model wrote, for a request that has to fit now; None when it would not help.

    `target`: what the request must come down to, in the model's tokens; the trigger less the gain unless given.
    """
    factor = budget.factor(state)
    base = gather.latest_valid(state.session)
    start = base.kept_from or 0 if base else 0
    messages = gather.messages(state.session, start, state.last_seq)
    evictable = int(sum(m.tokens for m in messages) * factor)
    summary = trigger.expected_summary(evictable, at)
    goal = at.clear if target is None else min(target, at.clear)
    place = cut.choose(
        messages, keep=int(at.keep / factor), enough=int(max(0, size - goal + summary) / factor), worth=int(summary / factor),
        keep_messages=state.limits.keep_messages,
    )  # fmt: skip
    if place is None:
        return None
    kept_from, evicted = messages[place].seq, messages[:place]
    previous = base.summary if base else None
    text = extractive.summarise(evicted, previous, max_tokens=int(at.summary / factor), estimate=state.estimator.estimate)
    fields = _composed(state, base, evicted, kept_from, at, factor, text)
    moment = timezone.now()
    after = max(1, size - int(sum(m.tokens for m in evicted) * factor) + int(fields["head_tokens"] * factor))
    row = Compaction(
        session=state.session, turn=state.last.number if state.last else None, reason=reason, kind=Compaction.Kind.EXTRACTIVE, status=Status.READY,
        apply=Compaction.Apply.NEXT_BUILD, base=base, kept_from=kept_from, folded_through=kept_from,
        prefix_digest=state.session.messages.values_list("digest", flat=True).get(seq=kept_from - 1),
        tokens_before=size, tokens_after=after, started_at=moment, finished_at=moment, **fields,
    )  # fmt: skip
    row.save(force_insert=True)
    offload.mirror_later(row)
    return row


def imported(state: gather.State, summary: str, kept_from: int) -> Compaction:
    """Records a summary that was written elsewhere. Raises nothing; the caller has checked and moved `kept_from`."""
    factor = budget.factor(state)
    at = budget.lines(state, state.session.fixed_tokens)
    base = gather.latest_valid(state.session, before=kept_from - 1)
    evicted = gather.messages(state.session, base.kept_from or 0 if base else 0, kept_from - 1)
    size, _, _ = budget.standing(state)
    moment = timezone.now()
    fields = _composed(state, base, evicted, kept_from, at, factor, summary)
    weight = gather.weight_before(state.session, kept_from) - gather.weight_before(state.session, state.view().first_seq)
    row = Compaction(
        session=state.session, reason=types.Reason.IMPORTED, kind=Compaction.Kind.IMPORTED, status=Status.READY,
        apply=Compaction.Apply.NEXT_BUILD, base=base, kept_from=kept_from, folded_through=kept_from,
        prefix_digest=state.session.messages.values_list("digest", flat=True).get(seq=kept_from - 1), tokens_before=size,
        tokens_after=max(1, size - int((weight - fields["head_tokens"]) * factor)), started_at=moment, finished_at=moment, **fields,
    )  # fmt: skip
    row.save(force_insert=True)
    offload.mirror_later(row)
    return row

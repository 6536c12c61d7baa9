"""Forcing a compaction from outside, or bringing one (SPEC F13): what REST and the admin share."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from compaction import budget, compact, gather, jobs, ready
from compaction.engine import cut, exact
from compaction.engine.errors import Invalid
from compaction.engine.types import Reason
from compaction.models import Compaction
from sessions_app.models import Session
from sessions_app.parsers import Body

OUTCOMES = {
    Compaction.Status.READY: "done",
    Compaction.Status.SKIPPED: "skipped",
    Compaction.Status.REJECTED: "rejected",
    Compaction.Status.FAILED: "failed",
}
MOST_SUMMARY = 400_000  # characters
UNSTORABLE = "holds a NUL or a lone surrogate"


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked body of `POST …/compactions/`. `summary` and `kept_from` come together: written elsewhere."""

    reason: Reason = Reason.MANUAL
    instructions: str = ""
    wait: bool = False
    summary: str | None = None
    kept_from: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """`outcome`: queued, done, skipped, rejected or failed; `detail` says why for all but the first two."""

    row: Compaction | None
    outcome: str
    detail: str = ""


def read(body: Body) -> Asked:
    """Checks the body. Raises `Invalid` with every fault."""
    errors = []

    def fault(name: str, rule: str) -> None:
        errors.append({"pointer": f"/{name}", "detail": rule})

    reason, instructions, wait = (
        body.get("reason") or "manual",
        body.get("instructions") or "",
        body.get("wait") or False,
    )
    summary, kept_from = body.get("summary"), body.get("kept_from")
    if reason not in ("manual", "tool"):
        fault("reason", "has to be manual or tool")
    if not isinstance(instructions, str) or len(instructions) > 20_000:
        fault("instructions", "has to be text of at most 20,000 characters")
    elif not exact.storable(instructions):
        fault("instructions", UNSTORABLE)
    if not isinstance(wait, bool):
        fault("wait", "has to be true or false")
    if (summary is None) != (kept_from is None):
        fault("kept_from" if kept_from is None else "summary", "summary and kept_from come together")
    if summary is not None and (
        not isinstance(summary, str) or not summary.strip() or len(summary) > MOST_SUMMARY
    ):
        fault("summary", f"has to be text, not blank, of at most {MOST_SUMMARY:,} characters")
    elif not exact.storable(summary):
        fault("summary", UNSTORABLE)
    if kept_from is not None and (
        not isinstance(kept_from, int) or isinstance(kept_from, bool) or kept_from < 1
    ):
        fault("kept_from", "has to be the seq of the first message kept, 1 or more")
    if errors:
        raise Invalid(f"{errors[0]['pointer']}: {errors[0]['detail']}", errors=errors)
    return Asked(Reason(reason), instructions, wait, summary, kept_from)


def compact_session(session: Session, asked: Asked) -> Done:
    """Asks for a compaction, waits for it, or records the one that was brought. It is shown from the next new turn on."""
    if asked.summary is not None and asked.kept_from is not None:
        return _imported(session, asked.summary, asked.kept_from)
    state = gather.state(session)
    if state.last_seq < 0:
        return Done(None, "skipped", "the session has no messages")
    size, at, _ = budget.standing(state)
    job = jobs.request(
        state,
        reason=asked.reason,
        size=size,
        keep=at.keep,
        instructions=asked.instructions,
        for_worker=not asked.wait,
    )
    if not asked.wait:
        return Done(job, "queued")
    job = compact.wait(job, 2 * settings.HANGO_SUMMARY_TIMEOUT_S, final=True)
    return Done(job, OUTCOMES.get(Compaction.Status(job.status), "queued"), job.error)


def _imported(session: Session, summary: str, kept_from: int) -> Done:
    state = gather.state(session)
    if kept_from > state.last_seq:
        raise Invalid(
            f"/kept_from: the last message has seq {state.last_seq}",
            errors=[{"pointer": "/kept_from", "detail": f"has to be at most {state.last_seq}"}],
        )
    messages = gather.messages(session, 0)
    places = [messages[i].seq for i in cut.allowed(messages) if messages[i].seq <= kept_from]
    if not places:
        return Done(None, "skipped", "there is no place to cut at or before kept_from")
    return Done(ready.imported(state, summary, places[-1]), "done")

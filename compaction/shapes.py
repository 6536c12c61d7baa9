"""How builds, rungs, compactions and background work are shown by the API (API.md)."""

from __future__ import annotations

from typing import Any

from compaction import budget, call, ladder, outgoing
from compaction.models import Compaction
from sessions_app.http import Raw
from sessions_app.models import Session
from sessions_app.views import shown_budget, warning

OVERFLOWED = (
    "the context overflow could not be cured: the request is refused even when compacted and truncated"
)


def built(made: outgoing.Built) -> dict[str, Any]:
    turn, shown, state = made.turn, made.shown, made.state
    view = shown.view
    standing = budget.as_budget(state, made.lines, shown.size, shown.source)
    used = made.compaction
    return {
        "turn": turn.number,
        "request": Raw(made.body),
        "budget": shown_budget(standing),
        "coverage": {
            "summarised": [0, view.kept_from - 1] if view.kept_from else None,
            "dropped": [view.kept_from, view.first_seq - 1] if view.first_seq > view.kept_from else None,
            "verbatim": [view.first_seq, view.last_seq],
        },
        "compaction": compaction(used) | {"applied_now": turn.adopted} if used else None,
        "work": work(state.session),
        "deferred": turn.deferred,
        "repairs": [warning(r) for r in shown.request.repairs],
        "truncated_tool_args": shown.request.truncated,
        "prefix_changed": made.prefix_changed,
        "digest": turn.digest,
    }


def timing(made: outgoing.Built) -> dict[str, str]:
    """How long this build waited for a compaction, as a standard header that tools show."""
    return {"Server-Timing": f"compaction;dur={made.waited_s * 1000:.1f}"}


def climbed(step: ladder.Climbed) -> dict[str, Any]:
    if step.built is None:
        return {
            "status": "failed", "rung": step.rung, "turn": step.turn.number, "attempts": step.turn.attempts,
            "detail": OVERFLOWED,
        }  # fmt: skip
    return {"status": "retry", "rung": step.rung} | built(step.built)


def called(made: call.Called) -> dict[str, Any]:
    """What `POST …/turns/` answers; `message` is null for a turn that failed."""
    reply, used = made.reply, made.built.compaction if made.built else None
    return {
        "turn": made.turn.number,
        "status": made.turn.status,
        "message": {"role": "assistant", "content": Raw(reply.blocks)} if reply else None,
        "stop_reason": reply.stop_reason if reply else None,
        "usage": reply.usage if reply else None,
        "compaction": compaction(used) | {"applied_now": made.turn.adopted} if used else None,
        "attempts": made.attempts,
        "deferred": made.turn.deferred,
        "warnings": list(made.warnings),
    } | ({} if reply else {"detail": OVERFLOWED})


def work(session: Session) -> dict[str, Any]:
    """The state of the session's background work."""
    job = session.compactions_made.exclude(status=Compaction.Status.REVOKED).order_by("-created_at").first()
    if job is None or job.status == Compaction.Status.SKIPPED:
        return {"state": "idle", "code": None, "compaction": None}
    failed = job.status in (Compaction.Status.FAILED, Compaction.Status.REJECTED)
    return {
        "state": "failed" if failed else job.status,
        "code": job.error_code or None,
        "compaction": str(job.pk),
    }


def compaction(row: Compaction) -> dict[str, Any]:
    return {
        "id": str(row.pk), "status": row.status, "kind": row.kind, "reason": row.reason, "turn": row.turn, "kept_from": row.kept_from,
        "evicted_messages": row.evicted_messages, "tokens_before": row.tokens_before, "tokens_after": row.tokens_after,
        "summary": row.summary, "offload_path": row.offload_path,
        "summarizer": {"model": row.summarizer_model or None, "usage": row.usage, "cost_usd": str(row.cost_usd) if row.cost_usd is not None else None},
        "identifiers": {"found": len(row.identifiers_found), "kept": len(row.identifiers_kept)}, "ledger": row.ledger,
        "error_code": row.error_code or None, "created_at": row.created_at.isoformat(),
        "finished_at": row.finished_at.isoformat() if row.finished_at else None,
    }  # fmt: skip

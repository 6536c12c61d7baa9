"""The operator's "Compact now" (SPEC F13): a page that asks first, then asks for the jobs. A door of the admin."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from compaction import budget, forced, gather
from compaction.models import LIVE
from sessions_app.models import Session

MOST_AT_ONCE = 50  # sessions: each may cost a model call


def allowed(request: HttpRequest) -> bool:
    """A permission of its own: changing anything else is not needed for it, and does not give it."""
    return request.user.has_perm("compaction.force_compaction") and request.user.has_perm(
        "transcript.view_session"
    )


def page(request: HttpRequest, *, model_admin: Any) -> HttpResponse:
    """GET asks whether to, POST does. Asking twice joins the job of the first time."""
    if not allowed(request):
        raise PermissionDenied
    given = request.POST if request.method == "POST" else request.GET
    ids = [found for text in given.getlist("session")[: MOST_AT_ONCE + 1] if (found := _uuid(text))]
    sessions = _chosen(request, ids, model_admin)
    if not sessions:
        return redirect("admin:transcript_session_changelist")
    if request.method != "POST":
        return _question(request, sessions, model_admin)
    for session in sessions:
        _force(request, session, model_admin)
    if len(sessions) == 1:
        return redirect("admin:transcript_session_change", sessions[0].pk)
    return redirect("admin:transcript_session_changelist")


def question(request: HttpRequest, ids: Iterable[uuid.UUID], *, model_admin: Any) -> HttpResponse | None:
    """The page that asks; None, with a message, when the choice is not possible."""
    sessions = _chosen(request, ids, model_admin)
    return _question(request, sessions, model_admin) if sessions else None


def _chosen(request: HttpRequest, ids: Iterable[uuid.UUID], model_admin: Any) -> list[Session]:
    sessions = list(Session.objects.select_related("project").filter(pk__in=list(ids)))
    if 0 < len(sessions) <= MOST_AT_ONCE:
        return sessions
    rule = f"Choose at most {MOST_AT_ONCE} sessions at once." if sessions else "There is no such session."
    model_admin.message_user(request, rule, messages.ERROR)
    return []


def _question(request: HttpRequest, sessions: Sequence[Session], model_admin: Any) -> HttpResponse:
    rows = []
    for session in sessions:
        state = gather.state(session)
        now = budget.of(state)
        counts = [f"{n:,}" for n in (state.last_seq + 1, now.input_tokens, now.window, now.trigger)]
        rows.append({"session": session, "counts": counts, "live": state.live})
    context = model_admin.page(request, title="Compact now", opts=model_admin.opts, rows=rows)
    return TemplateResponse(request, "compaction/admin/compact_now.html", context)


def _force(request: HttpRequest, session: Session, model_admin: Any) -> None:
    def say(level: int, what: str) -> None:
        model_admin.message_user(request, f"{session}: {what}.", level)

    with transaction.atomic():
        joined = session.compactions_made.filter(status__in=LIVE).exists()
        done = forced.compact_session(session, forced.Asked())
        if done.row is not None:
            how = "joined the live compaction" if joined else "asked for compaction"
            model_admin.log_change(request, session, f"Compact now: {how} {done.row.pk}.")
    if done.row is None:
        say(messages.WARNING, f"there is nothing to compact, {done.detail}")
    elif joined:
        say(
            messages.INFO, "a compaction is under way already; its summary is shown from the next new turn on"
        )
    else:
        say(messages.SUCCESS, "a compaction is asked for; its summary is shown from the next new turn on")


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None

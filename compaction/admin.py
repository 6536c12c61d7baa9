"""Browsing what the model was shown: turns, compactions and the messages they evicted (SPEC F8, F16)."""

from __future__ import annotations

import json
import uuid
from itertools import islice
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction import offload
from compaction.engine import quoting
from compaction.engine.errors import Malformed
from compaction.models import Circuit, Compaction, Frame, ModelFact, Turn
from sessions_app import readable, readonly
from sessions_app.models import Session

LINES = 500  # of the history on one page
OF_SESSION = ("session__system", "session__tools", "session__metadata", "session__limits")
COLOURS = {
    "open": "info", "completed": "success", "failed": "danger",
    "requested": "info", "running": "warning", "ready": "success", "rejected": "danger", "revoked": "warning",
}  # fmt: skip


class OfSession(readonly.ReadOnlyAdmin):
    """Records of a session."""

    list_select_related = ["session", "session__project"]
    search_fields = ["session__public_id"]
    search_help_text = "Searches by session id."

    @display(description="session", ordering="session__public_id")
    def session_link(self, row: Any) -> SafeString:
        return readonly.session_link(row.session)

    @display(description="project", ordering="session__project__name")
    def project(self, row: Any) -> str:
        return str(row.session.project)

    @display(description="status", ordering="status", label=COLOURS)
    def state(self, row: Any) -> str:
        return str(row.status)


@admin.register(Turn)
class TurnAdmin(OfSession):
    list_display = [
        "number", "session_link", "project", "state", "climbed", "input", "coverage", "marks", "stop_reason",
        "created",
    ]  # fmt: skip
    list_filter = ["status", "rung", "adopted", "deferred", "session__project"]
    ordering = ["-id"]
    unlisted = (*OF_SESSION, "attempts", "usage", "warnings")
    fieldsets = [
        (None, {"fields": ["session_link", "number", "state", "rung", "created", "closed"]}),
        (
            "View",
            {
                "fields": [
                    "coverage", "compaction", "kept_from", "first_seq", "last_seq", "args_cut_before", "block_limit",
                    "thinking_stripped_from", "thinking_stripped_to", "adopted", "deferred", "frame",
                ]
            },
        ),
        (
            "As sent",
            {"fields": ["input_tokens", "estimated_tokens", "max_tokens", "elements", "digest", "elements_digest", "tries"]},
        ),
        ("Answer", {"fields": ["stop_reason", "reported", "answer_digest", "noted"]}),
    ]  # fmt: skip
    readonly_fields = ["session_link", "state", "coverage", "tries", "reported", "noted", "created", "closed"]

    @display(description="coverage")
    def coverage(self, turn: Turn) -> str:
        parts = [("summarised", 0, turn.kept_from), ("dropped", turn.kept_from, turn.first_seq)]
        parts.append(("shown", turn.first_seq, turn.last_seq + 1))
        return " · ".join(
            f"{name} {first:,}–{before - 1:,}" for name, first, before in parts if before > first
        )

    @display(description="input tokens", ordering="input_tokens")
    def input(self, turn: Turn) -> str:
        return f"{turn.input_tokens:,}"

    @display(description="rung", ordering="rung", label={"overflow": "warning", "truncate": "danger"})
    def climbed(self, turn: Turn) -> str | None:
        return turn.rung or None

    @display(description="summary", label={"swapped in": "primary", "deferred": "warning"})
    def marks(self, turn: Turn) -> str | None:
        return "swapped in" if turn.adopted else "deferred" if turn.deferred else None

    closed = readonly.field("closed_at", readonly.moment, "closed")
    tries = readonly.field("attempts", readonly.value)
    reported = readonly.field("usage", readonly.value)
    noted = readonly.field("warnings", readonly.value)


@admin.register(Compaction)
class CompactionAdmin(OfSession):
    list_display = [
        "created", "session_link", "project", "state", "kind", "reason", "before_after", "evicted", "history_file",
        "summarizer",
    ]  # fmt: skip
    list_filter = ["status", "kind", "reason", "session__project"]
    ordering = ["-created_at"]
    unlisted = (
        *OF_SESSION, "summary", "head", "partial", "instructions", "identifiers_found", "identifiers_kept", "ledger", "notes",
    )  # fmt: skip
    fieldsets = [
        (None, {"fields": ["id", "session_link", "state", "kind", "reason", "turn", "apply", "created", "base"]}),
        (
            "Result",
            {
                "fields": [
                    "before_after", "evicted_messages", "kept_from", "keep_tokens", "head_tokens",
                    "history_path", "mirrored", "prefix_digest",
                ]
            },
        ),
        (
            "Summary",
            {"fields": ["summary_text", "head_text", "ledger_text", "identifiers_lost", "identifiers_held", "instructions_text"]},
        ),
        ("Summarizer", {"fields": ["summarizer_model", "summarizer_usage", "usage_text", "prompt_version", "notes_text"]}),
        (
            "Job",
            {
                "fields": [
                    "attempts", "fence", "started_at", "finished_at", "lease_until", "next_at", "folded_through", "partial_text",
                    "error_code", "error_text",
                ]
            },
        ),
    ]  # fmt: skip
    readonly_fields = [
        "id", "session_link", "state", "created", "before_after", "history_path", "summary_text", "head_text", "ledger_text",
        "identifiers_lost", "identifiers_held", "instructions_text", "summarizer_usage", "usage_text", "notes_text",
        "partial_text", "error_text",
    ]  # fmt: skip

    @display(description="tokens before → after", ordering="tokens_before")
    def before_after(self, row: Compaction) -> str:
        before, after = (
            readonly.NOTHING if n is None else f"{n:,}" for n in (row.tokens_before, row.tokens_after)
        )
        return f"{before} → {after}"

    @display(description="evicted", ordering="evicted_messages")
    def evicted(self, row: Compaction) -> str:
        return f"{row.evicted_messages:,}"

    @display(description="history")
    def history_file(self, row: Compaction) -> SafeString | str:
        """The path without its folder, which is the same for all."""
        name = format_html('<span class="hango-file">{}</span>', row.offload_path.rpartition("/")[2])
        return readonly.link(_history(row), name) if row.offload_path else readonly.NOTHING

    @display(description="history path")
    def history_path(self, row: Compaction) -> SafeString | str:
        return readonly.link(_history(row), row.offload_path) if row.offload_path else readonly.NOTHING

    @display(description="summarizer", ordering="summarizer_model")
    def summarizer(self, row: Compaction) -> str:
        used = self.summarizer_usage(row)
        return f"{row.summarizer_model} · {used}" if row.summarizer_model else used

    @display(description="usage and cost")
    def summarizer_usage(self, row: Compaction) -> str:
        usage = row.usage if isinstance(row.usage, dict) else {}
        counts = {"in": usage.get("input_tokens"), "out": usage.get("output_tokens")}
        found = [f"{name} {count:,}" for name, count in counts.items() if isinstance(count, int)]
        return (
            " · ".join([*found, *([f"${row.cost_usd:.4f}"] if row.cost_usd is not None else [])])
            or readonly.NOTHING
        )

    summary_text = readonly.field("summary", readonly.text)
    head_text = readonly.field("head", readonly.text, "as it is shown")
    ledger_text = readonly.field("ledger", readonly.value)

    @display(description="identifiers lost by the summary")
    def identifiers_lost(self, row: Compaction) -> SafeString | str:
        kept = set(row.identifiers_kept)
        return readonly.text("\n".join(str(found) for found in row.identifiers_found if found not in kept))

    @display(description="identifiers kept by it")
    def identifiers_held(self, row: Compaction) -> SafeString | str:
        return readonly.text("\n".join(map(str, row.identifiers_kept)))

    instructions_text = readonly.field("instructions", readonly.text)
    usage_text = readonly.field("usage", readonly.value)
    notes_text = readonly.field("notes", readonly.value)
    partial_text = readonly.field("partial", readonly.text, "partial summary")
    error_text = readonly.field("error", readonly.text)

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        return (("evicted/<uuid:session_id>/", "compaction_compaction_evicted", _evicted_page),)


def _history(row: Compaction) -> str:
    return reverse("admin:compaction_compaction_evicted", args=[row.session_id])


def _evicted_page(
    request: HttpRequest, session_id: uuid.UUID, *, model_admin: CompactionAdmin
) -> HttpResponse:
    """The history of a session as its file has it, from the rows, some lines at a time."""
    if not request.user.has_perms(
        ["transcript.view_session", "transcript.view_message", "compaction.view_compaction"]
    ):
        raise PermissionDenied
    session = get_object_or_404(Session.objects.select_related("project"), pk=session_id)
    offset, fault, lines = readonly.number(request.GET.get("offset"), 0), "", []
    try:
        wanted = offload.window({"pattern": request.GET.get("pattern", "")})["pattern"]
        lines = list(islice(offload.lines(session, offset=offset, pattern=wanted), LINES + 1))
    except Malformed as error:
        wanted, fault = None, str(error)
    context = model_admin.page(
        request,
        title="Evicted messages", subtitle=session, opts=Session._meta, original=session, session=session, fault=fault, pattern=wanted or "",
        text=quoting.harmless("".join(lines[:LINES])), offset=offset, through=offset + len(lines[:LINES]),
        earlier=max(0, offset - LINES), later=offset + LINES if len(lines) > LINES else None,
        evicted=offload.evicted_through(session),
    )  # fmt: skip
    return TemplateResponse(request, "compaction/admin/evicted.html", context)


@admin.register(Frame)
class FrameAdmin(readonly.ReadOnlyAdmin):
    """What shaped requests and is no message, by the hash of its content."""

    list_display = ["digest", "project"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["digest"]
    unlisted = ("body",)
    fields = ["digest", "project", "settings_text", "system_text", "tools_text", "memory_text"]
    readonly_fields = ["settings_text", "system_text", "tools_text", "memory_text"]

    @display(description="settings")
    def settings_text(self, frame: Frame) -> SafeString | str:
        texts = ("system", "tools", "memory")
        return readonly.value(
            {name: value for name, value in json.loads(frame.body).items() if name not in texts}
        )

    @display(description="system")
    def system_text(self, frame: Frame) -> SafeString | str:
        return readonly.text(readable.system(json.loads(frame.body)["system"]))

    @display(description="tools")
    def tools_text(self, frame: Frame) -> SafeString | str:
        return readonly.json_text(json.loads(frame.body)["tools"])

    @display(description="memory")
    def memory_text(self, frame: Frame) -> SafeString | str:
        return readonly.text(readable.system(json.loads(frame.body)["memory"]))


@admin.register(ModelFact)
class ModelFactAdmin(readonly.ReadOnlyAdmin):
    """What hango's own calls taught about models."""

    list_display = ["model", "base_url", "max_input_tokens", "estimate_factor", "samples", "updated_at"]
    search_fields = ["model", "base_url"]
    fields = list_display
    ordering = ["model"]


@admin.register(Circuit)
class CircuitAdmin(readonly.ReadOnlyAdmin):
    """Whether a provider key may be used; the key is shown by the first characters of its hash."""

    list_display = ["key", "failures", "open_until", "error_code", "updated_at"]
    fields = list_display
    readonly_fields = ["key"]
    ordering = ["-updated_at"]

    @display(description="key")
    def key(self, circuit: Circuit) -> str:
        return circuit.key_digest[:8]

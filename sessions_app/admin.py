"""Browsing what was said: projects, keys, sessions and their transcripts; and forcing a compaction (SPEC F13, F16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from compaction import budget, compact_now, conf, gather, spending
from compaction.models import LIVE, Compaction, Turn
from sessions_app import readable, readonly
from sessions_app.models import ApiKey, Message, Project, Session, Tombstone

PAGE = 100  # messages of a transcript page

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    """Editable: here an operator is given permissions, such as to force a compaction."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    pass


@admin.register(Project)
class ProjectAdmin(readonly.ReadOnlyAdmin):
    """A project's limits are the one thing that is set here."""

    list_display = ["name", "daily_token_budget", "rate_limit_per_minute", "created"]
    search_fields = ["name"]
    fields = ["name", "id", "rate_limit_per_minute", "daily_token_budget", "spent_today", "created_at"]
    ordering = ["name"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("transcript.change_project")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["name", "id", "spent_today", "created_at"]

    @display(description="tokens spent today")
    def spent_today(self, row: Project) -> int:
        return spending.today(row)


@admin.register(ApiKey)
class ApiKeyAdmin(readonly.ReadOnlyAdmin):
    """Keys are made by `manage.py make_key` and shown once. Neither key nor digest is on any page."""

    list_display = [
        "prefix",
        "name",
        "project",
        "scope",
        "created",
        "expires_at",
        "last_used_at",
        "revoked_at",
    ]
    list_filter = ["scope", "project"]
    actions = ["revoke"]
    list_select_related = ["project"]
    search_fields = ["prefix", "name"]
    fields = ["name", "prefix", "project", "scope", "created_at", "expires_at", "last_used_at", "revoked_at"]
    ordering = ["-created_at"]
    unlisted = ("digest",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("transcript.change_apikey")

    @action(description="Revoke: the key works no more, at once", permissions=["revoke"])
    def revoke(self, request: HttpRequest, rows: QuerySet[ApiKey]) -> None:
        ended = rows.filter(revoked_at=None).update(revoked_at=timezone.now())
        self.message_user(request, f"{ended} revoked")


@admin.register(Tombstone)
class TombstoneAdmin(readonly.ReadOnlyAdmin):
    """The audit record of erasures."""

    list_display = ["erased_at", "project", "reason", "by", "messages", "turns", "compactions", "file_gone"]
    list_filter = ["reason", "project"]
    list_select_related = ["project"]
    search_fields = ["session_id", "public_id_digest"]
    search_help_text = "Searches by the session's UUID, or by the SHA-256 of its id."
    fields = [
        "project",
        "session_id",
        "public_id_digest",
        "reason",
        "by",
        "messages",
        "turns",
        "compactions",
        "object_name",
        "erased_at",
    ]
    ordering = ["-erased_at"]

    @display(description="file deleted", boolean=True)
    def file_gone(self, row: Tombstone) -> bool:
        return not row.object_name


class HasCompactions(admin.SimpleListFilter):
    title = "compactions"
    parameter_name = "compacted"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "has compactions"), ("no", "none so far")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        if self.value() == "yes":
            return queryset.filter(compactions__gt=0)
        return queryset.filter(compactions=0) if self.value() == "no" else queryset


@admin.register(Session)
class SessionAdmin(readonly.ReadOnlyAdmin):
    list_display = [
        "public_id", "project", "model", "stored", "input_of_window", "compactions", "work", "created",
    ]  # fmt: skip
    list_filter = ["project", "model", HasCompactions]
    list_select_related = ["project"]
    search_fields = ["public_id", "model", "project__name"]
    unlisted = ("system", "tools", "metadata")
    actions = ["compact_now"]
    actions_detail = ["transcript", "turns", "compactions_made", "history_file", "compact_this"]
    fieldsets = [
        (None, {"fields": ["public_id", "project", "model", "created", "key"]}),
        ("Context", {"fields": ["context_now", "input_of_window", "compactions", "work", "stored"]}),
        (
            "Settings",
            {
                "fields": [
                    "max_tokens", "limits_text", "summarizer_model", "compact_tool", "strict", "memory_placement",
                    "estimator", "history_path", "metadata_text",
                ]
            },
        ),
        ("System and tools", {"fields": ["fixed_tokens", "system_text", "tools_text"]}),
    ]  # fmt: skip
    readonly_fields = [
        "created", "key", "context_now", "input_of_window", "work", "stored", "limits_text", "history_path", "metadata_text", "system_text",
        "tools_text",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        newest = Message.objects.filter(session=OuterRef("pk")).order_by("-seq").values("seq")[:1]
        live = Compaction.objects.filter(session=OuterRef("pk"), status__in=LIVE).values("status")[:1]
        return super().get_queryset(request).annotate(newest=Subquery(newest), live=Subquery(live))

    # --- columns and fields

    @display(description="messages")
    def stored(self, session: Any) -> int:
        return 0 if session.newest is None else session.newest + 1

    @display(description="last input tokens", ordering="last_input_tokens")
    def input_of_window(self, session: Session) -> str:
        window = gather.limits(session, conf.profile(session.model), None).window
        return f"{session.last_input_tokens:,} of {window:,} ({session.last_input_tokens / window:.0%})"

    @display(description="key")
    def key(self, session: Session) -> str:
        return str(session.pk)

    @display(description="under way", label={"requested": "info", "running": "warning"})
    def work(self, session: Any) -> str | None:
        return session.live or None

    @display(description="next request")
    def context_now(self, session: Session) -> str:
        now = budget.of(gather.state(session))
        early = f", summary ahead of time from {now.precompute_at:,}" if now.precompute_at else ""
        return f"{now.input_tokens:,} of {now.window:,} tokens (by {now.source}); compacted at {now.trigger:,}{early}"

    @display(description="system")
    def system_text(self, session: Session) -> SafeString | str:
        return readonly.text(readable.system(session.system))

    tools_text = readonly.field("tools", readonly.json_text)
    metadata_text = readonly.field("metadata", readonly.json_text)
    limits_text = readonly.field("limits", readonly.value)

    # --- where a session's page leads to

    # Methods, not names with a dot: unfold looks those up in the database while Django checks itself before migrating.
    def has_view_turns_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("compaction.view_turn")

    def has_view_compactions_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("compaction.view_compaction")

    def has_read_messages_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perms(["transcript.view_session", "transcript.view_message"])

    @action(description="Transcript", url_path="transcript", icon="forum", permissions=["read_messages"])
    def transcript(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The messages as they were said, a page at a time by `seq`, with what the newest turn shows of them."""
        session = self._session(request, object_id)
        whole = request.GET.get("whole") == "1"
        first = readonly.number(request.GET.get("from"), 0)
        size = 1 if whole else PAGE
        rows = (
            session.messages.filter(seq__gte=first)
            .order_by("seq")
            .defer("digest", "shown_ids", "open_calls")[:size]
        )
        turn = session.turns.order_by("-number").first()
        last = -1 if session.newest is None else session.newest
        shown = _shown(
            rows, turn, session.limits.get("tool_arg_max_tokens", settings.HANGO_TOOL_ARG_MAX_TOKENS), whole
        )
        context = self.page(
            request,
            title="Transcript", subtitle=session, opts=self.opts, original=session, session=session, turn=turn, shown=shown, whole=whole,
            last=last, first=first, through=min(first + size - 1, last), earlier=max(0, first - PAGE),
            later=first + size, newest=max(0, last - PAGE + 1), start_of_page=first // PAGE * PAGE,
        )  # fmt: skip
        return TemplateResponse(request, "sessions_app/admin/transcript.html", context)

    @action(description="Turns", url_path="turns", icon="sync_alt", permissions=["view_turns"])
    def turns(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self._session(request, object_id)
        return redirect(f"{reverse('admin:compaction_turn_changelist')}?session__id__exact={session.pk}")

    @action(
        description="Compactions",
        url_path="compactions",
        icon="compress",
        permissions=["view_compactions"],
    )
    def compactions_made(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self._session(request, object_id)
        return redirect(
            f"{reverse('admin:compaction_compaction_changelist')}?session__id__exact={session.pk}"
        )

    @action(description="Evicted", url_path="evicted", icon="history_edu", permissions=["read_messages"])
    def history_file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return redirect("admin:compaction_compaction_evicted", self._session(request, object_id).pk)

    def _session(self, request: HttpRequest, object_id: str) -> Any:
        session = self.get_object(request, unquote(object_id))
        if session is None:
            raise Http404
        if not self.has_view_permission(request, session):
            raise PermissionDenied
        return session

    # --- Compact now

    def has_force_compaction_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return compact_now.allowed(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        # Without this the action is merely unknown, and the refusal would look like a page that did nothing.
        if request.POST.get("action") == "compact_now" and not compact_now.allowed(request):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        return (("compact-now/", "transcript_session_compact_now", compact_now.page),)

    @admin.action(description="Compact now", permissions=["force_compaction"])
    def compact_now(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
        ids = queryset.values_list("pk", flat=True)[: compact_now.MOST_AT_ONCE + 1]
        return compact_now.question(request, ids, model_admin=self)

    @action(
        description="Compact now", url_path="compact-now", icon="bolt", permissions=["force_compaction"],
        variant=ActionVariant.PRIMARY,
    )  # fmt: skip
    def compact_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self._session(request, object_id)
        return redirect(f"{reverse('admin:transcript_session_compact_now')}?session={session.pk}")


def _shown(rows: Iterable[Message], turn: Turn | None, arg_limit: int, whole: bool) -> list[dict[str, Any]]:
    """What the transcript's template draws of each message."""
    shown, names = [], dict[str, str]()
    for row in rows:
        parts = readable.parts(row.content, names, None if whole else readable.LONGEST)
        cuttable = row.tokens > arg_limit and any(p.kind in ("call", "result", "error") for p in parts)
        place = _place(row, turn, cuttable)
        shown.append({"row": row, "tokens": f"{row.tokens:,}", "place": place, "parts": parts})
    return shown


def _place(row: Message, turn: Turn | None, cuttable: bool) -> tuple[str, str]:
    """(badge, its colour): what the newest turn makes of the message. `cuttable`: it has parts that truncation cuts."""
    if turn is None or row.seq > turn.last_seq:
        return "not sent yet", "default"
    if row.seq < turn.kept_from:
        return "summarised", "info"
    if row.seq < turn.first_seq:
        return "dropped", "danger"
    return ("shown, cut", "warning") if cuttable and row.seq < turn.args_cut_before else ("shown", "success")

"""What the admin's pages share: models that are looked at and never edited, and content shown as escaped text."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import display

from compaction.engine import exact, quoting

NOTHING = "–"


class ReadOnlyAdmin(ModelAdmin):
    """Records are written by the service alone: whoever may view them sees them, nobody adds, changes or deletes."""

    list_per_page = 50
    list_fullwidth = True
    show_full_result_count = False  # a second count of a table that grows without end
    list_filter_submit = False
    empty_value_display = NOTHING
    unlisted: tuple[str, ...] = ()  # large columns that a list does not read

    class Media:
        css = {"all": ["hango/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        match = request.resolver_match
        return rows if match is not None and "object_id" in match.kwargs else rows.defer(*self.unlisted)

    @display(description="created", ordering="created_at")
    def created(self, row: Any) -> str:
        return moment(row.created_at)

    def page(self, request: HttpRequest, **context: Any) -> dict[str, Any]:
        """The context of a page of our own; `original` is the record that it belongs to."""
        return {**self.admin_site.each_context(request), "media": self.media, **context}


def text(value: str) -> SafeString | str:
    """Text of any origin, escaped, with its line ends."""
    return (
        format_html('<pre class="hango-text">{}</pre>', quoting.harmless(value)) if value.strip() else NOTHING
    )


def value(found: Any) -> SafeString | str:
    """A JSON value, indented."""
    return text(indented(found)) if found not in (None, "", [], {}) else NOTHING


def json_text(raw: str) -> SafeString | str:
    """A stored JSON text, indented."""
    return value(exact.loads(raw)) if raw else NOTHING


def indented(found: Any) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False)


def field(
    name: str, render: Callable[[Any], SafeString | str], description: str = ""
) -> Callable[[Any, Any], SafeString | str]:
    """A field of a page: a column of the record, rendered by one of the functions above."""

    @display(description=description or name)
    def shown(self: Any, row: Any) -> SafeString | str:
        return render(getattr(row, name))

    return shown


def moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else NOTHING


def link(url: str, label: object) -> SafeString:
    return format_html('<a class="text-link" href="{}">{}</a>', url, label)


def session_link(session: Model) -> SafeString:
    return link(reverse("admin:transcript_session_change", args=[session.pk]), session)


def number(given: str | None, default: int) -> int:
    """A whole number of a query string; the default for anything else."""
    return int(given) if given and given.isascii() and given.isdigit() and len(given) < 10 else default

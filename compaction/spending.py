"""What hango's own model calls cost a project a day, in tokens, and what it may spend.

Checked before a call and counted after it: calls that run at the same time may overspend by one call each, never more.
Without a budget nothing is read or written.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from compaction.engine import tokens
from compaction.engine.errors import BudgetSpent
from sessions_app.models import Project, Spending


def budget(project: Project) -> int:
    """Tokens a day; 0: no limit."""
    own = project.daily_token_budget
    return settings.HANGO_DAILY_TOKEN_BUDGET if own is None else own


def spent(project: Project) -> bool:
    """Whether today's budget is used up."""
    most = budget(project)
    if not most:
        return False
    return Spending.objects.filter(project=project, day=_today(), tokens__gte=most).exists()


def today(project: Project) -> int:
    """Tokens spent so far; 0 as well where nothing is counted because there is no budget."""
    return (
        Spending.objects.filter(project=project, day=_today()).values_list("tokens", flat=True).first() or 0
    )


def check(project: Project) -> None:
    """Raises `BudgetSpent`."""
    if spent(project):
        raise BudgetSpent(retry_after_s=(until() - timezone.now()).total_seconds())


def until() -> datetime:
    """When the next budget begins: midnight, UTC."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(
        days=1
    )


def note(project: Project, usage: dict[str, Any] | None) -> None:
    """Counts a call's tokens, whatever it was for."""
    used = tokens.context_of(usage or {}) + int((usage or {}).get("output_tokens") or 0)
    if not budget(project) or not used:
        return
    row, _ = Spending.objects.get_or_create(project=project, day=_today())
    Spending.objects.filter(pk=row.pk).update(tokens=F("tokens") + used)


def _today() -> Any:
    return timezone.now().astimezone(UTC).date()

"""Lists API keys, rotates one, revokes one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from sessions_app import auth
from sessions_app.models import ApiKey


class Command(BaseCommand):
    help = "Lists API keys; `--rotate PREFIX` makes a successor and shows it once; `--revoke PREFIX` ends one at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rotate", metavar="PREFIX", help="the key's first characters, as the list shows them"
        )
        parser.add_argument(
            "--grace", type=float, default=24, metavar="HOURS", help="how long the old key works on"
        )
        parser.add_argument("--revoke", metavar="PREFIX")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["rotate"]:
            self.stdout.write(auth.rotate(_one(options["rotate"]), timedelta(hours=options["grace"])))
        elif options["revoke"]:
            ApiKey.objects.filter(pk=_one(options["revoke"]).pk).update(revoked_at=timezone.now())
        else:
            for row in ApiKey.objects.select_related("project").order_by("project__name", "created_at"):
                self.stdout.write(_line(row))


def _one(prefix: str) -> ApiKey:
    found = list(
        ApiKey.objects.select_related("project").filter(prefix__startswith=prefix, revoked_at=None)[:2]
    )
    if len(found) != 1:
        raise CommandError(f"{'several keys begin' if found else 'no key begins'} with {prefix!r}")
    return found[0]


def _line(row: ApiKey) -> str:
    def day(moment: Any) -> str:
        return f"{moment:%Y-%m-%d %H:%M}" if moment else "never"

    state = "revoked" if row.revoked_at else f"expires {day(row.expires_at)}"
    return (
        f"{row.prefix}…  {row.project}  {row.scope}  {state}  last used {day(row.last_used_at)}  {row.name}"
    )

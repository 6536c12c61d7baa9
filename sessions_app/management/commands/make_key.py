"""Makes an API key and shows it once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone
from django.utils.text import slugify

from sessions_app import auth
from sessions_app.models import ApiKey, Project


class Command(BaseCommand):
    help = "Makes an API key of a project (made when missing) and shows it once; only its digest is stored."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", nargs="?", default="default")
        parser.add_argument("--name", default="", help="what the key is for")
        parser.add_argument("--scope", default="admin", choices=ApiKey.Scope.values, help="what it may do")
        parser.add_argument(
            "--expires", type=float, metavar="DAYS", help="after so many days it works no more"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        project, _ = Project.objects.get_or_create(name=slugify(options["project"]) or "default")
        days = options["expires"]
        until = timezone.now() + timedelta(days=days) if days is not None else None
        scope = ApiKey.Scope(options["scope"])
        self.stdout.write(auth.make_key(project, options["name"], scope=scope, expires_at=until))

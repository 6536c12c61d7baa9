"""Makes an API key and shows it once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.text import slugify

from sessions_app import auth
from sessions_app.models import Project


class Command(BaseCommand):
    help = "Makes an API key of a project (made when missing) and shows it once; only its digest is stored."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("project", nargs="?", default="default")
        parser.add_argument("--name", default="", help="what the key is for")

    def handle(self, *args: Any, **options: Any) -> None:
        project, _ = Project.objects.get_or_create(name=slugify(options["project"]) or "default")
        self.stdout.write(auth.make_key(project, options["name"]))

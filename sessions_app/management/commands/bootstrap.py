"""Makes the keys of HANGO_BOOTSTRAP_API_KEY work; run at every start, so that a first one needs no hand."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from sessions_app import auth
from sessions_app.models import Project

DEFAULT_PROJECT = "default"


class Command(BaseCommand):
    help = "Makes the keys of HANGO_BOOTSTRAP_API_KEY work."

    def handle(self, *args: Any, **options: Any) -> None:
        for project, key in pairs(settings.HANGO_BOOTSTRAP_API_KEY):
            try:
                auth.make_key(Project.objects.get_or_create(name=project)[0], "bootstrap", key)
            except ValueError:
                raise CommandError(
                    f"HANGO_BOOTSTRAP_API_KEY: the key given for project {project!r} belongs to another project"
                ) from None


def pairs(value: str) -> list[tuple[str, str]]:
    """[(project, key)] of a key alone, or of `project:key` pairs separated by commas."""
    found = []
    for part in filter(None, (p.strip() for p in value.split(","))):
        project, colon, key = part.rpartition(":")
        found.append((project if colon else DEFAULT_PROJECT, key))
    return found

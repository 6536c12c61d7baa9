"""API keys: 32 random bytes, of which only the SHA-256 is stored."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions_app.models import ApiKey, Project

PREFIX = "hango_"  # so that secret scanners can know our keys


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def make_key(project: Project, name: str = "", key: str | None = None) -> str:
    """A new key of the project, returned once and stored only as a digest. Giving `key` makes that one work, once or
    again (for `HANGO_BOOTSTRAP_API_KEY`); raises ValueError when another project owns it."""
    key = key or PREFIX + secrets.token_urlsafe(32)
    row, _ = ApiKey.objects.get_or_create(
        digest=digest(key),
        defaults={"project": project, "name": name, "prefix": key[: min(10, max(1, len(key) // 3))]},
    )
    if row.project_id != project.pk:
        raise ValueError("this key belongs to another project")
    return key


class Caller:
    """Who is calling: a project. Stands where Django would have a user."""

    is_authenticated = True
    is_active = True

    def __init__(self, project: Project) -> None:
        self.project = project
        self.pk = project.pk


class BearerKey(BaseAuthentication):
    """`Authorization: Bearer <key>`."""

    def authenticate(self, request: Request) -> tuple[Caller, ApiKey] | None:
        words = get_authorization_header(request).split()
        if not words:
            return None
        if len(words) != 2 or words[0].lower() != b"bearer":
            raise AuthenticationFailed("the header has to read `Authorization: Bearer <key>`")
        found = (
            ApiKey.objects.select_related("project")
            .filter(digest=digest(words[1].decode("latin-1")), revoked_at=None)
            .first()
        )
        if found is None:
            raise AuthenticationFailed("this API key is not known")
        return Caller(found.project), found

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="hango"'


class HasKey(BasePermission):
    """Every call of the API needs a key."""

    message = "an API key is needed"

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.user, Caller)

"""API keys: 32 random bytes, of which only the SHA-256 is stored; what each may do, and until when."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import DatabaseError, transaction
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions_app.models import ApiKey, Project

PREFIX = "hango_"  # so that secret scanners can know our keys
PREFIX_LENGTH = 12  # characters that tell keys apart: of the 49 of a key
USE_NOTED_EVERY = timedelta(minutes=1)
RANKS = [str(scope) for scope in ApiKey.Scope]  # narrow to wide


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def make_key(
    project: Project,
    name: str = "",
    key: str | None = None,
    *,
    scope: ApiKey.Scope = ApiKey.Scope.ADMIN,
    expires_at: datetime | None = None,
) -> str:
    """A new key of the project, returned once and stored only as a digest. Giving `key` makes that one work, once or
    again (for `HANGO_BOOTSTRAP_API_KEY`); raises ValueError when another project owns it."""
    key = key or PREFIX + secrets.token_urlsafe(32)
    row, _ = ApiKey.objects.get_or_create(
        digest=digest(key),
        defaults={
            "project": project, "name": name, "prefix": key[: min(PREFIX_LENGTH, max(1, len(key) // 3))], "scope": scope,
            "expires_at": expires_at,
        },
    )  # fmt: skip
    if row.project_id != project.pk:
        raise ValueError("this key belongs to another project")
    return key


def rotate(row: ApiKey, grace: timedelta) -> str:
    """A new key of the same project, name and scope; the old one works on for `grace`, so that both are good while clients
    change over."""
    with transaction.atomic():
        until = timezone.now() + grace
        row.expires_at = min(row.expires_at or until, until)
        row.save(update_fields=["expires_at"])
        return make_key(row.project, row.name, scope=ApiKey.Scope(row.scope))


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
        now = timezone.now()
        if found.expires_at is not None and found.expires_at <= now:
            raise AuthenticationFailed("this API key has expired")
        _note_use(found, now)
        return Caller(found.project), found

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="hango"'


class HasKey(BasePermission):
    """Every call of the API needs a key, and one whose scope allows its method."""

    NEEDS: ClassVar = {
        "GET": ApiKey.Scope.READ,
        "HEAD": ApiKey.Scope.READ,
        "OPTIONS": ApiKey.Scope.READ,
        "DELETE": ApiKey.Scope.ADMIN,
    }
    message = "an API key is needed"

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.user, Caller):
            return False
        needed = self.NEEDS.get(str(request.method), ApiKey.Scope.WRITE)
        held = str(getattr(request.auth, "scope", ""))
        self.message = f"this call needs a key of scope {needed}; this one's is {held}"
        return RANKS.index(held) >= RANKS.index(needed)


def _note_use(key: ApiKey, now: datetime) -> None:
    """Writes when a key was last used, to the minute: most calls write nothing. That it fails harms nobody."""
    if key.last_used_at is not None and now - key.last_used_at < USE_NOTED_EVERY:
        return
    with contextlib.suppress(DatabaseError), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk, last_used_at=key.last_used_at).update(last_used_at=now)

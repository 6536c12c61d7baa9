"""What every endpoint shares: whose session it is, answers as exact JSON text, the idempotency key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from compaction.engine import exact
from compaction.engine.errors import Malformed, NotFound
from sessions_app.auth import Caller
from sessions_app.models import ApiKey, Project, Session
from sessions_app.parsers import Body

Handler = Callable[..., HttpResponse]


class Raw(str):
    """A JSON text that goes into an answer as it stands."""


def project_of(request: Request) -> Project:
    caller = request.user
    assert isinstance(caller, Caller)  # noqa: S101 - what `HasKey` has checked, for the type checker
    return caller.project


def key_of(request: Request) -> ApiKey:
    key = request.auth
    assert isinstance(key, ApiKey)  # noqa: S101 - as above
    return key


def session_of(request: Request, public_id: str) -> Session:
    """The caller's session. Another project's is `NotFound`, as one that does not exist."""
    session = (
        Session.objects.filter(project=project_of(request), public_id=public_id).first()
        if "\0" not in public_id
        else None
    )
    if session is None:
        raise NotFound("there is no session of this id")
    session.project = project_of(request)
    return session


def body_of(request: Request, allowed: Sequence[str] | set[str]) -> Body:
    """The body's members; one that the call does not know is `Malformed`, so that no misspelt field passes unseen."""
    body = request.data
    if not isinstance(body, Body):
        body = Body("{}")
    if unknown := sorted(body.keys() - set(allowed)):
        raise Malformed(
            f"unknown field {unknown[0]!r}",
            errors=[
                {"pointer": f"/{exact.pointer_part(name)}", "detail": "unknown field"} for name in unknown
            ],
        )
    return body


def answer(members: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """A JSON answer; `Raw` members pass through byte for byte."""
    return HttpResponse(text_of(members), status=status, content_type="application/json", headers=headers)


def text_of(value: Any) -> str:
    """The compact JSON text of a value that may hold `Raw` texts in its objects and lists."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{exact.dumps(str(k))}:{text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(text_of(v) for v in value) + "]"
    return exact.dumps(value)

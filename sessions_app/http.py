"""What every endpoint shares: whose session it is, answers as exact JSON text, the idempotency key."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpResponse
from rest_framework.request import Request

from compaction.engine import exact
from compaction.engine.errors import Conflict, Malformed, NotFound
from sessions_app.auth import Caller
from sessions_app.models import IdempotentAnswer, Project, Session
from sessions_app.parsers import Body

Handler = Callable[..., HttpResponse]


class Raw(str):
    """A JSON text that goes into an answer as it stands."""


def project_of(request: Request) -> Project:
    caller = request.user
    assert isinstance(caller, Caller)  # noqa: S101 - what `HasKey` has checked, for the type checker
    return caller.project


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


def idempotent(handler: Handler, *, in_transaction: bool = True) -> Handler:
    """The same `Idempotency-Key` and body gives the first answer again; with another body it is a `Conflict`.

    The answer is stored in the transaction of its effect; refusals and failures are not, so that they can be retried.
    `in_transaction` False: for what waits for a model, which no transaction may do; the answer is stored afterwards.
    """

    @functools.wraps(handler)
    def wrapped(view: Any, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return handler(view, request, *args, **kwargs)
        if not 0 < len(key) <= 255 or not key.isprintable():
            raise Malformed("Idempotency-Key has to have 1 to 255 printable characters")
        project = project_of(request)
        fingerprint = hashlib.sha256(
            f"{request.method}\n{request.path}\n{getattr(request.data, 'source', '')}".encode(
                "utf-8", "surrogatepass"
            )
        ).hexdigest()
        if (again := _stored(project, key, fingerprint)) is not None:
            return again
        try:
            with transaction.atomic() if in_transaction else contextlib.nullcontext():
                response = handler(view, request, *args, **kwargs)
                if response.status_code < 300:
                    with transaction.atomic():
                        IdempotentAnswer.objects.create(
                            project=project,
                            key=key,
                            fingerprint=fingerprint,
                            status=response.status_code,
                            body=response.content.decode(),
                        )
        except IntegrityError:
            if (again := _stored(project, key, fingerprint)) is not None:
                return again
            raise
        return response

    return wrapped


def _stored(project: Project, key: str, fingerprint: str) -> HttpResponse | None:
    row = IdempotentAnswer.objects.filter(project=project, key=key).first()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        raise Conflict("this Idempotency-Key was used for another request")
    return HttpResponse(
        row.body, status=row.status, content_type="application/json", headers={"Idempotency-Replayed": "true"}
    )

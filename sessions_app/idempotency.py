"""`Idempotency-Key`: the same key and body gives the first answer again (API.md)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request

from compaction.engine import types
from compaction.engine.errors import Conflict, Malformed
from sessions_app.http import project_of
from sessions_app.models import IdempotentAnswer, Project

Handler = Callable[..., HttpResponse]
RUNNING = 0  # the status of an answer that is still to come


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
        project, fingerprint = project_of(request), _fingerprint(request, key)
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
    if row.status == RUNNING:
        raise Conflict("the call of this Idempotency-Key is still running")
    return HttpResponse(
        row.body, status=row.status, content_type="application/json", headers={"Idempotency-Replayed": "true"}
    )


def _fingerprint(request: Request, key: str) -> str:
    """What tells the call apart. Raises `Malformed` for a key that cannot be one."""
    if not 0 < len(key) <= 255 or not key.isprintable():
        raise Malformed("Idempotency-Key has to have 1 to 255 printable characters")
    source = getattr(request.data, "source", "")
    return types.digest_of(f"{request.method}\n{request.path}\n{source}")


class Run:
    """A long call under its `Idempotency-Key`: the key names the turn, and while it runs the same key is a `Conflict`.

    `earlier`: the stored answer of a call that has ended. A call whose process died is forgotten after its time limit.
    """

    def __init__(self, request: Request) -> None:
        self.row: IdempotentAnswer | None = None
        self.earlier: HttpResponse | None = None
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return
        project, fingerprint = project_of(request), _fingerprint(request, key)
        dead = timezone.now() - timedelta(seconds=settings.HANGO_CALL_TIMEOUT_S + 60)
        IdempotentAnswer.objects.filter(
            project=project, key=key, status=RUNNING, created_at__lt=dead
        ).delete()
        self.earlier = _stored(project, key, fingerprint)
        if self.earlier is not None:
            return
        try:
            with transaction.atomic():
                self.row = IdempotentAnswer.objects.create(
                    project=project, key=key, fingerprint=fingerprint, status=RUNNING, body=""
                )
        except IntegrityError:
            raise Conflict("the call of this Idempotency-Key is still running") from None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._forget()

    def answered(self, response: HttpResponse) -> HttpResponse:
        """The answer, stored under the key."""
        if self.row is not None:
            rows = IdempotentAnswer.objects.filter(pk=self.row.pk)
            rows.update(status=response.status_code, body=response.content.decode())
        return response

    def streamed(self, chunks: Iterator[bytes]) -> Generator[bytes]:
        """The chunks; a stream is not kept, so its key is free again when it ends."""
        try:
            yield from chunks
        finally:
            self._forget()

    def _forget(self) -> None:
        if self.row is not None:
            IdempotentAnswer.objects.filter(pk=self.row.pk, status=RUNNING).delete()

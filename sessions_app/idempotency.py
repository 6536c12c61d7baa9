"""`Idempotency-Key`: the same key and body gives the first answer again (API.md)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request

from compaction.engine import exact, types
from compaction.engine.errors import Conflict, Malformed
from sessions_app.http import project_of
from sessions_app.models import IdempotentAnswer, Project, Session

Handler = Callable[..., HttpResponse]
Event = TypeVar("Event")
KEPT = timedelta(hours=48)  # longer than any client goes on retrying
RUNNING = 0  # the status of an answer that is still to come
WAITING = 1  # of a call that failed after its messages were stored: a retry goes on from them
APPENDED = "appended"  # the body of both, once the messages are stored
EVENTS = "text/event-stream"


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
                            session=_session(project, kwargs.get("public_id"), response),
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
    kind = EVENTS if row.body.startswith("event:") else "application/json"
    return HttpResponse(
        row.body, status=row.status, content_type=kind, headers={"Idempotency-Replayed": "true"}
    )


def _session(project: Project, public_id: str | None, response: HttpResponse) -> Session | None:
    """Whose content the answer holds, so that it is erased with it: the address names it, or the answer of a creation."""
    known = public_id or str(exact.loads(response.content.decode()).get("id"))
    return Session.objects.filter(project=project, public_id=known).only("pk").first()


def _fingerprint(request: Request, key: str) -> str:
    """What tells the call apart. Raises `Malformed` for a key that cannot be one."""
    if not 0 < len(key) <= 255 or not key.isprintable():
        raise Malformed("Idempotency-Key has to have 1 to 255 printable characters")
    source = getattr(request.data, "source", "")
    return types.digest_of(f"{request.method}\n{request.path}\n{source}")


class Run:
    """A long call under its `Idempotency-Key`: the key names the turn, and while it runs the same key is a `Conflict`.

    `earlier`: the stored answer of a call that has ended. A call that failed, or whose process died, may be tried again
    under its key: what it appended is not appended a second time.
    """

    def __init__(self, request: Request, session: Session) -> None:
        self.row: IdempotentAnswer | None = None
        self.earlier: HttpResponse | None = None
        self._goes_on = False
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return
        project, fingerprint = project_of(request), _fingerprint(request, key)
        rows = IdempotentAnswer.objects.filter(project=project, key=key)
        dead = timezone.now() - timedelta(seconds=settings.HANGO_CALL_TIMEOUT_S + 60)
        _freed(rows.filter(created_at__lt=dead))
        waiting = rows.filter(fingerprint=fingerprint, status=WAITING)
        if waiting.update(status=RUNNING, created_at=timezone.now()):
            self.row, self._goes_on = rows.get(), True
            return
        self.earlier = _stored(project, key, fingerprint)
        if self.earlier is not None:
            return
        try:
            with transaction.atomic():
                self.row = IdempotentAnswer.objects.create(
                    project=project,
                    session=session,
                    key=key,
                    fingerprint=fingerprint,
                    status=RUNNING,
                    body="",
                )
        except IntegrityError:
            raise Conflict("the call of this Idempotency-Key is still running") from None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            _freed(self._rows())

    def append(self, store: Callable[[], object]) -> None:
        """Stores the call's messages, once under its key, in one transaction with the note that they are stored."""
        if self._goes_on:
            return
        with transaction.atomic():
            store()
            self._rows().update(body=APPENDED)

    def answered(self, response: HttpResponse) -> HttpResponse:
        """The answer, stored under the key."""
        self._rows().update(status=response.status_code, body=response.content.decode())
        return response

    def recorded(self, events: Iterator[Event], text: Callable[[Event], bytes]) -> Iterator[Event]:
        """The events as they come. A stream that came to its end is kept, and told again under the same key."""
        said: list[bytes] = []
        try:
            for event in events:
                said.append(text(event))
                yield event
        except BaseException:
            _freed(self._rows())
            raise
        self._rows().update(status=200, body=b"".join(said).decode())

    def _rows(self) -> QuerySet[IdempotentAnswer]:
        rows = IdempotentAnswer.objects.filter(status=RUNNING)
        return rows.filter(pk=self.row.pk) if self.row else rows.none()


def forget_old(limit: int = 1_000) -> int:
    """Deletes answers that are older than `KEPT`, and tells how many; a batch, so that no transaction is long."""
    old = IdempotentAnswer.objects.filter(created_at__lt=timezone.now() - KEPT).order_by("created_at")
    count, _ = IdempotentAnswer.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:limit])).delete()
    return count


def _freed(rows: QuerySet[IdempotentAnswer]) -> None:
    """Makes the keys of calls that have no answer usable again."""
    rows.filter(status=RUNNING, body="").delete()
    rows.filter(status=RUNNING, body=APPENDED).update(status=WAITING)

"""Building requests, closing turns, compactions and the history: doors that call the flows."""

from __future__ import annotations

import functools
import re
from itertools import chain
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from compaction import (
    bodies,
    call,
    desk,
    export,
    forced,
    ladder,
    offload,
    outgoing,
    revoke,
    schema,
    shapes,
    turns,
)
from compaction.engine import exact, types
from compaction.engine.errors import ContextError, Invalid, NotFound
from compaction.models import Compaction
from sessions_app import append
from sessions_app.http import Raw, answer, body_of, session_of
from sessions_app.idempotency import Run, idempotent
from sessions_app.models import Session
from sessions_app.views import Newest, appended, warning


class AnyAnswer(BaseContentNegotiation):
    """The same answer whatever the client says it accepts: markdown, or events."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def filter_renderers(self, renderers: Any, format_suffix: Any) -> Any:
        return renderers

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


class Requests(APIView):
    """The next outgoing request."""

    @extend_schema(operation_id="requests_build", request=schema.RequestBody, responses=schema.BuiltAnswer)
    def post(self, request: Request, public_id: str) -> HttpResponse:
        body = body_of(request, ("messages", "memory", "max_tokens"))
        memory, max_tokens = bodies.memory(body), bodies.max_tokens(body)
        messages = bodies.messages(body)
        session = session_of(request, public_id)
        stored = appended(session, messages) if messages else None
        try:
            built = outgoing.build(session, memory=memory, max_tokens=max_tokens)
        except ContextError as error:
            if stored is not None:  # nothing is lost: the caller has to know that its messages are stored
                error.extra |= {"appended": [row.seq for row in stored.rows], "next_seq": stored.next_seq}
            raise
        return answer(
            shapes.built(built) | {"warnings": [warning(w) for w in stored.warnings] if stored else []},
            headers=shapes.timing(built),
        )


class Complete(APIView):
    """The model's answer: closes the turn."""

    @extend_schema(
        operation_id="turns_complete",
        request=schema.CompleteBody,
        responses=schema.one_of(
            "Completion", schema.CompletedAnswer, schema.RetryAnswer, schema.FailedAnswer
        ),
    )
    def post(self, request: Request, public_id: str, number: int) -> HttpResponse:
        body = body_of(request, ("message", "stop_reason", "usage"))
        stop_reason = body.get("stop_reason") or ""
        usage = body.get("usage")
        errors = []
        if not isinstance(stop_reason, str) or len(stop_reason) > 60 or not exact.storable(stop_reason):
            errors.append({"pointer": "/stop_reason", "detail": "has to be a short string"})
        if usage is not None and not (isinstance(usage, dict) and exact.storable(usage)):
            errors.append(
                {"pointer": "/usage", "detail": "has to be an object, without NUL and lone surrogates"}
            )
        session = session_of(request, public_id)
        if not errors and stop_reason == ladder.OVERFLOW_STOP:
            return answer(shapes.climbed(ladder.climb(session, number, ladder.Refusal.by_stop())))
        if not isinstance(body.get("message"), dict):
            errors.append({"pointer": "/message", "detail": "has to be the assistant's message"})
        else:
            message, faults = append.parse_one(body.texts["message"], "/message", ignore_unknown=True)
            errors += faults
            if not faults and message.role != "assistant":
                errors.append({"pointer": "/message/role", "detail": "has to be assistant"})
        if errors:
            raise Invalid(f"{errors[0]['pointer']}: {errors[0]['detail']}", errors=errors)
        closed = turns.complete(session, number, message, stop_reason, usage, exact.dumps(dict(body)))
        return answer(
            {
                "status": closed.turn.status,
                "turn": number,
                "seq": closed.seq,
                "warnings": list(closed.warnings),
            }
        )


class Overflow(APIView):
    """The caller's own model call overflowed: the next rung."""

    @extend_schema(
        operation_id="turns_overflow",
        request=schema.OverflowBody,
        responses=schema.one_of("NextRung", schema.RetryAnswer, schema.FailedAnswer),
    )
    def post(self, request: Request, public_id: str, number: int) -> HttpResponse:
        error = body_of(request, ("error",)).get("error")
        if error is not None and not isinstance(error, dict | str):
            raise Invalid("error", errors=[{"pointer": "/error", "detail": "has to be the provider's error"}])
        session = session_of(request, public_id)
        return answer(shapes.climbed(ladder.climb(session, number, ladder.reported(error))))


class Turns(APIView):
    """hango calls the provider itself and climbs the ladder; the provider's events when they are asked for."""

    content_negotiation_class = AnyAnswer

    @extend_schema(operation_id="turns_run", request=schema.RunBody, responses=schema.RunAnswer)
    def post(self, request: Request, public_id: str) -> HttpResponse | StreamingHttpResponse:
        body = body_of(request, ("messages", "memory", "max_tokens", "stream"))
        memory, max_tokens = bodies.memory(body), bodies.max_tokens(body)
        messages = bodies.messages(body)
        streamed = body.get("stream") is True or "text/event-stream" in request.headers.get("Accept", "")
        session = session_of(request, public_id)
        run = Run(request, session)
        if run.earlier is not None:
            return run.earlier
        with run:
            if messages:
                run.append(lambda: appended(session, messages))
            if not streamed:
                called = call.run(session, memory=memory, max_tokens=max_tokens)
                return run.answered(answer(shapes.called(called)))
            events = call.stream(session, memory=memory, max_tokens=max_tokens)
            try:
                first = next(events)
            except StopIteration as end:  # refused to the last rung before there was anything to show
                return run.answered(answer(shapes.called(end.value)))
            headers = {
                "X-Hango-Turn": str(session.turns.order_by("-number").values_list("number", flat=True)[0])
            }
            told = run.recorded(chain([first], events), call.bytes_of)
            return StreamingHttpResponse(
                call.Chunks(call.text(told)), content_type="text/event-stream", headers=headers
            )


class Export(APIView):
    """The whole session as JSON Lines, for whoever keeps it elsewhere."""

    content_negotiation_class = AnyAnswer

    @extend_schema(
        operation_id="sessions_export",
        responses={(200, "application/x-ndjson"): OpenApiTypes.STR},
        description="One JSON object a line, told apart by `type`: session, frames, messages, turns, compactions, end.",
    )
    def get(self, request: Request, public_id: str) -> StreamingHttpResponse:
        lines = export.lines(session_of(request, public_id))
        name = f'attachment; filename="{public_id}.jsonl"'
        return StreamingHttpResponse(
            lines, content_type="application/x-ndjson", headers={"Content-Disposition": name}
        )


class SentRequest(APIView):
    """A turn's request as it was last sent, rebuilt from the records."""

    @extend_schema(operation_id="turns_request", responses=schema.SentRequest)
    def get(self, request: Request, public_id: str, number: int) -> HttpResponse:
        turn = turns.get(session_of(request, public_id), number)
        text = desk.rebuild(turn)
        return answer({"turn": number, "request": Raw(text), "digest": types.digest_of(text)})


class Compactions(APIView):
    """The session's compactions, and asking for one."""

    @extend_schema(operation_id="compactions_list", responses=schema.CompactionPage)
    def get(self, request: Request, public_id: str) -> HttpResponse:
        pages = Newest()
        found = (
            pages.paginate_queryset(session_of(request, public_id).compactions_made.all(), request, view=self)
            or []
        )
        return answer({"results": [shapes.compaction(row) for row in found], "next": pages.get_next_link()})

    @extend_schema(
        operation_id="compactions_create",
        request=schema.CompactBody,
        responses={
            201: schema.one_of("Compacted", schema.CompactAnswer, schema.NotCompacted),
            202: schema.CompactAnswer,
        },
    )
    def post(self, request: Request, public_id: str) -> HttpResponse:
        body = body_of(request, ("reason", "instructions", "wait", "summary", "kept_from"))
        session = session_of(request, public_id)
        asked = forced.read(body)
        return self._written(request, session, asked) if asked.wait else self._asked(request, session, asked)

    @idempotent
    def _asked(self, request: Request, session: Session, asked: forced.Asked) -> HttpResponse:
        return _forced(session, asked)

    @functools.partial(idempotent, in_transaction=False)
    def _written(self, request: Request, session: Session, asked: forced.Asked) -> HttpResponse:
        """Waits for the model, so that it is in no transaction: the key is stored with the answer, afterwards."""
        return _forced(session, asked)


class OneCompaction(APIView):
    """One compaction."""

    @extend_schema(operation_id="compactions_retrieve", responses=schema.CompactionAnswer)
    def get(self, request: Request, public_id: str, cid: str) -> HttpResponse:
        return answer(shapes.compaction(_compaction(request, public_id, cid)))

    @extend_schema(operation_id="compactions_revoke", responses={204: None})
    def delete(self, request: Request, public_id: str, cid: str) -> HttpResponse:
        revoke.revoke(_compaction(request, public_id, cid))
        return HttpResponse(status=204)


class History(APIView):
    """The evicted transcript as markdown, from the rows."""

    content_negotiation_class = AnyAnswer

    @extend_schema(
        operation_id="history",
        parameters=[OpenApiParameter("offset", int, description="first line, from 0"), OpenApiParameter("limit", int, description="lines"),
                    OpenApiParameter("pattern", str, description="only lines that contain it")],
        responses={(200, "text/markdown"): OpenApiTypes.STR},
    )  # fmt: skip
    def get(self, request: Request, public_id: str) -> HttpResponse | StreamingHttpResponse:
        session = session_of(request, public_id)
        lines = offload.lines(session, **offload.window(request.query_params))
        return StreamingHttpResponse(
            (line.encode("utf-8", "replace") for line in lines), content_type="text/markdown; charset=utf-8"
        )


def _forced(session: Session, asked: forced.Asked) -> HttpResponse:
    done = forced.compact_session(session, asked)
    members = (
        shapes.compaction(done.row) | {"outcome": done.outcome}
        if done.row
        else {"id": None, "outcome": done.outcome}
    )
    members |= {"detail": done.detail} if done.detail else {}
    members |= {"asked_kept_from": asked.kept_from} if asked.kept_from is not None else {}
    return answer(members, status=202 if done.outcome == "queued" else 201)


# --- reading the call


def _compaction(request: Request, public_id: str, cid: str) -> Compaction:
    session = session_of(request, public_id)
    found = (
        session.compactions_made.filter(pk=cid).first()
        if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", cid)
        else None
    )
    if found is None:
        raise NotFound("there is no compaction of this id")
    return found

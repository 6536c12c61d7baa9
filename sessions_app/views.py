"""Sessions and their messages."""

from __future__ import annotations

import uuid
from datetime import UTC
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.views import APIView

from compaction import budget, conf, erasure, gather, jobs, turns
from compaction.engine import tokens, types
from compaction.engine.errors import Conflict, Invalid, Malformed
from sessions_app import append, schema, serializers
from sessions_app.http import Raw, answer, body_of, key_of, project_of, session_of
from sessions_app.idempotency import idempotent
from sessions_app.models import Message, Session
from sessions_app.parsers import Body

PAGE, LARGEST_PAGE = 100, 1000
FIELDS = tuple(serializers.SessionFields().fields)


class Newest(CursorPagination):
    """Stable while sessions are added: no offset, no count."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"
    ordering = ("-created_at", "-id")

    def decode_cursor(self, request: Request) -> Any:
        """DRF trusts the position in a cursor; anyone may write one."""
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None:
            try:
                given = parse_datetime(str(cursor.position))
            except ValueError:
                given = None
            if given is None or given.tzinfo is not UTC:
                raise NotFound(self.invalid_cursor_message)
        return cursor


class Sessions(APIView):
    """The project's sessions."""

    @extend_schema(operation_id="sessions_list", responses=schema.SessionPage)
    def get(self, request: Request) -> HttpResponse:
        pages = Newest()
        found = (
            pages.paginate_queryset(Session.objects.filter(project=project_of(request)), request, view=self)
            or []
        )
        return answer({"results": [shown(session) for session in found], "next": pages.get_next_link()})

    @extend_schema(
        operation_id="sessions_create",
        request=serializers.SessionFields,
        responses={201: schema.SessionAnswer},
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        body = body_of(request, FIELDS)
        _check_id(body)
        fields = serializers.SessionFields(data=dict(body))
        fields.is_valid(raise_exception=True)
        session = Session(
            project=project_of(request),
            public_id=body.get("id") or f"s-{uuid.uuid4().hex}",
            estimator=conf.estimator().name,
        )
        _set(session, body, fields.validated_data)
        try:
            with transaction.atomic():
                session.save(force_insert=True)
        except IntegrityError:
            raise Conflict(f"there is a session {session.public_id!r} already") from None
        return answer(shown(session), status=201)


class OneSession(APIView):
    """One session."""

    @extend_schema(operation_id="sessions_retrieve", responses=schema.SessionAnswer)
    def get(self, request: Request, public_id: str) -> HttpResponse:
        return answer(shown(session_of(request, public_id)))

    @extend_schema(
        operation_id="sessions_update",
        request=serializers.SessionFields(partial=True),
        responses=schema.SessionAnswer,
    )
    def patch(self, request: Request, public_id: str) -> HttpResponse:
        body = body_of(request, [name for name in FIELDS if name != "id"])
        fields = serializers.SessionFields(data=dict(body), partial=True)
        fields.is_valid(raise_exception=True)
        session = session_of(request, public_id)
        changed = _set(session, body, fields.validated_data)
        if changed:
            session.save(update_fields=changed)
        return answer(shown(session))

    @extend_schema(operation_id="sessions_destroy", responses={204: None})
    def delete(self, request: Request, public_id: str) -> HttpResponse:
        session = session_of(request, public_id)
        erasure.erase(session, reason=erasure.Reason.REQUEST, by=key_of(request).prefix)
        return HttpResponse(status=204)


class Messages(APIView):
    """The transcript: append, and read back exactly what was appended."""

    @extend_schema(
        operation_id="messages_list",
        parameters=[
            OpenApiParameter("after", int, description="seq of the last message seen"),
            OpenApiParameter("limit", int),
        ],
        responses=schema.MessagePage,
    )
    def get(self, request: Request, public_id: str) -> HttpResponse:
        session = session_of(request, public_id)
        limit = _whole(request, "limit", PAGE, 1, LARGEST_PAGE)
        after = _whole(request, "after", -1, -1, 2**31 - 2)
        rows = list(session.messages.filter(seq__gt=after).order_by("seq")[: limit + 1])
        following = None
        if len(rows) > limit:
            rows = rows[:limit]
            following = request.build_absolute_uri(f"{request.path}?after={rows[-1].seq}&limit={limit}")
        return answer({"results": [_message(row) for row in rows], "next": following})

    @extend_schema(
        operation_id="messages_append", request=schema.AppendBody, responses={201: schema.Appended}
    )
    @idempotent
    def post(self, request: Request, public_id: str) -> HttpResponse:
        body = body_of(request, ("messages", "expected_seq"))
        expected = body.get("expected_seq")
        if expected is not None and (
            not isinstance(expected, int) or isinstance(expected, bool) or expected < 0
        ):
            raise Invalid(
                "expected_seq",
                errors=[{"pointer": "/expected_seq", "detail": "has to be a whole number, 0 or more"}],
            )
        if "messages" not in body:
            raise Invalid("messages", errors=[{"pointer": "/messages", "detail": "is missing"}])
        messages = append.parse(body.texts["messages"])
        session = session_of(request, public_id)
        stored = appended(session, messages, expected)
        standing = budget.of(gather.state(session))
        return answer(
            {
                "appended": [
                    {"seq": row.seq, "role": row.role, "tokens": row.tokens, "client_id": row.client_id}
                    for row in stored.rows
                ],
                "next_seq": stored.next_seq,
                "warnings": [warning(w) for w in stored.warnings],
                "budget": shown_budget(standing),
            },
            status=201,
        )


def appended(
    session: Session, messages: list[append.NewMessage], expected_seq: int | None = None
) -> append.Appended:
    """Flow 1 as every door uses it: append, close the open turn by it, ring; one transaction."""
    with transaction.atomic():
        turn = turns.open_turn(session)
        stored = append.append(
            session, messages, expected_seq=expected_seq,
            produced_on=turn.sent_digest if turn else "", produced_at=turn.last_seq + 1 if turn else -1,
        )  # fmt: skip
        turns.close_by_append(session, turn, stored.rows)
        turns.note_compact_tool(session, stored.rows)
        jobs.ring_if_due(session)
    return stored


# --- how things are shown


def shown(session: Session) -> dict[str, Any]:
    return {
        "id": session.public_id, "model": session.model, "system": Raw(session.system or "null"), "tools": Raw(session.tools or "null"),
        "max_tokens": session.max_tokens, "limits": session.limits, "summarizer_model": session.summarizer_model or None,
        "compact_tool": session.compact_tool, "strict": session.strict, "memory_placement": session.memory_placement,
        "metadata": Raw(session.metadata or "{}"), "last_input_tokens": session.last_input_tokens, "compactions": session.compactions,
        "budget": shown_budget(budget.of(gather.state(session))), "history_path": session.history_path, "created_at": session.created_at.isoformat(),
    }  # fmt: skip


def shown_budget(standing: types.Budget) -> dict[str, Any]:
    return {
        "input_tokens": standing.input_tokens, "window": standing.window, "trigger": standing.trigger,
        "precompute_at": standing.precompute_at, "source": standing.source,
    }  # fmt: skip


def warning(found: types.Repair) -> dict[str, Any]:
    return {"seq": found.seq, "rule": found.rule, "detail": found.detail}


def _message(row: Message) -> dict[str, Any]:
    return {
        "seq": row.seq, "role": row.role, "content": Raw(row.content), "client_id": row.client_id, "pinned": row.pinned,
        "created_at": row.created_at.isoformat(),
    }  # fmt: skip


# --- reading the body


def _check_id(body: Body) -> None:
    given = body.get("id")
    if "id" in body and not (isinstance(given, str) and serializers.ID.fullmatch(given)):
        raise Malformed(
            "a session id matches [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
            errors=[{"pointer": "/id", "detail": "is no session id"}],
        )


def _set(session: Session, body: Body, values: dict[str, Any]) -> list[str]:
    """Sets what the body gives; system, tools and metadata as the exact text that was sent. The fields that changed."""
    changed = [name for name in values if name != "id"]
    for name in changed:
        value = values[name]
        if name in ("system", "tools", "metadata"):
            value = "" if value in (None, "", []) else body.texts[name]
        elif name == "limits":
            value = value or {}
        elif name == "summarizer_model":
            value = value or ""
        setattr(session, name, value)
    if {"system", "tools"} & set(changed):
        estimator = tokens.estimator(session.estimator)
        session.fixed_tokens = tokens.fixed_tokens(estimator, _blocks(session.system), _blocks(session.tools))
        changed.append("fixed_tokens")
    return changed


def _blocks(text: str) -> tuple[types.Block, ...]:
    return types.blocks_of(text)[0] if text else ()


def _whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise Malformed(
            f"{name} has to be a whole number from {low} to {high}",
            errors=[{"pointer": f"?{name}", "detail": "out of range"}],
        )
    return value

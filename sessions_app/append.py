"""FLOW 1: append messages. One transaction; its cost is in the new messages only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from compaction.engine import exact, integrity, tokens, types
from compaction.engine.errors import Conflict, Invalid, Malformed
from sessions_app.models import Message, Session, ToolCallId


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message as it came: `content` is the exact JSON text."""

    role: str
    content: str
    client_id: str | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """The stored rows, in order (a known `client_id` gives its old row), the next seq, and what is broken in them."""

    rows: tuple[Message, ...]
    next_seq: int
    warnings: tuple[types.Repair, ...]


FIELDS = {"role", "content", "client_id", "pinned"}


def parse(text: str, pointer: str = "/messages") -> list[NewMessage]:
    """The messages of a JSON array text. Raises `Invalid` with every fault: its message and the rule (API.md rule 4)."""
    if not text.lstrip().startswith("["):
        raise Invalid(
            "messages has to be a list", errors=[{"pointer": pointer, "detail": "has to be a list"}]
        )
    found: list[NewMessage] = []
    errors: list[dict[str, str]] = []
    for index, (value, start, end) in enumerate(exact.elements(text)):
        here = f"{pointer}/{index}"
        if not isinstance(value, dict):
            errors.append({"pointer": here, "detail": "a message is an object with role and content"})
            continue
        message, faults = parse_one(text[start:end], here)
        errors += faults
        found.append(message)
    if errors:
        raise Invalid(f"{errors[0]['pointer']}: {errors[0]['detail']}", errors=errors)
    return found


def parse_one(text: str, here: str, ignore_unknown: bool = False) -> tuple[NewMessage, list[dict[str, str]]]:
    """(the message, its faults) of one JSON object text. `ignore_unknown`: as the provider's SDK dumps a reply."""
    try:
        spans = {key: (value, text[start:end]) for key, value, start, end in exact.members(text)}
    except Malformed as error:
        return NewMessage("", "null"), [{"pointer": here, "detail": error.detail}]
    faults = (
        []
        if ignore_unknown
        else [
            {"pointer": f"{here}/{exact.pointer_part(k)}", "detail": "unknown field"}
            for k in spans.keys() - FIELDS
        ]
    )
    role, content = spans.get("role", (None, ""))[0], spans.get("content", (None, "null"))
    faults += integrity.malformed(role, content[0], here)
    client_id, pinned = spans.get("client_id", (None, ""))[0], spans.get("pinned", (False, ""))[0]
    if client_id is not None and not (
        isinstance(client_id, str) and 0 < len(client_id) <= 200 and exact.storable(client_id)
    ):
        faults.append(
            {
                "pointer": f"{here}/client_id",
                "detail": "has to be a string of 1 to 200 characters, without NUL and lone surrogates",
            }
        )
    if not isinstance(pinned, bool):
        faults.append({"pointer": f"{here}/pinned", "detail": "has to be true or false"})
    elif pinned and not faults and not _is_user_text(role, content[1]):
        faults.append({"pointer": f"{here}/pinned", "detail": "only user messages of text can be pinned"})
    if ignore_unknown or faults:
        client_id, pinned = None, False
    return NewMessage(str(role), content[1].strip(), client_id, pinned), faults


def _is_user_text(role: object, content: str) -> bool:
    blocks, _ = types.blocks_of(content)
    return role == "user" and bool(blocks) and all(b.kind == "text" for b in blocks)


def append(
    session: Session,
    messages: Sequence[NewMessage],
    *,
    expected_seq: int | None = None,
    produced_on: str = "",
    produced_at: int | None = None,
) -> Appended:
    """Stores the messages after the last one, all or none. Call it in a transaction.

    `produced_on`: digest of what had been sent when the first of them, an assistant's, was produced; `produced_at`: only
    if that message gets this seq. Raises `Conflict` for another
    `expected_seq` or a `client_id` used for another message, `Invalid` for broken input in a strict session.
    """
    estimator = tokens.estimator(session.estimator)
    parsed = [types.blocks_of(m.content) for m in messages]  # outside the lock: it is the costly part
    weights = [tokens.message_tokens(estimator, blocks) for blocks, _ in parsed]
    # gather
    with transaction.atomic():
        Session.objects.select_for_update(no_key=True).only("pk").get(pk=session.pk)
        last = (
            session.messages.order_by("-seq")
            .values("seq", "role", "tokens_through", "digest", "open_calls")
            .first()
        )
        next_seq = last["seq"] + 1 if last else 0
        if expected_seq is not None and expected_seq != next_seq:
            raise Conflict(
                f"the next seq is {next_seq}, not {expected_seq}",
                expected_seq=expected_seq,
                next_seq=next_seq,
            )
        known = _known(session, messages)
        new = _without_known(messages, known)
        plain = [
            types.Message(
                next_seq + n,
                _role(messages[i].role),
                parsed[i][0],
                weights[i],
                parsed[i][1],
                messages[i].pinned,
            )
            for n, i in enumerate(new)
        ]
        plain, used, taken = _with_shown_ids(session, plain)
        # decide
        warnings, open_calls = integrity.warnings(
            plain,
            json.loads(last["open_calls"] or "[]") if last else (),
            _role(last["role"]) if last else None,
            compact_tool=session.compact_tool,
        )
        if session.strict and warnings:
            raise Invalid(
                f"{warnings[0].rule}: {warnings[0].detail}",
                errors=[
                    {"pointer": f"/messages/{new[w.seq - next_seq]}", "detail": f"{w.rule}: {w.detail}"}
                    for w in warnings
                    if w.seq is not None
                ],
            )
        # apply
        digest, through = (last["digest"], last["tokens_through"]) if last else ("", 0)
        rows: list[Message] = []
        for i, message in zip(new, plain, strict=True):
            through += message.tokens
            digest = types.digest_of(f"{digest}\n{message.role}\n{messages[i].content}")
            first = (
                message.seq == next_seq and message.role == "assistant" and produced_at in (None, next_seq)
            )
            rows.append(
                Message(
                    session=session,
                    seq=message.seq,
                    role=message.role,
                    content=messages[i].content,
                    tokens=message.tokens,
                    tokens_through=through,
                    digest=digest,
                    client_id=messages[i].client_id,
                    pinned=message.pinned,
                    asks=message.asks,
                    shown_ids=json.dumps(message.shown_ids) if message.shown_ids else "",
                    produced_on=produced_on if first else "",
                )
            )
            if messages[i].client_id is not None:
                known[messages[i].client_id] = rows[-1]
        if rows and open_calls:
            rows[-1].open_calls = json.dumps(list(open_calls))
        Message.objects.bulk_create(rows)
        ToolCallId.objects.bulk_create(
            [ToolCallId(session=session, tool_use_id=i) for i in sorted(map(_stored_form, used - taken))]
        )
    fresh = iter(rows)
    answer = tuple(
        known[m.client_id] if m.client_id is not None else next(r for r in fresh if r.client_id is None)
        for m in messages
    )
    return Appended(answer, next_seq + len(rows), tuple(warnings))


def _role(role: str) -> types.Role:
    return "assistant" if role == "assistant" else "user"


def _known(session: Session, messages: Sequence[NewMessage]) -> dict[str | None, Message]:
    """Stored rows by `client_id`; sending one again with other content is a conflict."""
    given: dict[str, NewMessage] = {}
    for message in messages:
        if message.client_id is not None:
            _same(message.client_id, given.setdefault(message.client_id, message), message)
    known: dict[str | None, Message] = {}
    for row in session.messages.filter(client_id__in=given) if given else ():
        _same(str(row.client_id), row, given[str(row.client_id)])
        known[row.client_id] = row
    return known


def _same(client_id: str, earlier: Message | NewMessage, message: NewMessage) -> None:
    if (earlier.role, earlier.content) != (message.role, message.content):
        raise Conflict(f"client_id {client_id!r} was used for another message", client_id=client_id)


def _without_known(messages: Sequence[NewMessage], known: dict[str | None, Message]) -> list[int]:
    """Indices of the messages that are not stored yet, each `client_id` once."""
    seen: set[str | None] = set(known)
    new: list[int] = []
    for i, message in enumerate(messages):
        if message.client_id is None or message.client_id not in seen:
            new.append(i)
        if message.client_id is not None:
            seen.add(message.client_id)
    return new


def _with_shown_ids(
    session: Session, messages: Sequence[types.Message]
) -> tuple[list[types.Message], set[str], set[str]]:
    """(the messages with the ids that their calls are shown under, all ids they use, those of them in the session already)."""
    own = {str(b.data["id"]) for m in messages for b in m.calls}
    taken = _stored_ids(session, own)
    while True:
        used, shown = set(taken), []
        for message in messages:
            ids = [str(b.data["id"]) for b in message.calls]
            chosen = integrity.shown_ids(ids, used, message.seq) if ids else None
            used |= {*ids, *(chosen or ())}
            shown.append(replace(message, shown_ids=chosen))
        clash = _stored_ids(session, used - own - taken)
        if not clash:
            return shown, used, taken
        taken |= clash


def _stored_ids(session: Session, ids: set[str]) -> set[str]:
    """Those of the ids that the session has stored."""
    named = {_stored_form(i): i for i in ids}
    listed, found = sorted(named), set[str]()
    for at in range(0, len(listed), 500):  # SQLite takes so many parameters
        rows = ToolCallId.objects.filter(session=session, tool_use_id__in=listed[at : at + 500])
        found |= {named[name] for name in rows.values_list("tool_use_id", flat=True)}
    return found


def _stored_form(tool_use_id: str) -> str:
    """The id as a column can hold it: a long one, or one with characters that no database takes, by its digest."""
    if len(tool_use_id) <= 200 and tool_use_id.isascii() and tool_use_id.isprintable():
        return tool_use_id
    return "sha256 " + types.digest_of(tool_use_id)

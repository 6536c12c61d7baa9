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
        raise Invalid("messages has to be a list", errors=[{"pointer": pointer, "detail": "has to be a list"}])
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
    faults = [] if ignore_unknown else [{"pointer": f"{here}/{k}", "detail": "unknown field"} for k in spans.keys() - FIELDS]
    role, content = spans.get("role", (None, ""))[0], spans.get("content", (None, "null"))
    faults += integrity.malformed(role, content[0], here)
    client_id, pinned = spans.get("client_id", (None, ""))[0], spans.get("pinned", (False, ""))[0]
    if client_id is not None and not (isinstance(client_id, str) and 0 < len(client_id) <= 200 and "\0" not in client_id):
        faults.append({"pointer": f"{here}/client_id", "detail": "has to be a string of 1 to 200 characters"})
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
    session: Session, messages: Sequence[NewMessage], *, expected_seq: int | None = None, produced_on: str = "",
) -> Appended:
    """Stores the messages after the last one, all or none. Call it in a transaction.

    `produced_on`: digest of what had been sent when the first of them was produced. Raises `Conflict` for another
    `expected_seq` or a `client_id` used for another message, `Invalid` for broken input in a strict session.
    """
    estimator = tokens.estimator(session.estimator)
    # gather
    with transaction.atomic():
        Session.objects.select_for_update(no_key=True).only("pk").get(pk=session.pk)
        last = session.messages.order_by("-seq").values("seq", "tokens_through", "digest", "open_calls").first()
        next_seq = last["seq"] + 1 if last else 0
        if expected_seq is not None and expected_seq != next_seq:
            raise Conflict(f"the next seq is {next_seq}, not {expected_seq}", expected_seq=expected_seq, next_seq=next_seq)
        known = _known(session, messages)
        # decide
        fresh: list[types.Message] = []
        rows: list[Message] = []
        digest, through = (last["digest"], last["tokens_through"]) if last else ("", 0)
        taken = _taken(session, messages, next_seq)
        new_ids: set[str] = set()
        for message in messages:
            if message.client_id in known:
                rows.append(known[message.client_id])
                continue
            blocks, as_text = types.blocks_of(message.content)
            weight = tokens.message_tokens(estimator, blocks)
            seq, through = next_seq + len(fresh), through + weight
            digest = types.digest_of(f"{digest}\n{message.role}\n{message.content}")
            plain = types.Message(seq, message.role, blocks, weight, as_text, message.pinned)  # type: ignore[arg-type]
            ids = [str(b.data["id"]) for b in plain.calls]
            shown = integrity.shown_ids(ids, taken | new_ids, seq)
            new_ids |= {*ids, *(shown or ())}
            fresh.append(replace(plain, shown_ids=shown))
            rows.append(
                Message(
                    session=session, seq=seq, role=message.role, content=message.content, tokens=weight, tokens_through=through,
                    digest=digest, client_id=message.client_id, pinned=message.pinned, asks=plain.asks,
                    shown_ids=json.dumps(shown) if shown else "", produced_on=produced_on if seq == next_seq and message.role == "assistant" else "",
                )
            )
            if message.client_id is not None:
                known[message.client_id] = rows[-1]
        warnings, open_calls = integrity.warnings(fresh, json.loads(last["open_calls"] or "[]") if last else [], first=last is None)
        if session.strict and warnings:
            raise Invalid(
                f"{warnings[0].rule}: {warnings[0].detail}",
                errors=[{"pointer": f"/messages/{(w.seq or next_seq) - next_seq}", "detail": f"{w.rule}: {w.detail}"} for w in warnings],
            )
        # apply
        inserted = [row for row in rows if row._state.adding]
        if inserted:
            inserted[-1].open_calls = json.dumps(open_calls) if open_calls else ""
        unique = list({row.seq: row for row in inserted}.values())
        Message.objects.bulk_create(unique)
        ToolCallId.objects.bulk_create([ToolCallId(session=session, tool_use_id=i) for i in sorted(new_ids - taken)])
    return Appended(tuple(rows), next_seq + len(fresh), tuple(warnings))


def _known(session: Session, messages: Sequence[NewMessage]) -> dict[str | None, Message]:
    """Stored rows by `client_id`; sending one again with other content is a conflict."""
    given = {m.client_id: m for m in messages if m.client_id is not None}
    known: dict[str | None, Message] = {}
    for row in session.messages.filter(client_id__in=given) if given else ():
        message = given[str(row.client_id)]
        if (row.role, row.content) != (message.role, message.content):
            raise Conflict(f"client_id {row.client_id!r} was used for another message (seq {row.seq})", seq=row.seq)
        known[row.client_id] = row
    return known


def _taken(session: Session, messages: Sequence[NewMessage], next_seq: int) -> set[str]:
    """Which of the ids that the new messages could show are already in use in the session."""
    ids = {i for m in messages if m.role == "assistant" for i in _call_ids(m.content)}
    if not ids:
        return set()
    seqs = range(next_seq, next_seq + len(messages))
    wanted = ids | {f"{i}_{seq}" for i in ids for seq in seqs} if len(messages) <= 20 else ids
    rows = session_ids(session)
    found: set[str] = set()
    listed = sorted(wanted)
    for at in range(0, len(listed), 500):
        found |= set(rows.filter(tool_use_id__in=listed[at : at + 500]).values_list("tool_use_id", flat=True))
    return found


def session_ids(session: Session):  # type: ignore[no-untyped-def]
    return ToolCallId.objects.filter(session=session)


def _call_ids(content: str) -> list[str]:
    return [str(b.data["id"]) for b in types.blocks_of(content)[0] if b.kind == "tool_use"]

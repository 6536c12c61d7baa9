"""Frames: everything that shapes a request and is not a message, as stored text and as the engine's value."""

from __future__ import annotations

import json
from collections.abc import Collection

from compaction.engine import trigger, types
from compaction.engine.profiles import ModelProfile
from compaction.models import Frame, Turn
from sessions_app.models import Session

RENDER_VERSION = 2
COMPACT_TOOL = types.Block.of(
    {
        "name": "compact_conversation",
        "description": "Replaces the older part of this conversation by a summary at the next call. Call it when a part of the "
        "work is finished and its details are no longer needed, or when the conversation has grown long.",
        "input_schema": {"type": "object", "properties": {}},
    }
)


def body_of(session: Session, profile: ModelProfile, lim: trigger.Limits, memory: str) -> str:
    """The JSON text that stands for everything shaping a request that is not a message; `memory` is a JSON text or ''."""
    return json.dumps(
        {
            "model": session.model, "system": session.system, "tools": session.tools, "memory": memory,
            "memory_placement": session.memory_placement, "compact_tool": session.compact_tool, "arg_limit": lim.arg_limit,
            "caching": profile.prompt_caching, "binds_thinking": profile.binds_thinking, "redact": session.limits.get("redact") or [], "render_version": RENDER_VERSION,
        }
    )  # fmt: skip


def memory_of(body: str) -> str:
    """The memory blocks' JSON text in a stored frame body, '' for none."""
    return str(json.loads(body)["memory"])


def read(body: str) -> types.Frame:
    """The engine's frame of a stored body."""
    data = json.loads(body)
    system, as_text = types.blocks_of(data["system"]) if data["system"] else ((), False)
    tools = types.blocks_of(data["tools"])[0] if data["tools"] else ()
    if data["compact_tool"] and all(t.data.get("name") != "compact_conversation" for t in tools):
        tools = (*tools, COMPACT_TOOL)
    system = tuple(b for b in system if b.text.strip() or b.kind != "text")
    return types.Frame(
        model=data["model"], system=system, tools=tools, memory=types.blocks_of(data["memory"])[0] if data["memory"] else (),
        system_as_text=as_text, memory_placement=data["memory_placement"], compact_tool=data["compact_tool"], redact=tuple(data["redact"]), binds_thinking=data["binds_thinking"], arg_limit=data["arg_limit"], caching=data["caching"],
        render_version=data["render_version"],
    )  # fmt: skip


def stored(session: Session, body: str, last: Turn | None) -> Frame:
    """The frame's row; the last turn's when nothing that shapes a request has changed."""
    digest = types.digest_of(body)
    if last is not None and last.frame.digest == digest:
        return last.frame
    return Frame.objects.get_or_create(project_id=session.project_id, digest=digest, defaults={"body": body})[
        0
    ]


def memory_blocks(session: Session, digests: Collection[str]) -> dict[str, tuple[types.Block, ...]]:
    """The memory blocks of stored frames, by digest."""
    rows = Frame.objects.filter(project_id=session.project_id, digest__in=digests) if digests else ()
    return {row.digest: read(row.body).memory for row in rows}

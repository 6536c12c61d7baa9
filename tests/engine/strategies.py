"""Transcripts for tests: healthy ones as a good runtime stores them, broken ones as crashes and stores leave them.

Both give lists of `Message` as an append would have stored them. Thinking is signed so that the strict upstream
takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from compaction.engine import exact, integrity, repair
from compaction.engine.types import Block, Message, OutgoingMessage, OutgoingRequest, blocks_of
from tests.upstream.strict_anthropic import sign

Json = dict[str, Any]
Draw = st.DrawFn

WORDS = st.one_of(
    st.sampled_from(
        [
            "read /srv/app/main.py",
            "fix INV-2291",
            "你好，世界",
            "🙂 done 👩‍👩‍👧",
            "a\tb\nc",
            '<tag> & "quotes" \\ud800',
        ]
    ),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda text: bool(text.strip())),
)
NAMES = st.sampled_from(["read_file", "bash", "search-web", "edit"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), WORDS, st.lists(WORDS, max_size=2)
)
INPUTS = st.dictionaries(st.sampled_from(["path", "q", "größe", "n"]), VALUES, max_size=3)
BLANKS = st.sampled_from(["", " ", "\n\t ", "\u3000"])
MEDIA: list[Json] = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "a page"},
        "title": "T",
    },
]


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def call(tool_id: str, name: str = "bash", given: object = None) -> Json:
    return {"type": "tool_use", "id": tool_id, "name": name, "input": {} if given is None else given}


def result(tool_id: str, content: object = "ok", **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content, **more}


def thinking(value: str) -> Json:
    return {"type": "thinking", "thinking": value, "signature": sign(value)}


def user(*content: Any) -> Json:
    return _message("user", content)


def assistant(*content: Any) -> Json:
    return _message("assistant", content)


def _message(role: str, content: Sequence[Any]) -> Json:
    """One string stays a bare string; otherwise strings become text blocks."""
    if len(content) == 1 and isinstance(content[0], str):
        return {"role": role, "content": content[0]}
    return {"role": role, "content": [text(c) if isinstance(c, str) else c for c in content]}


def as_messages(transcript: Sequence[Json]) -> list[Message]:
    """As append would store them: exact text, shown ids decided once over the whole session."""
    messages: list[Message] = []
    taken: set[str] = set()
    for seq, said in enumerate(transcript):
        blocks, as_text = blocks_of(exact.dumps(said["content"]))
        message = Message(seq, said["role"], blocks, as_text=as_text)
        ids = [b.data["id"] for b in message.calls]
        shown = integrity.shown_ids(ids, taken, seq)
        taken.update(ids, shown or ())
        messages.append(Message(seq, said["role"], blocks, as_text=as_text, shown_ids=shown))
    return messages


def request_of(messages: Sequence[OutgoingMessage], **more: Any) -> OutgoingRequest:
    """A request with these messages and definitions of the tools that they call."""
    tools = more.pop("tools", repair.missing_tools(messages))
    system = more.pop("system", (Block.text_of("You are a test."),))
    return OutgoingRequest("claude-test", 1000, system, tools, tuple(messages), **more)


@st.composite
def transcripts(draw: Draw, max_exchanges: int = 3, server: bool = True) -> list[Json]:
    """A healthy transcript, as JSON values, that ends on the user: on words, or on the results of a round."""
    said: list[Json] = []
    count = draw(st.integers(1, max_exchanges))
    for last in (n == count - 1 for n in range(count)):
        ask = draw(WORDS)
        said.append(
            user(ask)
            if draw(st.booleans())
            else user(*draw(st.lists(st.sampled_from(MEDIA), max_size=2)), ask)
        )
        for _ in range(draw(st.integers(0, 4))):
            said += draw(_round(len(said)))
        if not last:
            said.append(draw(_answer(len(said), server)))
    return said


@st.composite
def _round(draw: Draw, at: int) -> list[Json]:
    before = ([thinking(draw(WORDS))] if draw(st.booleans()) else []) + (
        [text(draw(WORDS))] if draw(st.booleans()) else []
    )
    ids = [f"toolu_{at}_{k}" for k in range(draw(st.integers(1, 3)))]
    after = [text(draw(WORDS))] if draw(st.integers(0, 5)) == 0 else []
    results = [draw(_result(i)) for i in draw(st.permutations(ids))]
    return [
        {"role": "assistant", "content": [*before, *(call(i, draw(NAMES), draw(INPUTS)) for i in ids)]},
        {"role": "user", "content": [*results, *after]},
    ]


@st.composite
def _result(draw: Draw, tool_id: str) -> Json:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return {"type": "tool_result", "tool_use_id": tool_id}
    if kind == 1:
        return result(tool_id, [text(draw(WORDS)), *draw(st.lists(st.sampled_from(MEDIA), max_size=1))])
    return result(tool_id, draw(WORDS), **({"is_error": True} if kind == 2 else {}))


@st.composite
def _answer(draw: Draw, at: int, server: bool) -> Json:
    words = draw(WORDS)
    shape = draw(st.integers(0, 3 if server else 2))
    if shape == 0:
        return assistant(words)
    if shape == 3:
        use = {
            "type": "server_tool_use",
            "id": f"srvtoolu_{at}",
            "name": "web_search",
            "input": {"query": "q"},
        }
        return assistant(
            use, {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{at}", "content": []}, words
        )
    return assistant(thinking(draw(WORDS)), words) if shape == 1 else assistant(text(words))


def healthy(max_exchanges: int = 3) -> st.SearchStrategy[list[Message]]:
    return transcripts(max_exchanges).map(as_messages)


@st.composite
def broken_transcripts(draw: Draw, server: bool = True) -> list[Json]:
    """A healthy transcript with one to five things done to it; every message stays well-formed."""
    said = [
        {**m, "content": m["content"] if isinstance(m["content"], str) else list(m["content"])}
        for m in draw(transcripts(server=server))
    ]
    inside = [*_INSIDE, _add_server_block] if server else _INSIDE
    for _ in range(draw(st.integers(1, 5))):
        if not said:
            break
        at = draw(st.integers(0, len(said) - 1))
        draw(st.sampled_from(_WHOLE if draw(st.booleans()) else inside))(draw, said, at)
    return said


def broken(server: bool = True) -> st.SearchStrategy[list[Message]]:
    return broken_transcripts(server).map(as_messages)


# What can happen to whole messages ------------------------------------------------------------------


def _lose_message(draw: Draw, said: list[Json], at: int) -> None:
    del said[at]


def _store_twice(draw: Draw, said: list[Json], at: int) -> None:
    said.insert(at, {**said[at], "content": _copied(said[at])})


def _swap(draw: Draw, said: list[Json], at: int) -> None:
    said[at - 1], said[at] = said[at], said[at - 1]


def _split(draw: Draw, said: list[Json], at: int) -> None:
    content = _copied(said[at])
    cut = draw(st.integers(0, len(content)))
    said[at : at + 1] = [
        {"role": said[at]["role"], "content": part} for part in (content[:cut], content[cut:])
    ]


def _insert(draw: Draw, said: list[Json], at: int) -> None:
    words, blank = draw(WORDS), draw(BLANKS)
    role = draw(st.sampled_from(["user", "assistant"]))
    odd = [words, blank, [], [text(words), text(blank)], [text(words + "\ud83d")]]
    of_role = (
        [[result("toolu_ghost", words)]] if role == "user" else [[thinking(words)], [call("toolu_lost")]]
    )
    said.insert(at, {"role": role, "content": draw(st.sampled_from(odd + of_role))})


# What can happen inside one -------------------------------------------------------------------------


def _copied(message: Json) -> list[Json]:
    content = message["content"]
    return [text(content)] if isinstance(content, str) else list(content)


def _lose_block(draw: Draw, said: list[Json], at: int) -> None:
    said[at]["content"] = (content := _copied(said[at]))
    if content:
        del content[draw(st.integers(0, len(content) - 1))]


def _add_block(draw: Draw, said: list[Json], at: int) -> None:
    said[at]["content"] = (content := _copied(said[at]))
    blocks: list[Json] = [
        text(draw(BLANKS)),
        text("x" * 20_000),
        {**text("cached"), "cache_control": {"type": "ephemeral"}},
    ]
    if said[at]["role"] == "user":
        blocks += [
            result("toolu_1_0", "again"),
            result(
                "toolu_ghost", [MEDIA[0], text(draw(WORDS)), {"type": "tool_reference", "tool_name": "t"}]
            ),
        ]
        blocks += [{**text("cited"), "citations": [{"type": "char_location"}]}]
        blocks += [b for b in content if b["type"] == "tool_result"]
    else:
        blocks += [
            call("toolu_1_0"),
            call("call:7", "a tool"),
            call("", given='{"a": 1}'),
            call("toolu_x", given='{"a"'),
            call("toolu_y", given=[1]),
        ]
        blocks += [
            {"type": "thinking", "thinking": "unsigned"},
            MEDIA[1],
            {**thinking("lone"), "thinking": "lone \ude00"},
        ]
        blocks += [b for b in content if b["type"] == "tool_use"]
    content.insert(draw(st.integers(0, len(content))), draw(st.sampled_from(blocks)))


def _add_server_block(draw: Draw, said: list[Json], at: int) -> None:
    if said[at]["role"] == "assistant":
        said[at]["content"] = (content := _copied(said[at]))
        use = {"type": "server_tool_use", "id": "srvtoolu_x", "name": "web_search", "input": {}}
        done = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_x", "content": []}
        content.insert(draw(st.integers(0, len(content))), draw(st.sampled_from([use, done])))


def _change_block(draw: Draw, said: list[Json], at: int) -> None:
    said[at]["content"] = (content := _copied(said[at]))
    if not content:
        return
    where = draw(st.integers(0, len(content) - 1))
    block = content[where]
    if block["type"] == "tool_use":
        block = draw(
            st.sampled_from(
                [{**block, "input": None}, {**block, "input": "ls -la"}, {**block, "id": "toolu_1_0"}]
            )
        )
    elif block["type"] == "tool_result":
        bad = [text(draw(BLANKS)), {**text("kept"), "cache_control": {"type": "ephemeral"}}]
        changed = {"content": draw(st.sampled_from([None, bad, bad[:1], [text("half \udc00")]]))}
        block = draw(st.sampled_from([{**block, **changed}, {**block, "tool_use_id": "toolu_1_0"}]))
    elif block["type"] == "text":
        block = text(draw(st.sampled_from([block["text"] + "\ud800", "\udfff" + block["text"], ""])))
    content[where] = block


_WHOLE = [_lose_message, _store_twice, _swap, _split, _insert]
_INSIDE = [_lose_block, _add_block, _change_block]

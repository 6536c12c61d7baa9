"""The pipeline of named slots (SPEC N6, N7): its order, what each slot does, and that stored bytes pass on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from compaction.engine import assemble, tokens, validator
from compaction.engine.assemble import DEFAULT_STACK, Slot
from compaction.engine.tokens import HeuristicEstimator
from compaction.engine.types import Block, Frame, Head, Message, OutgoingRequest, View, blocks_of
from tests import judges
from tests.engine import strategies
from tests.engine.strategies import Json, assistant, call, result, text, user

ESTIMATOR = HeuristicEstimator()
WHERE = "/conversation_history/s-1.md"
LONG = "a line of an old file\n" * 400
SYSTEM = Block.text_of("You are careful.")
BASH = Block.of({"name": "bash", "description": "runs", "input_schema": {"type": "object"}})
NOTE = Block.text_of("It is Monday.")
FRAME = Frame("claude-test", (SYSTEM,), (BASH,))


def weighed(said: list[Json]) -> list[Message]:
    messages = strategies.as_messages(said)
    return [replace(m, tokens=tokens.message_tokens(ESTIMATOR, m.blocks)) for m in messages]


def show(
    messages: list[Message],
    *,
    frame: Frame = FRAME,
    view: View | None = None,
    head: Head | None = None,
    stack: tuple[Slot, ...] = DEFAULT_STACK,
    remembered_at: int | None = None,
) -> assemble.Assembled:
    last = messages[-1].seq if messages else -1
    return assemble.assemble(
        frame,
        replace(
            view or View(), last_seq=last, memories=() if remembered_at is None else ((remembered_at, "now"),)
        ),
        head or Head(),
        messages,
        max_tokens=500,
        estimator=ESTIMATOR,
        where=WHERE,
        stack=stack,
        memories={"now": frame.memory},
    )


def body(request: OutgoingRequest) -> dict[str, Any]:
    judges.strict_check(request)
    assert validator.violations(request) == []
    return json.loads(request.body())  # type: ignore[no-any-return]


LOOP = [
    user("go"),
    assistant(call("a", given={"command": LONG})),
    user(result("a", LONG)),
    assistant(call("b")),
    user(result("b", "short")),
]


# --- the order


def names(stack: tuple[Slot, ...]) -> list[object]:
    return [[slot.name, names(slot.inner)] if slot.inner else slot.name for slot in stack]


def test_the_order_of_the_default_stack_is_pinned() -> None:
    assert names(DEFAULT_STACK) == [
        "offload_previews",
        "sub_agents",
        ["summarization", ["truncation"]],
        "prompt_cache",
        "memory",
    ]


def test_slots_run_in_order_and_nested_ones_at_the_end_of_their_own() -> None:
    ran: list[str] = []

    def noted(name: str, *inner: Slot) -> Slot:
        def apply(draft: assemble.Draft) -> assemble.Draft:
            ran.append(name)
            return draft

        return Slot(name, apply, inner)

    show(
        weighed([user("a")]),
        stack=(noted("one"), noted("two", noted("in two", noted("deep"))), noted("three")),
    )
    assert ran == ["one", "two", "in two", "deep", "three"]


# --- leaving slots out


def without(*left_out: str) -> tuple[Slot, ...]:
    kept = [replace(s, inner=tuple(i for i in s.inner if i.name not in left_out)) for s in DEFAULT_STACK]
    return tuple(s for s in kept if s.name not in left_out)


def test_without_summarization_truncation_and_cache_the_request_is_the_transcript_as_stored() -> None:
    messages = weighed(LOOP)
    view = View("c", kept_from=3, first_seq=3, args_cut_before=5)
    made = show(
        messages,
        view=view,
        head=Head("summary"),
        stack=without("summarization", "truncation", "prompt_cache"),
    )
    assert body(made.request)["messages"] == LOOP
    assert "cache_control" not in made.request.body()
    assert made.request.truncated == 0
    assert made.request.repairs == ()


def test_each_slot_is_undone_by_leaving_it_out_alone() -> None:
    messages = weighed(LOOP)
    view = View("c", kept_from=1, first_seq=1, args_cut_before=3)
    whole = show(messages, view=view, head=Head("summary")).request
    untruncated = show(messages, view=view, head=Head("summary"), stack=without("truncation")).request
    assert (whole.truncated, untruncated.truncated) == (2, 0)
    assert body(untruncated)["messages"][1:3] == LOOP[1:3]
    uncached = show(messages, view=view, head=Head("summary"), stack=without("prompt_cache")).request
    assert uncached.elements() == whole.elements()
    assert "cache_control" not in uncached.body()
    everything = show(messages, view=view, head=Head("summary"), stack=without("summarization")).request
    assert [m.sources for m in everything.messages] == [(0,), (1,), (2,), (3,), (4,)]


# --- the view


def test_a_summary_opens_the_request_as_one_user_message_before_the_kept_ones() -> None:
    made = show(
        weighed(LOOP), view=View("c", kept_from=3, first_seq=3), head=Head("[Summary]\nwhat happened")
    )
    first, *rest = made.request.messages
    assert (first.role, first.sources) == ("user", ())
    assert [b.text for b in first.blocks] == ["[Summary]\nwhat happened"]
    assert [m.sources for m in rest] == [(3,), (4,)]
    assert [m["role"] for m in body(made.request)["messages"]] == ["user", "assistant", "user"]


def test_what_was_dropped_stands_behind_the_summary_and_the_users_next_words_in_the_same_message() -> None:
    said = [*LOOP, assistant("done"), user("and now?")]
    made = show(
        weighed(said), view=View("c", kept_from=3, first_seq=6), head=Head("summary", "[Messages left out]")
    )
    (only,) = made.request.messages
    assert [b.text for b in only.blocks] == ["summary", "[Messages left out]", "and now?"]
    assert only.sources == (6,)


def test_a_view_shows_nothing_after_its_last_message() -> None:
    messages = weighed([user("a"), assistant("b"), user("c")])
    made = assemble.assemble(
        FRAME, View(last_seq=0), Head(), messages, max_tokens=5, estimator=ESTIMATOR, where=WHERE
    )
    assert [m.sources for m in made.request.messages] == [(0,)]


def test_only_messages_before_the_line_have_their_arguments_and_results_cut_and_are_counted() -> None:
    made = show(weighed(LOOP), view=View(args_cut_before=2))
    assert made.request.truncated == 1
    said = body(made.request)["messages"]
    assert WHERE in said[1]["content"][0]["input"]["command"]
    assert said[2] == LOOP[2]


def test_a_block_limit_previews_every_giant_block_and_counts_it() -> None:
    said = [user(LONG), assistant(text(LONG), call("a")), user(result("a", "short"))]
    made = show(weighed(said), view=View(block_limit=200))
    assert made.request.truncated == 2
    assert WHERE in body(made.request)["messages"][0]["content"]
    assert made.tokens < show(weighed(said)).tokens


# --- memory


def test_memory_in_system_comes_after_the_breakpoint() -> None:
    made = show(weighed(LOOP), frame=replace(FRAME, memory=(NOTE,)))
    system = body(made.request)["system"]
    assert [s["text"] for s in system] == ["You are careful.", "It is Monday."]
    assert ["cache_control" in s for s in system] == [True, False]
    assert made.request.elements() == show(weighed(LOOP)).request.elements()


def test_memory_in_the_message_stands_after_the_newest_results_and_before_the_words() -> None:
    frame = replace(FRAME, memory=(NOTE,), memory_placement="message")
    said = [*LOOP[:4], user(result("b", "short"), "hurry up")]
    made = show(weighed(said), frame=frame, remembered_at=4)
    assert made.request.memory == ()
    assert [b.kind for b in made.request.messages[-1].blocks] == ["tool_result", "text", "text"]
    assert made.request.messages[-1].blocks[1].text == "It is Monday."
    assert "It is Monday" not in json.dumps(body(made.request)["system"])


def test_memory_in_the_message_turns_a_bare_string_into_blocks() -> None:
    frame = replace(FRAME, memory=(NOTE,), memory_placement="message")
    made = show(weighed([user("go")]), frame=frame, remembered_at=0)
    assert [b.text for b in made.request.messages[0].blocks] == ["It is Monday.", "go"]
    assert made.tokens == show(weighed([user("go")])).tokens + tokens.fixed_tokens(ESTIMATOR, (NOTE,), ())


def test_memory_goes_into_system_where_there_is_no_user_message_to_hold_it() -> None:
    frame = replace(FRAME, memory=(NOTE,), memory_placement="message")
    made = show(weighed([assistant("hello")]), frame=frame)
    assert made.request.memory == (NOTE,)
    body(made.request)


def test_without_memory_the_placement_changes_nothing() -> None:
    frame = replace(FRAME, memory_placement="message")
    assert show(weighed(LOOP), frame=frame) == show(weighed(LOOP))


# --- bytes


ODD = (
    '[{"text" : "caf\\u00e9 \\/ \\ud83d\\ude42 日本","type":"text"},'
    ' {"type":"tool_use","input":{"b":1.0,"a":1e3,"z":-0,"n":12345678901234567890.10},"name":"bash","id":"t"}]'
)


def test_stored_bytes_are_passed_on_number_forms_key_order_escapes_and_all() -> None:
    blocks, as_text = blocks_of(ODD)
    messages = [
        *strategies.as_messages([user("go")]),
        Message(1, "assistant", blocks, as_text=as_text),
        *(replace(m, seq=2) for m in strategies.as_messages([user(result("t"))])),
    ]
    sent = show(messages).request.body()
    assert '{"text" : "caf\\u00e9 \\/ \\ud83d\\ude42 日本","type":"text"}' in sent
    assert '"input":{"b":1.0,"a":1e3,"z":-0,"n":12345678901234567890.10}' in sent


@pytest.mark.parametrize("raw", ['"caf\\u00e9"', ' "a\\/b" ', '"\\ud83d\\ude42 🙂"'])
def test_content_that_was_a_string_stays_that_string(raw: str) -> None:
    blocks, as_text = blocks_of(raw)
    sent = show(
        [Message(0, "user", blocks, as_text=as_text)], frame=replace(FRAME, caching=False)
    ).request.body()
    assert f'"content":{raw.strip()}}}' in sent


def test_a_string_becomes_one_block_only_where_a_mark_has_to_stand() -> None:
    said = [user("one"), assistant("two"), user("three")]
    assert [m["content"] for m in body(show(weighed(said)).request)["messages"]] == [
        "one",
        "two",
        [{"type": "text", "text": "three", "cache_control": {"type": "ephemeral"}}],
    ]


def test_a_system_that_was_a_string_stays_one_where_nothing_has_to_be_marked() -> None:
    frame = Frame("m", (SYSTEM,), system_as_text=True, caching=False)
    assert body(show(weighed([user("a")]), frame=frame).request)["system"] == "You are careful."
    memory = replace(frame, memory=(NOTE,))
    assert len(body(show(weighed([user("a")]), frame=memory).request)["system"]) == 2


def test_the_clients_own_marks_and_lone_surrogates_are_left_out_of_the_fixed_part() -> None:
    marked = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    system = (Block.of({**text("a\ud800"), **marked}), Block.of(text("b")))
    frame = Frame("m", system, (Block.of({**BASH.data, **marked}),), (Block.of({**text("c"), **marked}),))
    made = show(weighed([user("a")]), frame=frame).request
    sent = body(made)
    assert [s["text"] for s in sent["system"]] == ["a\ufffd", "b", "c"]
    assert ["cache_control" in s for s in sent["system"]] == [False, True, False]
    assert "cache_control" not in sent["tools"][0]


def test_the_same_arguments_give_the_same_bytes() -> None:
    view = View("c", kept_from=1, first_seq=1, args_cut_before=3, block_limit=300)
    frame = replace(FRAME, memory=(NOTE,))
    one, two = (
        show(weighed(LOOP), frame=frame, view=view, head=Head("summary", "left out")) for _ in range(2)
    )
    assert one == two
    assert one.request.body() == two.request.body()


@pytest.mark.parametrize("limit", [0, 100])
def test_messages_outside_the_view_change_nothing_not_even_the_count_of_cuts(limit: int) -> None:
    view = View("c", kept_from=3, first_seq=3, args_cut_before=5, block_limit=limit)
    messages = weighed(LOOP)
    assert show(messages, view=view).request.truncated == 0
    assert show(messages, view=view).request == show(messages[3:], view=view).request


# --- tools


def test_definitions_are_added_for_tools_that_only_the_history_names() -> None:
    made = show(weighed(LOOP), frame=replace(FRAME, tools=()))
    assert [t["name"] for t in body(made.request)["tools"]] == ["bash"]
    assert [r.rule for r in made.request.repairs] == ["tools-missing R18"]
    assert made.tokens > show(weighed(LOOP), frame=replace(FRAME, tools=()), stack=()).tokens - 1
    assert show(weighed([user("a")]), frame=replace(FRAME, tools=())).request.tools == ()


# --- weight


def test_the_weight_is_that_of_the_request_as_it_is_sent() -> None:
    frame = replace(FRAME, memory=(NOTE,))
    view = View("c", kept_from=1, first_seq=1, args_cut_before=3)
    for made in (
        show(weighed(LOOP), frame=frame),
        show(weighed(LOOP), frame=frame, view=view, head=Head("summary", "left out")),
        show(
            weighed(LOOP),
            frame=replace(frame, memory_placement="message"),
            view=View(block_limit=100),
            remembered_at=2,
        ),
    ):
        assert made.tokens == ESTIMATOR.estimate_request(made.request)


def test_nothing_to_show_gives_no_messages() -> None:
    made = show([], frame=Frame("m"))
    assert made.request.messages == ()
    assert made.request.body() == '{"model":"m","max_tokens":500,"messages":[]}'

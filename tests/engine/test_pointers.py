"""Stubs that point at an earlier result, once that result has left the request (cases 091)."""

import json
from dataclasses import replace

import pytest

from compaction.engine import pointers
from compaction.engine.types import Head, View
from tests.engine.strategies import assistant, call, result, user
from tests.engine.test_assemble import ESTIMATOR, FRAME, LONG, WHERE, show, weighed

STUB = "STUB: unchanged, see the earlier result."
AGAIN = [assistant(call("f2", given={"path": "a.py"})), user(result("f2", STUB))]
READ = [user("go"), assistant(call("f1", given={"path": "a.py"})), user(result("f1", LONG))]


def last_result(made):
    return json.loads(made.request.body())["messages"][-1]["content"][-1]["content"]


@pytest.mark.parametrize(
    "text",
    [
        STUB,
        "File unchanged since last read.",
        "<system>Not changed since the previous read; refer to it.</system>",
        "Same as above",
        "This file was already read, its content is in context.",
        "No changes since you last looked.",
    ],
)
def test_a_stub_whose_earlier_result_was_summarised_says_where_the_text_stands(text):
    messages = weighed([*READ, AGAIN[0], user(result("f2", text))])
    made = show(messages, view=View(kept_from=3, first_seq=3), head=Head("summary"))
    assert last_result(made).startswith(text)
    assert WHERE in last_result(made)


def test_a_stub_whose_earlier_result_is_shown_whole_stays_as_it_is():
    assert last_result(show(weighed([*READ, *AGAIN]))) == STUB
    kept = show(weighed([*READ, *AGAIN]), view=View(kept_from=1, first_seq=1), head=Head("summary"))
    assert last_result(kept) == STUB


def test_a_stub_whose_earlier_result_was_cut_says_so():
    made = show(weighed([*READ, *AGAIN]), view=View(args_cut_before=3))
    assert WHERE in last_result(made)


def test_a_stub_that_points_at_nothing_of_this_session_is_left_alone_while_all_is_shown():
    assert last_result(show(weighed([user("go"), *AGAIN]))) == STUB


def test_the_same_words_in_a_result_that_says_something_of_its_own_are_left_alone():
    long = STUB + " " + "and this is what the tool has to say about it. " * 10
    for own in (user(result("f2", long)), user(result("f2", "3 files changed")), user(result("f2", ""))):
        messages = weighed([*READ, AGAIN[0], own])
        made = show(messages, view=View(kept_from=3, first_seq=3), head=Head("summary"))
        assert WHERE not in json.dumps(last_result(made))


def test_an_error_and_a_result_of_several_parts_are_no_stubs():
    parts = [{"type": "text", "text": STUB}, {"type": "text", "text": "And more."}]
    for own in (result("f2", STUB) | {"is_error": True}, result("f2", parts)):
        messages = weighed([*READ, AGAIN[0], user(own)])
        made = show(messages, view=View(kept_from=3, first_seq=3), head=Head("summary"))
        assert WHERE not in json.dumps(last_result(made))


def test_a_stub_that_came_as_a_block_is_marked_in_its_block():
    messages = weighed([*READ, AGAIN[0], user(result("f2", [{"type": "text", "text": STUB}]))])
    made = show(messages, view=View(kept_from=3, first_seq=3), head=Head("summary"))
    (block,) = last_result(made)
    assert block["text"].startswith(STUB)
    assert WHERE in block["text"]
    assert made.tokens > show(weighed(AGAIN), head=Head("summary"), stack=()).tokens


def test_what_was_sent_by_earlier_rules_is_rebuilt_as_it_was_sent():
    made = show(
        weighed([*READ, *AGAIN]), frame=replace(FRAME, render_version=1), view=View(kept_from=3, first_seq=3),
        head=Head("summary"),
    )  # fmt: skip
    assert last_result(made) == STUB


def test_where_no_result_is_a_stub_the_messages_are_the_same_objects():
    messages = tuple(weighed(READ))
    assert all(
        a is b
        for a, b in zip(
            pointers.dangling(messages, messages, ESTIMATOR, WHERE, evicted=True), messages, strict=True
        )
    )

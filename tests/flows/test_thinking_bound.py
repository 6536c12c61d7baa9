"""Thinking that the model binds to its past (PROTOCOL R43): shown only while that past is what was sent, and never again once
it was left out; the strict upstream signs and checks it as the provider would."""

import json

import pytest

from compaction import desk
from tests.flows.runtime import new, result, text, use, words
from tests.upstream import strict_anthropic

BINDING, FREE = "claude-opus-5-5", "claude-opus-5"


def check(built, binds=True):
    strict_anthropic.check_request(json.loads(built.body), bind_thinking=binds)


def answered(built, *blocks):
    """The blocks as the model would return them, its thinking signed over what it was sent."""
    thought = {"type": "thinking", "thinking": f"thinking of turn {built.turn.number}"}
    return strict_anthropic.reply_blocks([thought, *blocks], json.loads(built.body))


def thoughts(built):
    """Numbers of the turns whose thinking the request shows."""
    return [
        int(b["thinking"].rsplit(" ", 1)[1])
        for m in json.loads(built.body)["messages"]
        for b in (m["content"] if isinstance(m["content"], list) else [])
        if b["type"] == "thinking"
    ]


def shown(built):
    """Of which turns the request shows the answer, with or without its thinking."""
    return [
        int(b["text"].rsplit(" ", 1)[1])
        for m in json.loads(built.body)["messages"]
        for b in (m["content"] if isinstance(m["content"], list) else [])
        if b["type"] == "text" and b["text"].startswith("answer of turn")
    ]


def memory(value):
    return json.dumps(text(value))


def turn(runtime, n, *, binds=True, size=150, close="complete", **options):
    """One turn of a long loop: build, answer with thinking, words and a call whose id comes back, store the result."""
    built = runtime.build(**options)
    check(built, binds)
    if n % 20 == 13:
        climbed = runtime.overflow()
        built = climbed.built or built
        check(built, binds)
    tool_id = f"call_{n % 4}"
    blocks = answered(built, *text(f"answer of turn {built.turn.number}"), use(tool_id, path=f"{n}.py"))
    if close == "complete":
        runtime.complete(blocks)
        runtime.append(new("user", [result(tool_id, words(size, f"RESULT-{n}"))]))
    else:
        runtime.append(new("assistant", blocks), new("user", [result(tool_id, words(size, f"RESULT-{n}"))]))
        runtime.clock.move(30)
    return built


@pytest.mark.parametrize("close", ["complete", "append"])
@pytest.mark.parametrize("placement", ["system", "message"])
def test_over_80_turns_with_swaps_memory_and_repeated_ids_nothing_is_refused(
    start, provider, placement, close
):
    runtime = start(12_000, model=BINDING, memory_placement=placement)
    runtime.say("Read the whole tree.")
    dropped, kept = set(), 0
    for n in range(80):
        # The memory comes back to what it was: thinking of then would be valid again, and stays out.
        given = {"memory": memory(f"MEMORY-{n // 11 % 2}")} if n % 11 == 0 else {}
        built = turn(runtime, n, close=close, **given)
        runtime.work()
        there = thoughts(built)
        assert not dropped & set(there), n
        answers = shown(built)
        assert there == answers[len(answers) - len(there) :]  # one unbroken run, the newest
        dropped |= set(answers) - set(there)
        kept += len(there)
    assert runtime.fresh().compactions >= 2
    assert dropped
    assert kept > 80
    for number, built in runtime.sent.items():
        assert desk.rebuild(runtime.turn(number)) == built.body
        assert runtime.turn(number).digest == built.turn.digest


def test_without_a_swap_every_thought_is_kept_and_the_prefix_lives(start):
    runtime = start(200_000, model=BINDING)
    runtime.say("Read the whole tree.")
    for n in range(12):
        built = turn(runtime, n, memory=memory("MEMORY")) if n == 0 else turn(runtime, n)
        assert thoughts(built) == list(range(1, n + 1))
        assert not built.prefix_changed


def test_memory_within_the_messages_leaves_earlier_thinking_valid(start):
    runtime = start(200_000, model=BINDING, memory_placement="message")
    runtime.say("Read the whole tree.")
    for n in range(12):
        built = turn(runtime, n, memory=memory(f"MEMORY-{n}"))
        assert thoughts(built) == list(range(1, n + 1))


@pytest.mark.parametrize("field", ["memory", "system", "tools"])
def test_what_stands_before_all_messages_unbinds_all_thinking_once(start, field):
    runtime = start(200_000, model=BINDING)
    runtime.say("Go.")
    for n in range(4):
        turn(runtime, n)
    if field == "system":
        runtime.session.system = '"Another one."'
    elif field == "tools":
        runtime.session.tools = json.dumps(
            [*json.loads(runtime.session.tools), {"name": "new", "input_schema": {"type": "object"}}]
        )
    runtime.session.save(update_fields=["system", "tools"])
    built = turn(runtime, 4, **({"memory": memory("CHANGED")} if field == "memory" else {}))
    assert thoughts(built) == []
    assert shown(built) == [1, 2, 3, 4]
    assert thoughts(turn(runtime, 5)) == [5]
    assert thoughts(turn(runtime, 6)) == [5, 6]


def test_what_was_produced_on_hangos_own_close_is_shown_without_its_thinking(start):
    """`Continue.` stands in no later request, so what was thought after it is bound to something else."""
    runtime = start(200_000, model=BINDING)
    runtime.say("Go.")
    built = runtime.build()
    runtime.complete(answered(built, *text("answer of turn 1")))
    closed = runtime.build()
    check(closed)
    assert thoughts(closed) == [1]
    assert "Continue." in closed.body
    runtime.complete(answered(closed, *text("answer of turn 2")))
    runtime.say("More.")
    following = runtime.build()
    check(following)
    assert shown(following) == [1, 2]
    assert thoughts(following) == []


def test_thinking_of_a_message_that_another_runtime_brought_is_left_out(start):
    """Nothing is known of what it was produced on."""
    runtime = start(200_000, model=BINDING)
    foreign = {
        "type": "thinking",
        "thinking": "thinking of turn 99",
        "signature": strict_anthropic.sign("thinking of turn 99"),
    }
    runtime.append(
        new("user", "Go."), new("assistant", [foreign, *text("answer of turn 99")]), new("user", "On.")
    )
    built = runtime.build()
    check(built)
    assert (thoughts(built), shown(built)) == ([], [99])
    assert "thinking of turn 99" in json.dumps(runtime.rows(), default=str)


def test_an_answer_that_came_after_other_messages_is_bound_to_none_that_stand_before_it(start):
    runtime = start(200_000, model=BINDING)
    runtime.say("Go.")
    built = runtime.build()
    runtime.say("Wait, one thing more.")
    runtime.complete(answered(built, *text("answer of turn 1")))
    runtime.say("And?")
    following = runtime.build()
    check(following)
    assert (thoughts(following), shown(following)) == ([], [1])


def test_what_was_left_out_stays_out_after_a_failed_turn(start):
    runtime = start(12_000, model=BINDING, limits={"precompute_frac": None})
    runtime.say("Go.")
    for n in range(6):
        turn(runtime, n)
    runtime.build(memory=memory("CHANGED"))
    for _ in range(3):
        if runtime.overflow().built is None:
            break
    assert runtime.turn(7).status == "failed"
    runtime.say("Again.")
    back = runtime.build(memory="")
    check(back)
    assert back.turn.number == 8
    assert thoughts(back) == []


def test_on_other_models_the_thinking_of_kept_messages_stays_untouched(start, provider):
    runtime = start(12_000, model=FREE)
    runtime.say("Read the whole tree.")
    for n in range(60):
        given = {"memory": memory(f"MEMORY-{n}")} if n % 11 == 0 else {}
        built = turn(runtime, n, binds=False, **given)
        runtime.work()
        assert thoughts(built) == shown(built)
    assert runtime.fresh().compactions >= 2
    for number, built in runtime.sent.items():
        assert desk.rebuild(runtime.turn(number)) == built.body

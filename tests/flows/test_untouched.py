"""Compaction shapes the outgoing request and nothing else: the transcript reads back unchanged, and every request that
was ever sent can be built again (SPEC N1; success 1)."""

from compaction import desk
from compaction.engine import types
from tests.flows.runtime import new, result, shown_text, text, use, words


def test_over_the_trigger_the_request_is_compacted_and_the_transcript_reads_back_unchanged(start, provider):
    runtime = start()
    runtime.exchanges(40)  # about 16,000 tokens in a window of 12,000
    before = runtime.rows()
    provider.play("SUMMARY-1: forty lines were spoken about.")
    runtime.work()
    runtime.say("Go on with LINE-40.")
    asked = runtime.rows()
    built = runtime.build()
    assert "SUMMARY-1" in shown_text(built)
    assert "LINE-0 asked" not in shown_text(built)
    assert "Go on with LINE-40." in shown_text(built)
    assert built.shown.size <= built.lines.trigger
    assert asked[: len(before)] == before
    assert runtime.rows() == asked
    assert [r["seq"] for r in asked] == list(range(81))
    assert built.shown.view.kept_from > 0
    assert built.shown.view.last_seq == 80


def test_odd_content_is_stored_byte_for_byte_whatever_is_compacted(start):
    runtime = start()
    odd = r'[{"type": "text", "text": "\ud800 half, \u0000 nul, a \/ slash, 1E2"  },{"text":"keys the other way","type":"text"}]'
    message = new("user", "x")
    runtime.append(type(message)("user", odd), new("assistant", "ok"))
    runtime.exchanges(40)
    runtime.work()
    runtime.say("On.")
    built = runtime.build()
    assert built.compaction is not None
    assert runtime.rows()[0]["content"] == odd


def test_every_past_request_is_built_again_byte_for_byte_after_40_turns_with_swaps_and_rungs(start, provider):
    runtime = start()
    provider.play(*(f"SUMMARY-{n}: what was done so far, in order." for n in range(30)))
    bodies: dict[int, str] = {}
    swapped = refused = 0
    for n in range(1, 46):
        runtime.say(words(500, f"LINE-{n} please"))
        memory = f'[{{"type":"text","text":"memory {n // 10}"}}]' if n % 10 == 0 else None
        built = runtime.build(memory=memory)
        if n in (15, 30):  # the provider refuses, once
            climbed = runtime.overflow()
            assert climbed.built is not None
            built = climbed.built
            refused += 1
        if n > 32 and refused < 4 and built.shown.size > 7_000:  # and here it refuses twice
            runtime.overflow()
            climbed = runtime.overflow()
            assert climbed.rung == "truncate"
            assert climbed.built is not None
            built = climbed.built
            refused += 2
        bodies[built.turn.number] = built.body
        swapped += built.turn.adopted
        tool_id = f"call_{n % 7}"  # ids come back, as in real transcripts
        runtime.complete(
            [*text(f"I read part {n}."), use(tool_id, "write_file", path=f"src/{n}.py", body=words(300))]
        )
        runtime.append(new("user", [result(tool_id, words(300, f"RESULT-{n}"))]))
        built = runtime.build()
        bodies[built.turn.number] = built.body
        runtime.complete("Done.")
        if n % 3 == 0:
            runtime.work()
    assert swapped >= 3
    assert refused == 4
    assert len(bodies) == 90
    for number, body in bodies.items():
        turn = runtime.turn(number)
        assert desk.rebuild(turn) == body, f"turn {number}"
        assert types.digest_of(body) == turn.digest

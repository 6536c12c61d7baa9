"""`limits.redact`: what matches leaves in no request and no summary, and stands unchanged in the transcript (API.md)."""

import json

import pytest

from compaction import call, desk, forced, offload
from compaction.models import Compaction
from compaction.providers.base import Reply
from tests.flows.runtime import new, result, text, use, words

# Spelt so that no known secret format matches: only the session's own pattern can take it out.
SECRET = "PERSON-4711-LINDA"
PATTERN = r"PERSON-\d+-[A-Z]+"
USAGE = {"input_tokens": 900, "output_tokens": 9}


def leaks(value):
    return [part for part in (SECRET, "4711", "LINDA") if part in value]


@pytest.fixture
def careful(start):
    """careful(**limits): a session that redacts, whose every kind of content holds the secret."""

    def begin(window=12_000, *, redact=(PATTERN,), **limits):
        runtime = start(
            window,
            system=json.dumps(f"You serve {SECRET}."),
            tools=json.dumps(
                [
                    {"name": name, "description": f"For {SECRET}.", "input_schema": {"type": "object"}}
                    for name in ("read_file", "todo_write")
                ]
            ),
            limits={"precompute_frac": None, "max_wait_s": 20, "redact": list(redact), "state_tools": ["todo_write"], **limits},
        )  # fmt: skip
        runtime.say(f"My name is {SECRET}, never forget it.", pinned=True)
        runtime.append(
            new(
                "assistant", [*text(f"Hello {SECRET}."), use("t1", "todo_write", todo=f"call {SECRET} back")]
            ),
            new("user", [result("t1", f"noted for {SECRET}")]),
            new("assistant", [use("r1", path=f"/home/{SECRET}/notes.txt")]),
            new("user", [result("r1", [{"type": "text", "text": f"{SECRET} wrote this"}])]),
            new("assistant", f"Read, {SECRET}."),
        )
        return runtime

    return begin


def test_no_request_shows_a_match_wherever_it_stands(careful):
    runtime = careful()
    runtime.say(f"Go on, {SECRET}.")
    built = runtime.build(memory=json.dumps(text(f"Born as {SECRET}.")))
    assert leaks(built.body) == []
    assert built.body.count("[redacted]") >= 9
    assert desk.rebuild(runtime.turn(1)) == built.body


def test_no_call_that_hango_makes_and_no_record_of_a_summary_shows_a_match(careful, provider):
    runtime = careful()
    runtime.exchanges(26)
    runtime.say(f"And now, {SECRET}?")
    # The model may know the name from elsewhere, and say it all the same.
    provider.play(f"## Goal\nServe {SECRET} well.", Reply("Done.", "end_turn", USAGE))
    with runtime.committing():
        done = call.run(runtime.session)
    assert [c.purpose for c in provider.calls] == ["summarize", "chat"]
    for made in provider.calls:
        assert leaks(made.body) == []
    (row,) = runtime.compactions()
    assert (row.kind, row.status, done.built.compaction.pk) == ("model", "ready", row.pk)
    stored = Compaction.objects.filter(pk=row.pk).values().get()
    assert leaks(json.dumps(stored, default=str)) == []
    assert "My name is [redacted], never forget it." in row.head  # pinned, and still redacted
    assert "call [redacted] back" in row.head  # the state of a tool
    assert "Serve [redacted] well." in row.summary


def test_a_summary_without_a_model_shows_no_match_either(careful, settings):
    settings.HANGO_PROVIDER = "extractive"
    runtime = careful()
    runtime.exchanges(26)
    runtime.say(f"And now, {SECRET}?")
    built = runtime.build()
    assert built.compaction.kind == "extractive"
    stored = Compaction.objects.values().get(pk=built.compaction.pk)
    assert leaks(json.dumps(stored, default=str) + built.body) == []


def test_the_update_of_an_earlier_summary_shows_no_match(careful, provider):
    runtime = careful()
    runtime.exchanges(10)
    for n in range(2):
        provider.play(f"SUMMARY-{n} of {SECRET}")
        runtime.request_job()
        (row,) = runtime.work()
        assert row.status == "ready"
        runtime.exchanges(10, first=20 + 10 * n)
    assert len(provider.calls) == 2
    assert "SUMMARY-0 of [redacted]" in provider.calls[1].body
    assert all(leaks(c.body) == [] for c in provider.calls)
    assert leaks(json.dumps(list(Compaction.objects.values()), default=str)) == []


def test_a_match_is_found_before_anything_is_cut_through_it(careful, provider):
    """What is matched would be cut in the middle by truncation; neither half is left."""
    runtime = careful(redact=[PATTERN, "BEGIN-KEY[^#]*END-KEY"], tool_arg_max_tokens=100)
    key = "BEGIN-KEY " + "kkkk " * 4_000 + " END-KEY"
    runtime.say("Read the key.")
    for n in range(4):
        runtime.build()
        runtime.complete([use(f"k{n}", path=f"{n}.pem", key=key)])
        runtime.append(new("user", [result(f"k{n}", f"before {key} after")]))
    built = runtime.build()
    assert "kkkk" not in built.body
    assert "before [redacted] after" in built.body
    assert built.shown.size < 3_000  # what is not shown is not weighed


def test_dropped_and_previewed_messages_show_no_match(careful, provider):
    runtime = careful(max_wait_s=0)
    runtime.exchanges(12)
    runtime.say(f"And now, {SECRET}? " + words(1_500) + SECRET)
    runtime.build()
    for _ in range(2):
        climbed = runtime.overflow()
        assert leaks(climbed.built.body) == []
    assert climbed.rung == "truncate"


def test_transcript_and_history_are_as_they_were_said(careful, provider):
    runtime = careful()
    before = runtime.rows()
    runtime.exchanges(26)
    runtime.say("And now?")
    runtime.build()
    assert runtime.rows()[: len(before)] == before
    assert leaks(json.dumps([r["content"] for r in runtime.rows()]))
    told = "".join(offload.lines(runtime.session))
    assert f"My name is {SECRET}, never forget it." in told
    assert f"/home/{SECRET}/notes.txt" in told


def test_a_pattern_that_is_added_changes_requests_from_then_on_and_no_past_one(careful):
    runtime = careful(redact=())
    runtime.say("Go on.")
    one = runtime.build()
    assert SECRET in one.body
    runtime.complete("Yes.")
    runtime.session.limits = {**runtime.session.limits, "redact": [PATTERN]}
    runtime.session.save(update_fields=["limits"])
    runtime.say("And?")
    two = runtime.build()
    assert leaks(two.body) == []
    assert two.prefix_changed
    for built in (one, two):
        assert desk.rebuild(runtime.turn(built.turn.number)) == built.body


@pytest.mark.parametrize("warm", [True, False])
def test_a_pattern_that_is_added_later_covers_what_was_written_and_sent_before(
    careful, provider, clock, warm
):
    """Neither the earlier summary nor the prompt that the provider still caches is shown as it was."""
    runtime = careful(redact=())
    runtime.exchanges(26)
    runtime.say("And now?")
    provider.play(f"SUMMARY of {SECRET}")
    assert SECRET in runtime.build().body
    runtime.complete("Yes.")
    runtime.exchanges(12, first=50)
    runtime.say(f"I am {SECRET}.")
    runtime.build()
    runtime.complete("Yes.")
    runtime.session.limits = {**runtime.session.limits, "redact": [PATTERN]}
    runtime.session.save(update_fields=["limits"])
    if not warm:
        clock.move(3_600)
    provider.reset()
    runtime.request_job()
    (row,) = runtime.work()
    assert row.status == "ready"
    assert "SUMMARY of [redacted]" in provider.calls[0].body
    assert all(leaks(c.body) == [] for c in provider.calls)
    assert leaks(row.head + row.summary + json.dumps(row.identifiers_kept + row.identifiers_found)) == []
    runtime.say("And?")
    built = runtime.build()
    assert built.compaction == row
    assert leaks(built.body) == []


def test_an_earlier_summary_is_shown_without_what_is_redacted_since(careful, provider):
    runtime = careful(redact=())
    runtime.exchanges(26)
    runtime.say("And now?")
    provider.play(f"SUMMARY of {SECRET}")
    assert f"SUMMARY of {SECRET}" in runtime.build().body
    runtime.complete("Yes.")
    runtime.session.limits = {**runtime.session.limits, "redact": [PATTERN]}
    runtime.session.save(update_fields=["limits"])
    runtime.say("And?")
    built = runtime.build()
    assert "SUMMARY of [redacted]" in built.body
    assert leaks(built.body) == []


def test_what_a_client_asks_a_summary_to_look_at_is_redacted_too(careful, provider):
    runtime = careful()
    runtime.exchanges(20)
    forced.compact_session(
        runtime.session, forced.read({"instructions": f"Mind what {SECRET} said.", "wait": True})
    )
    (asked,) = provider.calls
    assert "Mind what [redacted] said." in asked.body
    assert leaks(asked.body) == []


def test_ids_that_match_stay_since_they_pair_calls_with_results(careful):
    runtime = careful(redact=["call_[0-9]+"])
    runtime.say("Read.")
    runtime.round(30, "RESULT")
    built = runtime.build()
    ids = [
        b.get("id") or b.get("tool_use_id")
        for m in json.loads(built.body)["messages"] for b in m["content"]
        if isinstance(b, dict) and b["type"] in ("tool_use", "tool_result")
    ]  # fmt: skip
    assert ids.count("call_1") == 2


def test_a_pattern_over_unicode_is_matched_on_decoded_text(careful):
    runtime = careful(redact=["caf\u00e9 [0-9]+"])
    runtime.append(
        type(new("user", ""))(
            "user", '[{"type":"text","text":"at the caf\\u00e9 12 or \\u0063af\\u00e9 13"}]'
        )
    )
    assert "at the [redacted] or [redacted]" in runtime.build().body

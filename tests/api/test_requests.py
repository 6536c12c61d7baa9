"""Built requests: what the answer tells, that it is the bytes it says, and when it is the same again."""

from __future__ import annotations

import itertools
import json

import pytest

from compaction.engine.errors import ProviderFailed
from compaction.models import Turn
from tests.api.client import (
    SMALL,
    TOOLS,
    accepted,
    assistant,
    calls,
    chat,
    label,
    members,
    prose,
    results,
    sha256,
    user,
)

FIELDS = {
    "turn", "request", "budget", "coverage", "compaction", "work", "deferred", "repairs", "truncated_tool_args", "prefix_changed", "digest",
}  # fmt: skip


def text_of(request: dict) -> str:
    return json.dumps(request, ensure_ascii=False)


def compacted(api, work, **fields) -> str:
    """A session whose next new turn shows a summary."""
    session = api.session(**{"limits": SMALL, **fields})
    api.say(session, *chat(8))
    assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    return session


# --- what it tells


def test_the_answer_has_every_field_of_the_contract(api):
    session = api.session(system="Be brief.", tools=TOOLS, max_tokens=300)
    built = api.build(session, messages=[user("hi")])
    assert set(built.json) >= FIELDS
    assert built["turn"] == 1
    assert built["request"]["model"] == "test-model"
    assert built["request"]["max_tokens"] == 300
    assert [m["role"] for m in built["request"]["messages"]] == ["user"]
    assert set(built["budget"]) == {"input_tokens", "window", "trigger", "precompute_at", "source"}
    assert built["coverage"] == {"summarised": None, "dropped": None, "verbatim": [0, 0]}
    assert (built["compaction"], built["deferred"], built["repairs"], built["truncated_tool_args"], built["prefix_changed"]) == (
        None, False, [], 0, False,
    )  # fmt: skip
    assert built["work"]["state"] == "idle"


@pytest.mark.parametrize(
    "said",
    [
        [user("é ü 漢字 😀")], [user("\x00 \u2028 / \" \\")], [user("x\ud800y")], [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
        [user("go"), calls("c", b=1.0, a=1e22), results("c")],
    ],
    ids=label,
)  # fmt: skip
def test_the_digest_is_that_of_the_bytes_in_the_answer(api, said):
    built = api.build(api.session(tools=TOOLS, system="é"), messages=said)
    assert built["digest"] == sha256(built.member("request"))
    assert built.raw.decode() == built.text


def test_the_callers_bytes_are_passed_on(api):
    """Key order, number forms and escapes of tools and inputs decide what a prompt cache finds again."""
    given = '{"z":1.0,"a":1e2,"u":"\\u00e9"}'
    schema = '{"type":"object","properties":{"n":{"minimum":0.50}}}'
    api.post(
        "/sessions/", raw=f'{{"id":"s","model":"m","tools":[{{"name":"t","input_schema":{schema}}}]}}'
    ).expect(201)
    call = f'{{"role":"assistant","content":[{{"id":"c","name":"t","type":"tool_use","input":{given}}}]}}'
    said = f'[{{"role":"user","content":"go"}},{call},{{"role":"user","content":[{{"tool_use_id":"c","type":"tool_result","content":"ok"}}]}}]'
    built = api.post("/sessions/s/requests/", raw=f'{{"messages":{said}}}').expect(200)
    assert given in built.member("request")
    assert schema in built.member("request")


def test_appending_and_building_is_one_call(api):
    session = api.session(tools=TOOLS)
    api.build(session, messages=[user("go")])
    second = api.build(session, messages=[calls("c"), results("c")])
    third = api.build(session, messages=[assistant("done"), user("thanks")])
    assert (second["turn"], third["turn"]) == (2, 3)
    assert third["coverage"]["verbatim"] == [0, 4]
    assert [m["seq"] for m in api.transcript(session)] == list(range(5))


def test_max_tokens_of_the_call_wins_over_the_sessions(api):
    session = api.session(max_tokens=300)
    assert api.build(session, messages=[user()], max_tokens=55)["request"]["max_tokens"] == 55


@pytest.mark.parametrize("value", [0, -1, "5", 1.5, True, 10**30])
def test_max_tokens_that_are_none_are_a_422(api, value):
    session = api.session()
    api.say(session, user())
    assert api.post(f"{session}/requests/", {"max_tokens": value}).pointers() == ["/max_tokens"]
    assert not Turn.objects.exists()


@pytest.mark.parametrize("value", [{}, "x", 5, True, [5], [{"role": "system", "content": "x"}], False, 0, ""])
def test_messages_that_are_none_are_a_422(api, value):
    session = api.session()
    api.say(session, user())
    assert api.post(f"{session}/requests/", {"messages": value}).pointers()[0].startswith("/messages")
    assert len(api.transcript(session)) == 1
    assert not Turn.objects.exists()


def test_an_unknown_field_is_refused_before_anything_is_written(api):
    session = api.session()
    answer = api.post(f"{session}/requests/", {"messages": [user()], "memmory": "x"})
    assert 400 <= answer.status < 500
    assert answer.pointers(answer.status) == ["/memmory"]
    assert api.transcript(session) == []


def test_a_dry_run_writes_nothing(api):
    """It explains, or it is refused as not known; it never passes for a build."""
    session = api.session()
    api.say(session, user())
    answer = api.post(f"{session}/requests/", {"dry_run": True})
    assert not Turn.objects.exists()
    if answer.status == 200:
        assert answer["explain"]
    else:
        answer.problem(answer.status)


def test_a_session_without_messages_has_nothing_to_send(api):
    session = api.session(system="s")
    answer = api.post(f"{session}/requests/", {})
    answer.problem(answer.status)
    assert 400 <= answer.status < 500
    assert not Turn.objects.exists()
    assert api.build(session, messages=[user()])["turn"] == 1


@pytest.mark.parametrize("said", [[user("")], [user("  ")], [user([])], [assistant([])]], ids=label)
def test_a_session_of_nothing_but_blanks_is_no_server_error(api, said):
    session = api.session()
    api.say(session, *said)
    answer = api.post(f"{session}/requests/", {})
    assert answer.status < 500
    api.build(session, messages=[user("now")])


def test_the_budget_of_an_answer_knows_what_was_built(api):
    session = api.session()
    small = api.build(session, messages=[user("x")])["budget"]
    api.complete(session, 1).expect(200)
    large = api.build(session, messages=[user(prose(5000))])["budget"]
    assert large["input_tokens"] > small["input_tokens"] + 3000
    assert large["source"] == "estimate"


def test_reported_usage_becomes_the_budgets_source(api):
    session = api.session()
    built = api.build(session, messages=[user(prose(1000))])
    used = int(built["budget"]["input_tokens"] * 1.2)
    usage = {
        "input_tokens": used - 300,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 100,
        "output_tokens": 5,
    }
    api.complete(session, 1, usage=usage).expect(200)
    after = api.build(session, messages=[user("more")])["budget"]
    assert after["source"] == "usage"
    assert used <= after["input_tokens"] < used + 100


# --- rule 3


def test_building_again_is_the_same_turn_and_the_same_bytes(api):
    session = api.session(system="s", tools=TOOLS)
    first = api.build(session, messages=[user("hi")])
    again = api.build(session)
    assert (again["turn"], again.member("request"), again["prefix_changed"]) == (
        1,
        first.member("request"),
        False,
    )
    assert Turn.objects.count() == 1


def test_new_words_of_the_user_join_the_open_turn(api):
    session = api.session()
    api.build(session, messages=[user("hi")])
    again = api.build(session, messages=[user("and one more thing")])
    assert again["turn"] == 1
    assert again["coverage"]["verbatim"] == [0, 1]
    assert "one more thing" in again.text


def test_an_open_turn_keeps_its_compaction(api, work):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    first = api.build(session)
    assert first["compaction"] is None
    assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    again = api.build(session)
    assert (again["turn"], again["compaction"], again["digest"]) == (1, None, first["digest"])


@pytest.mark.parametrize("answered", [[], [results("a")]], ids=["none", "one of two"])
def test_a_request_that_would_end_on_open_calls_is_a_409(api, answered):
    session = api.session(tools=TOOLS)
    api.say(session, user("go"), calls("a", "b"), *answered)
    api.post(f"{session}/requests/", {}).problem(409, "results-missing")
    assert not Turn.objects.exists()
    api.build(session, messages=[results("a", "b")] if not answered else [results("b")])


def test_a_request_that_would_end_on_an_answer_goes_on(api):
    session = api.session()
    api.say(session, user("hi"), assistant("hello"))
    built = api.build(session)
    assert built["request"]["messages"][-1]["role"] == "user"
    assert "Continue." in json.dumps(built["request"]["messages"][-1])
    assert any("continue" in r["rule"] for r in built["repairs"])
    assert [m["content"] for m in api.transcript(session)] == ["hi", "hello"]


def test_a_strict_session_has_nothing_to_answer_there(api):
    session = api.session(strict=True)
    api.say(session, user("hi"), assistant("hello"))
    api.post(f"{session}/requests/", {}).problem(409, "nothing-to-answer")
    assert not Turn.objects.exists()
    api.build(session, messages=[user("go on")])


# --- memory


def test_memory_stands_after_the_system_prompt(api):
    built = api.build(api.session(system="Be brief."), messages=[user()], memory="The user is Ann.")
    system = built["request"]["system"]
    assert [b["text"] for b in system] == ["Be brief.", "The user is Ann."]
    assert "cache_control" in system[0]
    assert "cache_control" not in system[1]


def test_memory_may_be_blocks_and_may_stand_without_a_system_prompt(api):
    built = api.build(
        api.session(),
        messages=[user()],
        memory=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
    )
    assert [b["text"] for b in built["request"]["system"]] == ["one", "two"]


def test_memory_placed_in_the_message_leaves_the_system_prompt_alone(api):
    session = api.session(system="Be brief.", tools=TOOLS, memory_placement="message")
    api.say(session, user("go"), calls("c"), results("c"))
    built = api.build(session, memory="The user is Ann.")
    assert "Ann" not in json.dumps(built["request"]["system"])
    newest = built["request"]["messages"][-1]["content"]
    assert newest[0]["type"] == "tool_result"
    assert newest[1]["text"] == "The user is Ann."
    assert "Ann" not in json.dumps(api.transcript(session))


def test_omitted_memory_is_the_last_turns(api):
    session = api.session(system="s")
    api.build(session, messages=[user()], memory="The user is Ann.")
    assert "Ann" in api.build(session).text
    api.complete(session, 1).expect(200)
    assert "Ann" in api.build(session, messages=[user()]).text
    api.complete(session, 2).expect(200)
    assert "Bob" in api.build(session, messages=[user()], memory="The user is Bob.").text
    api.complete(session, 3).expect(200)
    gone = api.build(session, messages=[user()], memory=None)
    assert "Ann" not in gone.text
    assert "Bob" not in gone.text


@pytest.mark.parametrize(
    "nothing",
    [None, "", "  ", [], [{"type": "text", "text": ""}], [{"type": "text", "text": " "}]],
    ids=label,
)
def test_memory_of_nothing_is_no_memory(api, nothing):
    built = api.build(api.session(system="s"), messages=[user()], memory=nothing)
    assert text_of(built["request"]["system"]).count('"text": "') <= 2


@pytest.mark.parametrize(
    "memory",
    [5, {}, True, ["text"], [{"type": "image"}], [{"type": "text"}], [{"type": "text", "text": 5}]],
    ids=label,
)
def test_memory_that_is_none_is_a_422(api, memory):
    session = api.session()
    assert api.post(f"{session}/requests/", {"messages": [user()], "memory": memory}).pointers() == [
        "/memory"
    ]
    assert api.transcript(session) == []


@pytest.mark.parametrize(
    "memory",
    ["x\ud800", "\x00", "é😀", [{"type": "text", "text": "\udc00", "cache_control": {"type": "ephemeral"}}]],
    ids=label,
)
@pytest.mark.parametrize("placement", ["system", "message"])
def test_any_memory_text_gives_a_request_that_can_be_sent(api, memory, placement):
    session = api.session(system="s", memory_placement=placement)
    built = api.build(session, messages=[user()], memory=memory)
    assert api.get(f"{session}/turns/1/request/")["digest"] == built["digest"]


def test_another_memory_is_no_change_of_the_prefix(api):
    session = api.session(system="s")
    api.build(session, messages=[user()], memory="one")
    api.complete(session, 1).expect(200)
    assert api.build(session, messages=[user()], memory="two")["prefix_changed"] is False


# --- what is shown


def test_a_growing_session_keeps_its_prefix(api):
    session = api.session(system="s", tools=TOOLS)
    earlier: list[dict] = []
    for n in range(6):
        said = [user(f"step {n}")] if not n else [calls(f"c{n}"), results(f"c{n}")]
        built = api.build(session, messages=said)
        assert built["prefix_changed"] is False
        shown = [_plain(m) for m in built["request"]["messages"]]
        assert shown[: len(earlier)] == earlier
        earlier = shown


def _plain(message: dict) -> dict:
    blocks = (
        message["content"]
        if isinstance(message["content"], list)
        else [{"type": "text", "text": message["content"]}]
    )
    return {
        "role": message["role"],
        "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in blocks],
    }


def test_a_swap_changes_the_prefix_once_and_is_told(api, work):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    assert api.build(session)["prefix_changed"] is False
    api.complete(session, 1).expect(200)
    assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    swapped = api.build(session, messages=[user("more")])
    assert swapped["prefix_changed"] is True
    assert swapped["compaction"]["applied_now"] is True
    api.complete(session, 2).expect(200)
    after = api.build(session, messages=[user("more")])
    assert after["prefix_changed"] is False
    assert after["compaction"]["id"] == swapped["compaction"]["id"]
    assert after["compaction"]["applied_now"] is False


@pytest.mark.parametrize(
    "change", [{"system": "new"}, {"tools": [{"name": "other", "input_schema": {"type": "object"}}]}]
)
def test_another_system_prompt_or_toolset_changes_the_prefix(api, change):
    session = api.session(system="old", tools=TOOLS)
    api.build(session, messages=[user()])
    api.complete(session, 1).expect(200)
    api.patch(f"{session}/", change).expect(200)
    assert api.build(session, messages=[user()])["prefix_changed"] is True


def test_coverage_goes_over_the_whole_transcript_without_gap_and_overlap(api, work):
    session = compacted(api, work)
    built = api.build(session)
    cover = built["coverage"]
    parts = [p for p in (cover["summarised"], cover["dropped"], cover["verbatim"]) if p]
    assert parts[0][0] == 0
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(parts))
    assert parts[-1][1] == len(api.transcript(session)) - 1
    assert cover["summarised"] == [0, built["compaction"]["kept_from"] - 1]
    first = api.transcript(session)[cover["verbatim"][0]]["content"]
    assert first in built.text
    assert "question 0." not in text_of(built["request"]["messages"][1:])


def test_a_built_compaction_is_shown_as_the_list_shows_it(api, work):
    session = compacted(api, work)
    built = api.build(session)["compaction"]
    applied = built.pop("applied_now")
    assert applied is True
    assert api.get(f"{session}/compactions/{built['id']}/").json == built


def test_a_due_compaction_that_is_left_to_the_worker_is_told(api, work):
    limits = {"max_input_tokens": 8000, "max_output_tokens": 500, "max_wait_s": 0}
    session = api.session(limits=limits, max_tokens=500)
    api.say(session, *chat(14))
    built = api.build(session)
    assert built["budget"]["input_tokens"] > built["budget"]["trigger"]
    assert built["deferred"] is True
    assert built["work"]["state"] == "requested"
    assert [job.status for job in work()] == ["ready"]
    api.complete(session, 1).expect(200)
    after = api.build(session, messages=[user("more")])
    assert (after["deferred"], after["compaction"]["applied_now"]) == (False, True)
    assert after["budget"]["input_tokens"] < after["budget"]["trigger"]


def test_work_tells_how_the_background_is_doing(api, work, provider):
    session = api.session(limits={"max_input_tokens": 8000, "max_wait_s": 0}, max_tokens=500)
    assert api.build(session, messages=[user()])["work"]["state"] == "idle"
    api.complete(session, 1).expect(200)
    api.say(session, *chat(14))
    assert api.build(session)["work"]["state"] == "requested"
    provider.play(ProviderFailed("invalid x-api-key", kind="authentication_error", http_status=401))
    assert [job.status for job in work()] == ["failed"]
    failed = api.build(session)["work"]
    assert failed["state"] == "failed"
    assert failed["code"] == "authentication_error"


def test_work_that_is_running_is_told_as_running(api, work, provider):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    api.post(f"{session}/compactions/", {}).expect(202)
    seen = []
    provider.during = lambda call: seen.append(api.build(session)["work"]["state"])
    work()
    assert seen == ["running"]
    assert api.build(session)["work"]["state"] == "ready"


def test_cut_arguments_are_counted_and_the_transcript_is_not_cut(api):
    session = api.session(limits=SMALL, tools=TOOLS, max_tokens=500)
    rounds = [m for i in range(6) for m in (calls(f"c{i}", text=prose(900)), results(f"c{i}"))]
    built = api.build(session, messages=[user("go"), *rounds])
    assert built["truncated_tool_args"] > 0
    assert all(len(json.dumps(m)) > 2000 for m in api.transcript(session) if m["role"] == "assistant")


# --- the tool that asks for a compaction (rule 7)


def test_with_compact_tool_its_definition_is_offered(api):
    names = [
        t["name"]
        for t in api.build(api.session(tools=TOOLS, compact_tool=True), messages=[user()])["request"]["tools"]
    ]
    assert sorted(names) == ["compact_conversation", "read_file"]
    plain = api.build(api.session("plain", tools=TOOLS), messages=[user()])["request"]["tools"]
    assert [t["name"] for t in plain] == ["read_file"]


def test_a_call_of_it_needs_no_result_of_the_runtimes(api):
    session = api.session(tools=TOOLS, compact_tool=True)
    appended = api.say(session, user("go"), calls("c", name="compact_conversation"))
    assert appended["warnings"] == []
    built = api.build(session)
    last = built["request"]["messages"][-1]["content"]
    assert [(b["type"], b["tool_use_id"]) for b in last] == [("tool_result", "c")]
    assert any("compact" in r["rule"] for r in built["repairs"])
    assert len(api.transcript(session)) == 2


def test_beside_other_calls_the_other_results_are_still_waited_for(api):
    session = api.session(tools=TOOLS, compact_tool=True)
    both = assistant([*calls("a")["content"], *calls("c", name="compact_conversation")["content"]])
    api.say(session, user("go"), both)
    api.post(f"{session}/requests/", {}).problem(409, "results-missing")
    built = api.build(session, messages=[results("a")])
    assert {b["tool_use_id"] for b in built["request"]["messages"][-1]["content"]} == {"a", "c"}


def test_a_call_of_it_asks_for_a_compaction_that_the_next_new_turn_shows(api, work):
    session = api.session(limits=SMALL, compact_tool=True)
    api.build(session, messages=chat(8))
    api.complete(session, 1, message=calls("c", name="compact_conversation"), stop_reason="tool_use").expect(
        200
    )
    (asked,) = api.get(f"{session}/compactions/")["results"]
    assert asked["reason"] == "tool"
    assert [job.status for job in work()] == ["ready"]
    assert api.build(session)["compaction"]["id"] == asked["id"]


def test_without_compact_tool_the_name_means_nothing(api):
    session = api.session(tools=TOOLS)
    api.say(session, user("go"), calls("c", name="compact_conversation"))
    api.post(f"{session}/requests/", {}).problem(409, "results-missing")
    assert api.get(f"{session}/compactions/")["results"] == []


# --- the past


def test_a_sent_request_can_be_read_again_byte_for_byte(api):
    session = api.session(system="é", tools=TOOLS)
    built = api.build(session, messages=[user("x\ud800 é")], memory="m")
    again = api.get(f"{session}/turns/1/request/").expect(200)
    assert again.member("request") == built.member("request")
    assert again["digest"] == built["digest"] == sha256(again.member("request"))


def test_it_stays_the_same_whatever_happens_later(api, work):
    session = api.session(system="old", tools=TOOLS, limits=SMALL, metadata={"a": 1})
    built = [api.build(session, messages=[user("go")], memory="old memory")]
    for n in range(1, 12):
        built.append(
            api.build(
                session, messages=[calls(f"c{n}", text=prose(500)), results(f"c{n}")], max_tokens=400 + n
            )
        )
        if n == 6:
            api.post(f"{session}/compactions/", {"wait": True}).expect(201)
        if n == 8:
            api.patch(
                f"{session}/",
                {"system": "new", "tools": [*TOOLS, {"name": "more", "input_schema": {"type": "object"}}]},
            ).expect(200)
            api.patch(
                f"{session}/",
                {
                    "model": "another",
                    "limits": {**SMALL, "tool_arg_max_tokens": 50},
                    "memory_placement": "message",
                },
            ).expect(200)
        if n == 10:
            cid = api.get(f"{session}/compactions/")["results"][0]["id"]
            api.delete(f"{session}/compactions/{cid}/").expect(204)
    assert any(b["compaction"] for b in built)
    for b in built:
        again = api.get(f"{session}/turns/{b['turn']}/request/").expect(200)
        assert again.member("request") == b.member("request")
        assert again["digest"] == b["digest"]


def test_of_a_turn_that_was_built_again_the_last_request_counts(api):
    session = api.session()
    api.build(session, messages=[user("hi")])
    second = api.build(session, messages=[user("more")])
    assert api.get(f"{session}/turns/1/request/").member("request") == second.member("request")


@pytest.mark.parametrize("number", ["0", "2", "99999999999999999999", "-1", "x", "1.0"])
def test_a_turn_that_is_none_is_a_404(api, number):
    session = api.session()
    api.build(session, messages=[user()])
    api.get(f"{session}/turns/{number}/request/").problem(404)


# --- what cannot fit


def test_what_cannot_fit_is_a_422_that_says_what_and_by_how_much(api):
    session = api.session(system=prose(20_000), limits=SMALL)
    found = api.post(f"{session}/requests/", {"messages": [user("hi")]}).problem(422, "context-cannot-fit")
    assert "system" in found["detail"]
    assert any(char.isdigit() for char in found["detail"])
    assert not Turn.objects.exists()


def test_after_that_the_session_is_usable(api):
    session = api.session(system=prose(20_000), limits=SMALL)
    api.post(f"{session}/requests/", {"messages": [user("hi")]}).problem(422)
    api.patch(f"{session}/", {"system": "short"}).expect(200)
    built = api.build(session)
    assert built["turn"] == 1
    assert "hi" in built.text


def test_messages_of_a_refused_build_are_stored_and_told(api):
    session = api.session(system=prose(20_000), limits=SMALL)
    found = api.post(f"{session}/requests/", {"messages": [user("one"), user("two")]}).problem(
        422, "context-cannot-fit"
    )
    assert found["appended"] == [0, 1]
    assert [m["content"] for m in api.transcript(session)] == ["one", "two"]
    waiting = api.session("w", tools=TOOLS)
    found = api.post(f"{waiting}/requests/", {"messages": [user("go"), calls("c")]}).problem(
        409, "results-missing"
    )
    assert found["appended"] == [0, 1]
    assert len(api.transcript(waiting)) == 2


def test_a_memory_that_cannot_fit_is_refused_and_can_be_given_up(api):
    session = api.session(limits=SMALL)
    api.post(f"{session}/requests/", {"messages": [user("hi")], "memory": prose(20_000)}).problem(
        422, "context-cannot-fit"
    )
    assert api.build(session, memory=None)["turn"] == 1


def test_a_giant_message_is_shown_in_part_rather_than_refused(api):
    session = api.session(limits=SMALL)
    built = api.build(session, messages=[user("Please read:\n" + prose(30_000))])
    assert built["budget"]["input_tokens"] <= 8000
    assert len(api.transcript(session)[0]["content"]) > 100_000


def test_one_request_after_the_other_fits_its_window(api, work):
    session = api.session(limits={**SMALL, "precompute_frac": 0.7}, tools=TOOLS, max_tokens=500)
    api.build(session, messages=[user("go")])
    for n in range(40):
        built = api.build(
            session,
            messages=[
                calls(f"c{n}", path=f"/src/file_{n}.py"),
                results(f"c{n}", text=prose(400, f"file {n} ")),
            ],
        )
        assert built["budget"]["input_tokens"] <= 8000
        if n % 3 == 2:
            work()
    assert api.get(f"{session}/")["compactions"] > 1
    assert members(built.text)["work"]
    assert accepted(built.member("request"))

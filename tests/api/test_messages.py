"""The transcript: appended whole or not at all, read back byte for byte."""

from __future__ import annotations

import functools
import json

import pytest

from sessions_app.models import Message
from tests.api.client import SMALL, TOOLS, assistant, calls, chat, label, members, path_of, results, user

BODY = '{{"messages":[{}]}}'


def stored_text(api, session: str, seq: int = 0) -> str:
    """The exact text of one message's content as the API gives it back."""
    decoder = json.JSONDecoder()
    text = members(api.get(f"{session}/messages/").text)["results"]
    at = 1
    for _ in range(seq):
        _, at = decoder.raw_decode(text, at)
        at += 1
    _, end = decoder.raw_decode(text, at)
    return members(text[at:end])["content"]


CONTENTS = [
    '"plain"', '""', '"  "', '"é ü ß 漢字 😀 \\ud83d\\ude00"', '"\\u00e9 \\/ \\" \\\\ \\b \\f \\n \\r \\t"', '"\\u0000 nul"', '"\\ud800 lone"',
    '"\\udc00\\ud800 swapped"', '"\u2028 \u2029 \u202e \ufeff"', "[]", '[{"type":"text","text":"a"}]', ' [ {"text" : "a", "type":"text"} ] ',
    '[{"type":"tool_use","id":"c","name":"t","input":{"b":1.0,"a":1e2,"z":-0.0,"n":12345678901234567890,"m":1E+5}}]',
    '[{"type":"tool_use","id":"c","name":"t","input":{"k":1,"k":2}}]', '[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]',
    '[{"type":"thinking","thinking":"\\u00fc","signature":"abc=="}]', '[{"type":"text","text":"one","text":"two"}]',
    '[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGVsbG8="}}]', '[{"type":"from_the_future","x":[1.50]}]',
    '[{"type":"tool_use","id":"\\ud800","name":"t","input":{}}]', '[{"type":"tool_use","id":"\\u0000","name":"t","input":{}}]',
    '[{"type":"tool_use","id":"","name":"","input":null}]',
    '[{"type":"tool_use","id":"' + "i" * 400 + '","name":"t","input":{}}]', '[{"type":"tool_use","id":"c","name":"\\ud800","input":{"\\ud800":1}}]',
]  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS, ids=label)
def test_content_comes_back_byte_for_byte(api, content):
    """Escapes, number forms, key order and even keys that stand twice are the caller's own."""
    session = api.session(tools=TOOLS)
    role = "assistant" if "tool_use" in content or "thinking" in content else "user"
    api.post(f"{session}/messages/", raw=BODY.format(f'{{"role":"{role}","content":{content}}}')).expect(201)
    assert stored_text(api, session) == content.strip()


@pytest.mark.parametrize("content", CONTENTS, ids=label)
def test_whatever_is_stored_a_request_can_be_built_on_it(api, content):
    session = api.session(tools=TOOLS)
    role = "assistant" if "tool_use" in content or "thinking" in content else "user"
    answers = f',{{"role":"user","content":{json.dumps("go on")}}}'
    api.post(
        f"{session}/messages/", raw=BODY.format(f'{{"role":"{role}","content":{content}}}{answers}')
    ).expect(201)
    if (
        '"thinking"' in content or "future" in content
    ):  # the judge knows only its own signatures, and no future
        api.post(f"{session}/requests/", {}).expect(200)
    else:
        api.build(session)
    assert api.get(f"{session}/history/").status == 200


def test_what_was_appended_is_read_back_in_order_from_seq_0(api):
    session = api.session()
    said = [
        user("one"),
        assistant([{"type": "text", "text": "two"}]),
        user("three", client_id="x", pinned=True),
    ]
    appended = api.say(session, *said)
    assert [m["seq"] for m in appended["appended"]] == [0, 1, 2]
    assert appended["next_seq"] == 3
    assert appended["warnings"] == []
    found = api.transcript(session)
    assert [(m["seq"], m["role"], m["content"], m["client_id"], m["pinned"]) for m in found] == [
        (0, "user", "one", None, False), (1, "assistant", said[1]["content"], None, False), (2, "user", "three", "x", True),
    ]  # fmt: skip


def test_seq_goes_on_over_appends(api):
    session = api.session()
    for expected in range(3):
        assert [m["seq"] for m in api.say(session, user(), assistant())["appended"]] == [
            2 * expected,
            2 * expected + 1,
        ]


def test_an_append_answers_with_the_budget(api):
    session = api.session()
    small = api.say(session, user("x"))["budget"]
    large = api.say(session, assistant("y " * 5000))["budget"]
    assert set(large) == {"input_tokens", "window", "trigger", "precompute_at", "source"}
    assert large["input_tokens"] > small["input_tokens"] + 1000


def test_the_transcript_is_paged_oldest_first(api):
    session = api.session()
    api.say(session, *chat(5, 5))
    seen, path, pages = [], f"{session}/messages/?limit=4", 0
    while path:
        page = api.get(path).expect(200)
        seen += [m["seq"] for m in page["results"]]
        path, pages = path_of(page["next"]), pages + 1
    assert seen == list(range(11))
    assert pages == 3


def test_messages_added_while_paging_are_seen_once(api):
    session = api.session()
    api.say(session, *chat(2, 5))
    first = api.get(f"{session}/messages/?limit=3")
    api.say(session, assistant())
    second = api.get(path_of(first["next"]))
    assert [m["seq"] for m in (*first["results"], *second["results"])] == list(range(6))


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=100000", "after=-2", "after=x", "after=99999999999999999999"],
)
def test_a_page_that_is_none_is_a_400(api, query):
    api.get(f"{api.session()}/messages/?{query}").problem(400)


def test_an_empty_transcript_is_an_empty_page(api):
    page = api.get(f"{api.session()}/messages/").expect(200)
    assert (page["results"], page["next"]) == ([], None)


# --- all or nothing

MALFORMED = [
    ({"role": "system", "content": "x"}, "/role"), ({"role": "tool", "content": "x"}, "/role"), ({"role": None, "content": "x"}, "/role"),
    ({"role": "User", "content": "x"}, "/role"), ({"content": "x"}, "/role"), ({"role": "user"}, "/content"),
    ({"role": "user", "content": None}, "/content"), ({"role": "user", "content": 5}, "/content"), ({"role": "user", "content": True}, "/content"),
    ({"role": "user", "content": {"type": "text", "text": "x"}}, "/content"), ({"role": "user", "content": ["x"]}, "/content/0"),
    ({"role": "user", "content": [{"text": "x"}]}, "/content/0"), ({"role": "user", "content": [{"type": 5}]}, "/content/0"),
    ({"role": "user", "content": [{"type": "text", "text": 5}]}, "/content/0/text"), ({"role": "user", "content": [{"type": "text"}]}, "/content/0/text"),
    ({"role": "assistant", "content": [{"type": "tool_use", "name": "t", "input": {}}]}, "/content/0/id"),
    ({"role": "user", "content": [{"type": "tool_result"}]}, "/content/0/tool_use_id"),
    ({"role": "user", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {}}]}, "/content/0"),
    ({"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "c"}]}, "/content/0"),
    ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": 5}]}, "/content/0/content"),
    ({"role": "user", "content": [{"type": "text", "text": "ok"}, {"type": "image"}]}, "/content/1/source"),
    ({"role": "user", "content": "x", "name": "bob"}, "/name"), ({"role": "user", "content": "x", "client_id": 5}, "/client_id"),
    ({"role": "user", "content": "x", "client_id": ""}, "/client_id"), ({"role": "user", "content": "x", "client_id": "i" * 201}, "/client_id"),
    ({"role": "user", "content": "x", "client_id": "\ud800"}, "/client_id"), ({"role": "user", "content": "x", "client_id": "\x00"}, "/client_id"),
    ({"role": "user", "content": "x", "pinned": "yes"}, "/pinned"), ({"role": "assistant", "content": "x", "pinned": True}, "/pinned"),
    ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}], "pinned": True}, "/pinned"),
    ({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image", "source": {"type": "url", "url": "u"}}], "pinned": True}, "/pinned"),
    ({"role": "user", "content": [], "pinned": True}, "/pinned"), ("text", ""), (None, ""), ([], ""), (5, ""),
]  # fmt: skip


@pytest.mark.parametrize(("message", "field"), MALFORMED, ids=label)
def test_a_malformed_message_is_a_422_that_names_it_and_nothing_is_stored(api, message, field):
    session = api.session()
    answer = api.post(f"{session}/messages/", {"messages": [user("good"), message, user("good too")]})
    assert f"/messages/1{field}" in answer.pointers()
    assert "/messages/1" in answer["detail"]
    assert api.transcript(session) == []


def test_every_malformed_message_is_named(api):
    answer = api.post(
        f"{api.session()}/messages/",
        {"messages": [{"role": "x", "content": "a"}, user("good"), {"role": "user", "content": 5}]},
    )
    assert set(answer.pointers()) == {"/messages/0/role", "/messages/2/content"}
    assert all(e["detail"] for e in answer["errors"])


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/messages"), ({"messages": None}, "/messages"), ({"messages": {}}, "/messages"), ({"messages": "x"}, "/messages"),
        ({"messages": [], "expected_seq": "0"}, "/expected_seq"), ({"messages": [], "expected_seq": -1}, "/expected_seq"),
        ({"messages": [], "expected_seq": True}, "/expected_seq"), ({"messages": [], "expected_seq": 0.5}, "/expected_seq"),
    ],
)  # fmt: skip
def test_a_body_of_another_shape_is_a_422_that_names_the_field(api, body, pointer):
    assert api.post(f"{api.session()}/messages/", body).pointers() == [pointer]


def test_an_unknown_field_of_the_body_is_refused(api):
    answer = api.post(f"{api.session()}/messages/", {"messages": [user()], "expected": 0})
    assert 400 <= answer.status < 500
    assert answer.pointers(answer.status) == ["/expected"]


def test_no_messages_are_nothing(api):
    appended = api.say(api.session())
    assert (appended["appended"], appended["next_seq"]) == ([], 0)


@pytest.mark.parametrize(
    "raw",
    [
        "{", "", "[]", '"x"', "null", "5", '{"messages":[}', '{"messages":[{"role":"user","content":"a}]}', '{"messages":[]}x',
        '{"messages":[],}', "{'messages':[]}", '{"messages":[{"role":"user","content":"a\nb"}]}', '{"messages":[{"role":"user","content":"\x00"}]}',
        '{"messages":[{"role":"user","content":[{"type":"x","n":NaN}]}]}', '{"messages":[{"role":"user","content":[{"type":"x","n":Infinity}]}]}',
        '{"messages":[{"role":"user","content":[{"type":"x","n":-Infinity}]}]}', '{"messages":[{"role":"user","content":"\\x"}]}',
        '{"messages":[{"role":"user","content":"\\u12"}]}', '{"messages":[],"messages":[]}', "[" * 100_000, '{"messages":' + "[" * 100_000,
        '{"a":' * 50_000, '{"messages":[' + "9" * 5000 + "]}", '{"messages":[{"role":"user","content":"x"}],"n":01}',
    ],
    ids=label,
)  # fmt: skip
def test_what_is_no_json_object_is_a_400(api, raw):
    session = api.session()
    answer = api.post(f"{session}/messages/", raw=raw)
    if raw == "":
        answer.problem(422)  # an empty body is one without fields
    else:
        answer.problem(400)
    assert api.transcript(session) == []


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xfe",
        b'{"messages":[{"role":"user","content":"\xe9"}]}',
        '{"messages":[]}'.encode("utf-16"),
        b"\xed\xa0\x80",
        b"\x80",
    ],
)
def test_what_is_not_utf_8_is_a_400(api, raw):
    api.post(f"{api.session()}/messages/", raw=raw).problem(400)


def test_a_byte_order_mark_is_no_fault(api):
    session = api.session()
    api.post(
        f"{session}/messages/", raw=b"\xef\xbb\xbf" + b'{"messages":[{"role":"user","content":"x"}]}'
    ).expect(201)
    assert stored_text(api, session) == '"x"'


def test_what_is_nested_deeply_is_refused_or_works_to_the_end(api):
    """There is no depth at which a message is stored and cannot be sent."""

    @functools.cache
    def at_depth(n: int) -> int:
        session = api.session(f"d{n}", tools=TOOLS)
        deep = '{"a":' * n + "1" + "}" * n
        said = f'{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"t","input":{deep}}}]}}'
        answer = api.post(f"{session}/messages/", raw=BODY.format(said))
        if answer.status != 201:
            answer.problem(400)
            return 400
        assert deep in api.get(f"{session}/messages/").text
        built = api.post(f"{session}/requests/", {"messages": [results("c"), user("go on")]}).expect(200)
        assert deep in built.text
        assert api.get(f"{session}/turns/1/request/").expect(200)["digest"] == built["digest"]
        api.get(f"{session}/history/").expect(200)
        return 201

    low, high = 10, 2000
    assert at_depth(low) == 201
    assert at_depth(high) == 400
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at_depth(middle) == 201 else (low, middle)
    assert {at_depth(n) for n in range(low - 25, low)} <= {201, 400}


def test_what_a_call_could_store_a_worker_with_a_deeper_stack_can_read(api, work):
    def deeper(frames: int) -> list[str]:
        return deeper(frames - 1) if frames else [job.status for job in work()]

    session, n = api.session(tools=TOOLS, limits=SMALL), 1000
    while n := n - 1:
        deep = '{"a":' * n + "1" + "}" * n
        said = f'{{"role":"user","content":"go"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"t","input":{deep}}}]}}'
        if api.post(f"{session}/messages/", raw=BODY.format(said)).status == 201:
            break
    api.say(session, results("c"), *chat(8))
    api.post(f"{session}/compactions/", {}).expect(202)
    assert deeper(40) == ["ready"]


def test_a_tool_definition_that_is_nested_deeply_is_refused_or_works(api):
    for n in (50, 300, 700, 850, *range(900, 1000, 7)):
        deep = '{"a":' * n + "1" + "}" * n
        raw = f'{{"id":"d{n}","model":"m","tools":[{{"name":"t","input_schema":{deep}}}],"metadata":{deep}}}'
        answer = api.post("/sessions/", raw=raw)
        assert answer.status in (201, 400), n
        if answer.status == 201:
            api.get(f"/sessions/d{n}/").expect(200)
            api.say(f"/sessions/d{n}", user())
            api.post(f"/sessions/d{n}/requests/", {}).expect(200)


def test_a_body_over_the_limit_is_a_413(api, settings):
    session = api.session()
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2000
    answer = api.post(f"{session}/messages/", {"messages": [user("x" * 3000)]})
    answer.problem(413)
    assert api.transcript(session) == []
    api.say(session, user("x" * 100))


def test_a_large_body_under_the_limit_is_stored(api):
    session = api.session()
    api.say(session, user("x" * 3_000_000))
    assert len(api.transcript(session)[0]["content"]) == 3_000_000


# --- broken, but well-formed

BROKEN = [
    ("a result without its call", [user("go"), results("ghost")], 1, "R12"), ("a call without its result", [user("go"), calls("c"), user("never mind")], 2, "R11"),
    ("a blank block", [user([{"type": "text", "text": "  "}, {"type": "text", "text": "x"}])], 0, "R4"), ("a blank message", [user("")], 0, "R4"),
    ("no content", [user("x"), assistant([])], 1, "R4"), ("two results of one call", [user("go"), calls("c"), results("c", "c")], 2, "R13"),
    ("an id that comes again", [user("go"), calls("c"), results("c"), calls("c"), results("c")], 3, "R10"),
    ("the assistant first", [assistant("hello"), user("hi")], 0, "R2"), ("a call whose input is text", [user("go"), assistant([{"type": "tool_use", "id": "c", "name": "t", "input": "{}"}]), results("c")], 1, "R17"),
    ("a lone surrogate", [user("x\ud800")], 0, "surrogate"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "seq", "rule"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_transcript_is_stored_as_it_is_and_told(api, said, seq, rule):
    session = api.session(tools=TOOLS)
    appended = api.say(session, *said)
    assert [m["seq"] for m in appended["appended"]] == list(range(len(said)))
    assert any(w["seq"] == seq and rule in w["rule"] for w in appended["warnings"])
    assert [{"role": m["role"], "content": m["content"]} for m in api.transcript(session)] == said


@pytest.mark.parametrize(("said", "seq", "rule"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_the_request_of_a_broken_transcript_is_repaired_and_says_so(api, said, seq, rule):
    session = api.session(tools=TOOLS)
    before = api.say(session, *said, user("go on"))
    raw = api.get(f"{session}/messages/").raw
    built = api.build(session)
    assert any(rule in r["rule"] for r in built["repairs"])
    assert before["next_seq"] == len(said) + 1
    assert api.get(f"{session}/messages/").raw == raw


@pytest.mark.parametrize(("said", "seq", "rule"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_strict_session_refuses_what_is_broken(api, said, seq, rule):
    session = api.session(tools=TOOLS, strict=True)
    answer = api.post(f"{session}/messages/", {"messages": said})
    assert f"/messages/{seq}" in answer.pointers()
    assert any(rule in e["detail"] for e in answer["errors"])
    assert api.transcript(session) == []


def test_a_strict_session_takes_a_healthy_round_over_several_appends(api):
    session = api.session(tools=TOOLS, strict=True)
    for said in (
        [user("go")],
        [calls("a", "b")],
        [results("a")],
        [results("b")],
        [assistant("done")],
        [user("thanks")],
    ):
        assert api.say(session, *said)["warnings"] == []


def test_a_call_that_still_waits_for_its_result_is_no_fault(api):
    session = api.session(tools=TOOLS)
    assert api.say(session, user("go"), calls("c"))["warnings"] == []
    assert api.say(session, results("c"))["warnings"] == []


# --- what an append expects and names


def test_expected_seq_that_is_the_next_one_is_stored(api):
    session = api.session()
    for seq in range(3):
        api.post(f"{session}/messages/", {"messages": [user()], "expected_seq": seq}).expect(201)


@pytest.mark.parametrize("expected", [0, 1, 3, 10**30])
def test_expected_seq_that_is_not_the_next_one_is_a_409_that_tells_it(api, expected):
    session = api.session()
    api.say(session, user("one"), assistant("two"))
    answer = api.post(f"{session}/messages/", {"messages": [user("x")], "expected_seq": expected})
    found = answer.problem(409)
    assert found["next_seq"] == 2
    assert "2" in found["detail"]
    assert len(api.transcript(session)) == 2


def test_a_client_id_is_stored_once(api):
    session = api.session()
    first = api.say(session, user("one", client_id="a"), assistant("two", client_id="b"))
    again = api.say(
        session, user("one", client_id="a"), assistant("two", client_id="b"), user("three", client_id="c")
    )
    assert [m["seq"] for m in again["appended"]] == [0, 1, 2]
    assert again["next_seq"] == 3
    assert first["appended"][0]["client_id"] == "a"
    assert [m["content"] for m in api.transcript(session)] == ["one", "two", "three"]


def test_a_client_id_twice_in_one_append_is_stored_once(api):
    session = api.session()
    assert [
        m["seq"] for m in api.say(session, user("x", client_id="a"), user("x", client_id="a"))["appended"]
    ] == [0, 0]
    assert Message.objects.count() == 1


@pytest.mark.parametrize(
    "other",
    [
        user("another", client_id="a"),
        assistant("one", client_id="a"),
        user([{"type": "text", "text": "one"}], client_id="a"),
    ],
)
def test_a_client_id_of_another_message_is_a_409_and_nothing_is_stored(api, other):
    session = api.session()
    api.say(session, user("one", client_id="a"))
    found = api.post(f"{session}/messages/", {"messages": [user("new"), other]}).problem(409)
    assert "'a'" in found["detail"]
    assert len(api.transcript(session)) == 1


def test_a_client_id_is_the_sessions_own(api):
    for name in ("one", "two"):
        api.say(api.session(name), user(name, client_id="a"))
    assert [m["content"] for m in api.transcript("/sessions/two")] == ["two"]


@pytest.mark.parametrize(
    "content", ["keep this", [{"type": "text", "text": "keep"}, {"type": "text", "text": "this"}]]
)
def test_a_users_text_can_be_pinned_and_stays_word_for_word(api, work, content):
    session = api.session(limits=SMALL)
    api.say(session, user(content, pinned=True), assistant("noted"), *chat(8))
    api.post(f"{session}/compactions/", {}).expect(202)
    assert [job.status for job in work()] == ["ready"]
    built = api.build(session)
    assert built["coverage"]["summarised"][0] == 0
    assert all(word in json.dumps(built["request"]) for word in ("keep", "this"))
    assert api.transcript(session)[0]["pinned"] is True


def test_compaction_leaves_the_transcript_as_it_was(api, work):
    session = api.session(limits=SMALL)
    api.say(session, *chat(12))
    before = api.get(f"{session}/messages/?limit=1000").raw
    api.post(f"{session}/compactions/", {}).expect(202)
    work()
    api.build(session)
    assert api.get(f"{session}/messages/?limit=1000").raw == before

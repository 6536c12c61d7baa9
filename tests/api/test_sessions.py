"""Sessions: created as they were given, changed field by field, listed, erased."""

from __future__ import annotations

import json

import pytest
from django.core.files.storage import storages

from compaction import offload, tasks
from compaction.engine.types import digest_of
from compaction.models import Compaction, Frame, Turn
from sessions_app.models import IdempotentAnswer, Message, Session, Tombstone, ToolCallId
from tests.api.client import MODEL, SMALL, TOOLS, calls, chat, label, members, path_of, prose, results, user

FIELDS = {
    "id", "model", "system", "tools", "max_tokens", "limits", "summarizer_model", "compact_tool", "strict", "memory_placement",
    "metadata", "last_input_tokens", "compactions", "budget",
}  # fmt: skip


def test_a_session_needs_a_model_and_nothing_else(api):
    made = api.post("/sessions/", {"model": MODEL}).expect(201)
    assert set(made.json) >= FIELDS
    assert (made["model"], made["last_input_tokens"], made["compactions"]) == (MODEL, 0, 0)
    assert set(made["budget"]) == {"input_tokens", "window", "trigger", "precompute_at", "source"}
    assert api.get(f"/sessions/{made['id']}/").expect(200).json == made.json


def test_two_sessions_without_an_id_get_different_ones(api):
    one, two = (api.post("/sessions/", {"model": MODEL}).expect(201)["id"] for _ in range(2))
    assert one != two


def test_without_a_model_the_problem_names_it(api):
    assert api.post("/sessions/", {}).pointers() == ["/model"]


@pytest.mark.parametrize("name", ["a", "A9", "s-1.2_x", "0" * 128, "a..b", "a."])
def test_the_client_may_choose_the_id(api, name):
    assert api.post("/sessions/", {"id": name, "model": MODEL}).expect(201)["id"] == name
    assert api.get(f"/sessions/{name}/").expect(200)["id"] == name


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "a b", " a", "a ", "a\n", "../x", "..", ".", ".hidden", "-a", "_a", "a/b", "a\\b", "/etc/passwd", "a" * 129,
        "a\x00", "\x00", "é", "a\u202e", "%2e%2e", "a%00", 5, True, [], {}, None, "\ud800",
    ],
)  # fmt: skip
def test_any_other_id_is_a_400(api, name):
    api.post("/sessions/", {"id": name, "model": MODEL}).problem(400)
    assert not Session.objects.exists()


def test_an_id_that_is_taken_is_a_409_and_the_first_session_stays(api):
    api.session("s", metadata={"first": True})
    api.post("/sessions/", {"id": "s", "model": "other"}).problem(409)
    assert api.get("/sessions/s/")["model"] == MODEL


def test_two_projects_may_use_the_same_id(api, other):
    api.session("s")
    other.session("s", system="theirs")
    assert api.get("/sessions/s/")["system"] is None


def test_all_fields_come_back_as_they_were_given(api):
    given = {
        "id": "s", "model": "claude-sonnet-4-5", "system": "Be brief.", "tools": TOOLS, "max_tokens": 1234,
        "limits": {
            "max_input_tokens": 50000, "max_output_tokens": 2000, "max_trigger_tokens": 30000, "trigger_frac": 0.8, "keep_frac": 0.2,
            "precompute_frac": 0.6, "tool_arg_max_tokens": 300, "summary_max_tokens": 900, "max_wait_s": 1.5,
            "state_tools": ["todo_write"], "redact": ["sk-[a-z]+"],
        },
        "summarizer_model": "claude-haiku-4-5", "compact_tool": True, "strict": True, "memory_placement": "message",
        "metadata": {"user": {"id": 7}},
    }  # fmt: skip
    made = api.post("/sessions/", given).expect(201)
    assert {name: made[name] for name in given} == given
    again = api.get("/sessions/s/").expect(200)
    assert {name: again[name] for name in given} == given


@pytest.mark.parametrize(
    "text",
    [
        '"plain"', '"\\u00e9 é \\u0000 \\ud83d\\ude00 \\/"', '[{"type":"text","text":"a"}]',
        '[ {"text":"b", "type":"text", "cache_control":{"type":"ephemeral"}} ]',
    ],
)  # fmt: skip
def test_the_system_prompt_is_text_or_blocks_and_keeps_its_bytes(api, text):
    api.post("/sessions/", raw=f'{{"id":"s","model":"m","system":{text}}}').expect(201)
    assert text in api.get("/sessions/s/").text


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1.0,"a":1e2,"c":1E-7,"d":-0,"e":12345678901234567890,"f":0.10}', '{ "z" : [ 1 , 2.50 ] , "y" : null }',
        '{"é":"\\u00e9","\\u0000":"\\ud800","😀":"\\ud83d\\ude00"}', '{"__proto__":{},"constructor":1}', "{}",
    ],
)  # fmt: skip
def test_metadata_keeps_its_bytes(api, text):
    """Number forms, key order, spaces and escapes are the client's own."""
    made = api.post("/sessions/", raw=f'{{"id":"s","model":"m","metadata":{text}}}').expect(201)
    assert f'"metadata":{text}' in made.text
    assert f'"metadata":{text}' in api.get("/sessions/s/").text


def test_tools_keep_their_bytes(api):
    text = '[{"input_schema":{"type":"object","properties":{"n":{"maximum":1e2,"default":1.0}}},"name":"t","description":"\\u00e9"}]'
    api.post("/sessions/", raw=f'{{"id":"s","model":"m","tools":{text}}}').expect(201)
    assert api.get("/sessions/s/").member("tools") == text


BAD_FIELDS = [
    ("model", ""), ("model", None), ("model", []), ("model", "m" * 201), ("model", "\x00"), ("model", "\ud800"), ("system", 5), ("system", {}),
    ("system", [{"type": "image"}]), ("system", ["text"]), ("system", [{"type": "text"}]), ("tools", {}), ("tools", ["t"]),
    ("tools", [{"description": "no name"}]), ("tools", [{"name": "two words"}]), ("tools", [{"name": "t"}, {"name": "t"}]),
    ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", "many"), ("max_tokens", 10**12), ("limits", []), ("limits", 3),
    ("summarizer_model", []), ("summarizer_model", "m" * 201), ("compact_tool", "maybe"), ("strict", "maybe"), ("strict", None),
    ("memory_placement", "footer"), ("metadata", []), ("metadata", "text"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_FIELDS, ids=label)
def test_a_bad_field_is_named_at_creation_and_at_a_change(api, name, value):
    session = api.session("there")
    for answer in (
        api.post("/sessions/", {"id": "s", "model": MODEL, name: value}),
        api.patch(f"{session}/", {name: value}),
    ):
        assert any(p == f"/{name}" or p.startswith(f"/{name}/") for p in answer.pointers())
    assert Session.objects.count() == 1


BAD_LIMITS = [
    ("max_input_tokens", 0), ("max_input_tokens", "8k"), ("max_input_tokens", 10**12), ("max_output_tokens", 0), ("max_trigger_tokens", 0),
    ("trigger_frac", 0), ("trigger_frac", 1.5), ("trigger_frac", "high"), ("keep_frac", -0.1), ("keep_frac", 2), ("precompute_frac", 7),
    ("tool_arg_max_tokens", 0), ("summary_max_tokens", 0), ("max_wait_s", -1), ("state_tools", "todo"), ("state_tools", [""]),
    ("redact", ["x"] * 21), ("redact", "x"), ("nonsense", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_LIMITS, ids=label)
def test_a_bad_limit_is_named(api, name, value):
    session = api.session("there", limits={"keep_frac": 0.3})
    for answer in (
        api.post("/sessions/", {"id": "s", "model": MODEL, "limits": {name: value}}),
        api.patch(f"{session}/", {"limits": {name: value}}),
    ):
        assert any(p.startswith(f"/limits/{name}") for p in answer.pointers())
    assert api.get(f"{session}/")["limits"] == {"keep_frac": 0.3}


def test_every_fault_is_named_at_once(api):
    answer = api.post(
        "/sessions/", {"model": "", "max_tokens": 0, "limits": {"keep_frac": 7, "max_wait_s": -1}}
    )
    assert set(answer.pointers()) == {"/model", "/max_tokens", "/limits/keep_frac", "/limits/max_wait_s"}


def test_precompute_frac_null_turns_the_background_work_off(api):
    session = api.session(limits={"precompute_frac": None})
    assert api.get(f"{session}/")["limits"] == {"precompute_frac": None}
    assert api.get(f"{session}/")["budget"]["precompute_at"] is None


def test_the_budget_follows_the_limits(api):
    session = api.session(limits={"max_input_tokens": 20_000})
    before = api.get(f"{session}/")["budget"]
    assert before["window"] == 20_000
    assert 0 < before["precompute_at"] < before["trigger"] < before["window"]
    assert before["source"] == "estimate"
    after = api.patch(f"{session}/", {"limits": {"max_input_tokens": 40_000}}).expect(200)["budget"]
    assert after["window"] == 40_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "claude-opus-4-5"), ("system", "New."), ("system", [{"type": "text", "text": "New."}]), ("system", None), ("tools", TOOLS),
        ("tools", None), ("max_tokens", 77), ("max_tokens", None), ("limits", {"keep_frac": 0.2}), ("limits", {}),
        ("summarizer_model", "small"), ("summarizer_model", None), ("compact_tool", True), ("strict", True),
        ("memory_placement", "message"), ("metadata", {"a": 1.5}), ("metadata", {}),
    ],
)  # fmt: skip
def test_each_field_can_be_changed_alone(api, name, value):
    given = {
        "system": "Old.", "tools": [{"name": "old", "input_schema": {"type": "object"}}], "max_tokens": 9, "limits": {"max_wait_s": 1},
        "summarizer_model": "old", "metadata": {"old": True},
    }  # fmt: skip
    session = api.session(**given)
    before = api.get(f"{session}/").json
    after = api.patch(f"{session}/", {name: value}).expect(200).json
    assert after[name] == value
    assert api.get(f"{session}/").json == after
    assert {k: v for k, v in after.items() if k not in (name, "budget")} == {
        k: v for k, v in before.items() if k not in (name, "budget")
    }


def test_a_change_keeps_bytes_too(api):
    session = api.session()
    assert (
        '"metadata":{"b":1.0,"a":1e2}'
        in api.patch(f"{session}/", raw='{"metadata": {"b":1.0,"a":1e2}}').expect(200).text
    )


def test_the_id_cannot_be_changed(api):
    session = api.session()
    assert api.patch(f"{session}/", {"id": "t"}).pointers(400) == ["/id"]
    assert api.get(f"{session}/").expect(200)["id"] == "s"


def test_an_unknown_field_is_refused(api):
    api.session("there")
    for answer in (
        api.post("/sessions/", {"model": MODEL, "modle": 1}),
        api.patch("/sessions/there/", {"modle": 1}),
    ):
        assert 400 <= answer.status < 500
        assert answer.pointers(answer.status) == ["/modle"]


def test_an_empty_change_changes_nothing(api):
    session = api.session(system="s")
    before = api.get(f"{session}/").json
    assert api.patch(f"{session}/", {}).expect(200).json == before


def test_the_list_is_paged_newest_first_and_holds_each_session_once(api, other):
    for i in range(7):
        api.session(f"s{i}")
    other.session("hidden")
    seen, path = [], "/sessions/?limit=3"
    while path:
        page = api.get(path).expect(200)
        assert len(page["results"]) <= 3
        seen += [s["id"] for s in page["results"]]
        path = path_of(page["next"])
    assert seen == [f"s{i}" for i in reversed(range(7))]


def test_sessions_added_while_paging_move_nothing(api):
    for i in range(4):
        api.session(f"s{i}")
    first = api.get("/sessions/?limit=2")
    api.session("late")
    second = api.get(path_of(first["next"]))
    assert [s["id"] for s in (*first["results"], *second["results"])] == ["s3", "s2", "s1", "s0"]


def test_a_listed_session_is_the_whole_session(api):
    session = api.session(metadata={"a": 1})
    assert api.get("/sessions/")["results"] == [api.get(f"{session}/").json]
    assert members(api.get("/sessions/").text).keys() >= {"results", "next"}


def test_a_cursor_that_is_none_is_a_4xx(api):
    api.session()
    answer = api.get("/sessions/?cursor=nonsense")
    answer.problem(answer.status)
    assert 400 <= answer.status < 500


# --- erasing


def _lived(api, work, name="s"):
    """A session with a transcript, turns, a compaction and a history file."""
    session = api.session(name, system=f"secret of {name}", tools=TOOLS, limits=SMALL)
    api.say(session, *chat(8), calls("c1", "c2"), results("c1", "c2"))
    api.build(session, memory=f"memory of {name}")
    api.complete(session, 1).expect(200)
    api.say(session, user("more"))
    api.post(f"{session}/compactions/", {}).expect(202)
    assert [job.status for job in work()] == ["ready"]
    api.build(session)
    return session


def test_erasing_leaves_nothing_behind(api, work, history_folder):
    session = _lived(api, work)
    files = [p for p in history_folder.rglob("*") if p.is_file()]
    assert len(files) == 1
    cid = api.get(f"{session}/compactions/")["results"][0]["id"]
    answer = api.delete(f"{session}/").expect(204)
    assert answer.raw == b""
    assert not [p for p in history_folder.rglob("*") if p.is_file()]
    for model in (Session, Message, Turn, Compaction, ToolCallId):
        assert not model.objects.exists()
    for path in ("", "messages/", "history/", "compactions/", f"compactions/{cid}/", "turns/1/request/"):
        api.get(f"{session}/{path}").problem(404)
    api.delete(f"{session}/").problem(404)
    assert api.get("/sessions/")["results"] == []


def test_erasing_leaves_no_text_of_the_session_in_any_frame(api, work):
    """A frame holds system, tools and memory; one that another session shares stays."""
    session = _lived(api, work)
    kept = api.session("kept", system="shared")
    api.session("gone", system="shared")
    for path in (kept, "/sessions/gone"):
        api.say(path, user())
        api.build(path)
    api.delete(f"{session}/").expect(204)
    assert not Frame.objects.filter(body__contains="secret of s").exists()
    assert not Frame.objects.filter(body__contains="memory of s").exists()
    api.delete("/sessions/gone/").expect(204)
    assert api.get(f"{kept}/turns/1/request/").expect(200)["request"]["system"]


def test_erasing_one_session_leaves_the_others(api, work, history_folder):
    one, two = _lived(api, work, "one"), _lived(api, work, "two")
    before = api.get(f"{two}/messages/").raw, api.get(f"{two}/history/").raw
    api.delete(f"{one}/").expect(204)
    assert (api.get(f"{two}/messages/").raw, api.get(f"{two}/history/").raw) == before
    assert len([p for p in history_folder.rglob("*.md") if p.is_file()]) == 1


def test_a_session_made_again_under_the_id_begins_empty(api, work):
    session = _lived(api, work)
    api.delete(f"{session}/").expect(204)
    api.session()
    assert api.transcript(session) == []
    assert api.get(f"{session}/compactions/")["results"] == []
    assert prose(50)[:20] not in api.get(f"{session}/history/").text
    assert api.get(f"{session}/")["compactions"] == 0
    assert api.say(session, user("anew"))["appended"][0]["seq"] == 0
    assert api.build(session)["turn"] == 1


def test_a_summary_under_way_brings_nothing_back(api, work, provider, history_folder):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    api.post(f"{session}/compactions/", {}).expect(202)
    provider.during = lambda call: api.delete(f"{session}/").expect(204)
    with pytest.raises(Exception, match="erased"):
        work()
    for model in (Session, Message, Compaction):
        assert not model.objects.exists()
    assert not [p for p in history_folder.rglob("*") if p.is_file()]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_erasure_while_the_history_file_is_written_leaves_no_file(
    api, work, history_folder, monkeypatch, when
):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    api.post(f"{session}/compactions/", {}).expect(202)
    write = offload._write_atomically

    def erased_meanwhile(path, text):
        steps = [lambda: write(path, text), lambda: api.delete(f"{session}/").expect(204)]
        for step in steps if when == "after" else reversed(steps):
            step()

    monkeypatch.setattr(offload, "_write_atomically", erased_meanwhile)
    with pytest.raises(Exception, match="erased"):
        work()
    assert not [p for p in history_folder.rglob("*") if p.is_file()]


def test_a_file_that_the_storage_does_not_delete_goes_with_a_later_sweep(
    api, work, history_folder, monkeypatch
):
    session = _lived(api, work)
    (file,) = [p for p in history_folder.rglob("*") if p.is_file()]
    storage = storages["history"]
    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "delete", _away)
        api.delete(f"{session}/").expect(204)
        assert api.get(f"{session}/").status == 404
        tasks.sweep()
        assert file.exists()
        assert str(file).endswith(Tombstone.objects.get().object_name)
    tasks.sweep()
    assert not file.exists()
    assert Tombstone.objects.get().object_name == ""


def _away(self, name):
    raise ConnectionError("the storage is away")


def test_an_erasure_leaves_a_record_without_content(api, work):
    session = _lived(api, work)
    counted = len(api.transcript(session))
    api.delete(f"{session}/").expect(204)
    row = Tombstone.objects.get()
    assert (row.reason, row.messages, row.project.name) == ("request", counted, "ours")
    assert row.turns >= 1
    assert row.compactions >= 1
    assert api.key.startswith(row.by)
    assert len(row.by) <= 12
    assert row.public_id_digest == digest_of("s")
    told = str(Tombstone.objects.values().get())
    assert "secret of s" not in told


def test_what_an_idempotency_key_remembers_is_erased_with_its_session(api):
    api.post("/sessions/", {"id": "s", "model": MODEL, "system": "secret of s"}, Idempotency_Key="a").expect(
        201
    )
    api.post("/sessions/s/messages/", {"messages": [user()]}, Idempotency_Key="b").expect(201)
    other = api.post("/sessions/", {"model": MODEL}, Idempotency_Key="c").expect(201)
    assert IdempotentAnswer.objects.count() == 3
    api.delete("/sessions/s/").expect(204)
    assert IdempotentAnswer.objects.get().key == "c"
    assert api.post("/sessions/", {"model": MODEL}, Idempotency_Key="c").expect(201)["id"] == other["id"]
    assert (
        api.post("/sessions/", {"id": "s", "model": MODEL}, Idempotency_Key="a").expect(201)["system"] is None
    )


def test_an_erased_session_frees_its_id_in_an_instant(api):
    for _ in range(3):
        api.delete(f"{api.session()}/").expect(204)


def test_the_bodys_limit_texts_survive_json(api):
    """What a client reads back it can send again."""
    made = api.post(
        "/sessions/", {"id": "s", "model": MODEL, "limits": {"trigger_frac": 0.8, "max_wait_s": 0}}
    ).expect(201)
    again = json.loads(made.member("limits"))
    api.patch("/sessions/s/", {"limits": again}).expect(200)

"""A whole session as JSON Lines."""

import json

import pytest

from compaction import export
from tests.api.client import SMALL, chat, user

KINDS = ["session", "frame", "message", "turn", "compaction", "end"]


@pytest.fixture
def lived(api, work):
    session = api.session(limits=SMALL, system="Be careful.")
    api.say(session, *chat(8))
    api.post(f"{session}/compactions/", {}).expect(202)
    work()
    api.say(session, {"role": "user", "content": "odd \ud800 text", "client_id": "c-1", "pinned": True})
    api.build(session)
    return session


def lines(answer):
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.raw.decode().splitlines()]


def test_everything_is_in_it_in_order(api, lived):
    found = lines(api.get(f"{lived}/export/").expect(200))
    kinds = [line["type"] for line in found]
    assert list(dict.fromkeys(kinds)) == KINDS
    assert found[0] | {"type": "session", "format": 1} == found[0]
    assert found[0]["system"] == "Be careful."
    messages = [line for line in found if line["type"] == "message"]
    stored = api.transcript(lived)
    assert [m["content"] for m in messages] == [m["content"] for m in stored]
    assert [m["seq"] for m in messages] == list(range(len(stored)))
    assert messages[-1]["pinned"]
    (turn,) = [line for line in found if line["type"] == "turn"]
    assert turn["digest"] == api.get(f"{lived}/turns/1/request/")["digest"]
    (made,) = [line for line in found if line["type"] == "compaction"]
    assert made["summary"]
    assert found[-1] == {"type": "end", "messages": len(stored), "turns": 1, "compactions": 1}


def test_contents_are_the_bytes_that_were_sent(api, lived):
    api.post(
        f"{lived}/messages/",
        raw='{"messages":[{"role":"user","content":[{"text" : "caf\\u00e9 1.0","type":"text"}]}]}',
    ).expect(201)
    assert '{"text" : "caf\\u00e9 1.0","type":"text"}' in api.get(f"{lived}/export/").text


def test_it_is_read_page_by_page_and_what_comes_later_is_not_in_it(api, lived, monkeypatch):
    from sessions_app.models import Session

    monkeypatch.setattr(export, "PAGE", 3)
    before = len(api.transcript(lived))
    stream = export.lines(Session.objects.get(public_id=lived.rsplit("/", 1)[1]))
    first = next(stream)
    api.say(lived, user("later"))
    found = [json.loads(line) for line in (first, *stream)]
    assert [m["seq"] for m in found if m["type"] == "message"] == list(range(before))
    assert found[-1]["messages"] == before


def test_an_empty_session_is_exported_too(api):
    found = lines(api.get(f"{api.session('empty')}/export/").expect(200))
    assert [line["type"] for line in found] == ["session", "end"]


def test_another_projects_session_is_a_404(api, other, lived):
    other.get(f"{lived}/export/").problem(404)

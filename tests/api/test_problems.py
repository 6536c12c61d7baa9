"""Errors are problems (RFC 9457): what kind, what is wrong, where; and never what happened inside."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from compaction import outgoing
from compaction.engine import errors
from sessions_app import append
from sessions_app.models import Session
from tests.api.client import MODEL, Api, assistant, user

SECRET = "postgres://user:hunter2@db/hango"


@pytest.fixture
def quiet(api) -> Api:
    """Like a server: what a view raises becomes an answer."""
    api.http.raise_request_exception = False
    return api


def broken(error: Exception):
    def fails(*args: object, **kwargs: object) -> None:
        raise error

    return fails


def test_a_problem_has_every_member_of_the_contract(api):
    found = api.post("/sessions/", {"model": ""}).problem(422)
    assert set(found) >= {"type", "title", "status", "detail", "errors"}
    assert found["errors"][0]["pointer"] == "/model"


def test_every_kind_of_error_has_a_type_of_its_own(api):
    session = api.session()
    kinds = {
        api.get("/sessions/none/").problem(404)["type"],
        api.post("/sessions/", {"model": ""}).problem(422)["type"],
        api.post("/sessions/", {"id": "s", "model": MODEL}).problem(409)["type"],
        api.post("/sessions/", raw="{").problem(400)["type"],
        api.call("PUT", "/sessions/").problem(405)["type"],
        Api(None).get("/sessions/").problem(401)["type"],
        api.post("/sessions/", {}, Content_Type="text/plain").problem(415)["type"],
    }
    assert len(kinds) == 7
    assert session


def test_pointers_lead_into_the_body(api):
    body = {"model": MODEL, "limits": {"keep_frac": 7}, "tools": 5}
    for pointer in api.post("/sessions/", body).pointers():
        node: object = body
        for part in pointer.strip("/").split("/"):
            assert isinstance(node, dict)
            node = node[part]


def test_a_key_with_a_slash_is_escaped_in_its_pointer(api):
    answer = api.post("/sessions/", {"model": MODEL, "a/b~c": 1})
    assert answer.pointers(answer.status) == ["/a~1b~0c"]


def test_an_unknown_address_under_the_api_is_a_problem(api):
    for path in (
        "/nonsense/",
        "/sessions/s/nonsense/",
        "/api/v2/sessions/",
        "/sessions/s/turnz/",
        "/sessions/s/turns/1/",
    ):
        api.get(path).problem(404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/sessions/"), ("DELETE", "/sessions/"), ("PATCH", "/sessions/"), ("PUT", "/sessions/s/"), ("POST", "/sessions/s/"),
        ("DELETE", "/sessions/s/messages/"), ("PUT", "/sessions/s/messages/"), ("GET", "/sessions/s/requests/"), ("GET", "/sessions/s/turns/1/complete/"),
        ("POST", "/sessions/s/turns/1/request/"), ("PATCH", "/sessions/s/compactions/"), ("POST", "/sessions/s/history/"), ("DELETE", "/sessions/s/history/"),
        ("TRACE", "/sessions/"), ("FROB", "/sessions/"),
    ],
)  # fmt: skip
def test_a_method_that_is_not_there_is_a_405(api, method, path):
    api.session()
    answer = api.call(method, path)
    answer.problem(405)
    assert answer.headers["Allow"]


@pytest.mark.parametrize(
    "media",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "nonsense",
        "",
    ],
)
@pytest.mark.parametrize(
    "path", ["/sessions/", "/sessions/s/messages/", "/sessions/s/requests/", "/sessions/s/compactions/"]
)
def test_a_body_of_another_media_type_is_a_415(api, media, path):
    api.session()
    api.post(path, {"model": MODEL}, Content_Type=media).problem(415)
    assert Session.objects.count() == 1


def test_json_of_a_named_charset_is_taken(api):
    api.post("/sessions/", {"model": MODEL}, Content_Type="application/json; charset=utf-8").expect(201)


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json", "application/json, application/problem+json, text/markdown"]
)
def test_a_client_that_names_what_it_accepts_is_answered(api, accept):
    api.get("/sessions/", Accept=accept).expect(200)
    api.get("/sessions/none/", Accept=accept).problem(404)


def test_a_client_that_accepts_nothing_of_ours_still_gets_its_error_as_a_problem(api):
    answer = api.get("/sessions/none/", Accept="image/png")
    answer.problem(answer.status)
    assert answer.status in (404, 406)


# --- inside


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SECRET),
        ValueError(SECRET),
        KeyError("hunter2"),
        AssertionError(SECRET),
        MemoryError(SECRET),
    ],
    ids=repr,
)
def test_what_breaks_inside_is_a_500_without_a_word_of_it(quiet, monkeypatch, error):
    session = quiet.session()
    monkeypatch.setattr(outgoing, "build", broken(error))
    answer = quiet.post(f"{session}/requests/", {"messages": [user()]})
    found = answer.problem(500)
    assert "hunter2" not in answer.text
    assert type(error).__name__ not in answer.text
    assert set(found) == {"type", "title", "status", "detail"}


def test_a_fault_of_hangos_own_tells_no_content(quiet, monkeypatch):
    session = quiet.session()
    monkeypatch.setattr(outgoing, "build", broken(errors.InvalidRequest(f"R4 messages.0: {SECRET}")))
    answer = quiet.post(f"{session}/requests/", {})
    answer.problem(500)
    assert "hunter2" not in answer.text


def test_an_append_that_breaks_leaves_nothing_half_written(quiet, monkeypatch):
    session = quiet.session()
    real = append.append

    def after(*args, **kwargs):
        real(*args, **kwargs)
        raise RuntimeError(SECRET)

    with monkeypatch.context() as patch:
        patch.setattr(append, "append", after)
        quiet.post(f"{session}/messages/", {"messages": [user("a"), assistant("b")]}).problem(500)
    assert quiet.transcript(session) == []
    assert quiet.say(session, user("a"))["appended"][0]["seq"] == 0


def test_a_database_that_is_busy_is_a_503_to_try_again(quiet, monkeypatch):
    session = quiet.session()
    monkeypatch.setattr(append, "append", broken(OperationalError("database is locked: hunter2")))
    answer = quiet.post(f"{session}/messages/", {"messages": [user()]})
    answer.problem(503)
    assert int(answer.headers["Retry-After"]) > 0
    assert "hunter2" not in answer.text


def test_a_database_that_is_away_when_the_key_is_looked_up_is_a_503(quiet, monkeypatch):
    from sessions_app import auth

    monkeypatch.setattr(
        auth.BearerKey, "authenticate", broken(OperationalError("could not connect: hunter2"))
    )
    answer = quiet.get("/sessions/")
    answer.problem(503)
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/sessions/%00/",
        "/sessions/%ff/",
        "/sessions/%ed%a0%80/",
        "/sessions/" + "a" * 5000 + "/",
        "/sessions/😀/",
    ],
)
@pytest.mark.parametrize("rest", ["", "messages/", "history/", "compactions/", "turns/1/request/"])
def test_no_address_is_a_server_error(api, path, rest):
    api.get(path + rest).problem(404)


@pytest.mark.parametrize(
    "query",
    ["limit=%00", "cursor=%00", "cursor=" + "A" * 500, "cursor=%ff", "cursor=cD0lMDA=", "limit=" + "9" * 400],
)
@pytest.mark.parametrize(
    "path", ["/sessions/", "/sessions/s/compactions/", "/sessions/s/messages/", "/sessions/s/history/"]
)
def test_no_query_is_a_server_error(api, path, query):
    api.session()
    answer = api.get(f"{path}?{query}")
    assert answer.status < 500
    if answer.status != 200:
        answer.problem(answer.status)


def test_a_host_that_is_not_ours_is_refused_without_a_trace(quiet):
    answer = quiet.get("/sessions/", Host="evil.example")
    answer.problem(400)
    assert "evil" not in answer.text

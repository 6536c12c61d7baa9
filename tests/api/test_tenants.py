"""One project's sessions do not exist for another, on every route there is: a new route has to be entered here."""

from __future__ import annotations

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from sessions_app.models import ApiKey, IdempotentAnswer, Message, Session
from tests.api.client import MODEL, SMALL, Answer, Api, assistant, calls, chat, user

METHODS = ("get", "post", "put", "patch", "delete")

# (method, route): a body that would be accepted from the owner. Routes without a session are the project's own.
OF_A_SESSION: dict[tuple[str, str], object] = {
    ("get", "sessions/<str:public_id>/"): None,
    ("patch", "sessions/<str:public_id>/"): {"system": "mine now"},
    ("delete", "sessions/<str:public_id>/"): None,
    ("get", "sessions/<str:public_id>/messages/"): None,
    ("post", "sessions/<str:public_id>/messages/"): {"messages": [user("intruder")]},
    ("post", "sessions/<str:public_id>/requests/"): {"messages": [user("intruder")]},
    ("post", "sessions/<str:public_id>/turns/"): {"messages": [{"role": "user", "content": "hi"}]},
    ("post", "sessions/<str:public_id>/turns/<int:number>/complete/"): {
        "message": assistant("intruder"),
        "stop_reason": "end_turn",
        "usage": {},
    },
    ("post", "sessions/<str:public_id>/turns/<int:number>/overflow/"): {"error": {"type": "overflow"}},
    ("get", "sessions/<str:public_id>/turns/<int:number>/request/"): None,
    ("get", "sessions/<str:public_id>/compactions/"): None,
    ("post", "sessions/<str:public_id>/compactions/"): {"summary": "intruder", "kept_from": 2},
    ("get", "sessions/<str:public_id>/compactions/<str:cid>/"): None,
    ("delete", "sessions/<str:public_id>/compactions/<str:cid>/"): None,
    ("get", "sessions/<str:public_id>/history/"): None,
    ("get", "sessions/<str:public_id>/export/"): None,
}
OF_THE_PROJECT: dict[tuple[str, str], object] = {
    ("get", "sessions/"): None,
    ("post", "sessions/"): {"id": "new", "model": MODEL},
}
TABLE = OF_A_SESSION | OF_THE_PROJECT


def routes() -> set[tuple[str, str]]:
    """(method, route) of everything under /api/v1/, from the resolver itself."""

    def walk(patterns: list[URLPattern | URLResolver], prefix: str) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for pattern in patterns:
            route = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                found |= walk(pattern.url_patterns, route)
            elif route.startswith("api/v1/"):
                view = pattern.callback.view_class  # type: ignore[attr-defined]
                found |= {
                    (method, route.removeprefix("api/v1/")) for method in METHODS if hasattr(view, method)
                }
        return found

    return walk(get_resolver().url_patterns, "")


@pytest.fixture
def theirs(other: Api) -> dict[str, object]:
    """Another project's session, with a turn, a compaction and a history; the route's parameters that lead to it."""
    session = other.session("theirs", system="top secret", limits=SMALL)
    other.say(session, *chat(8))
    done = other.post(f"{session}/compactions/", {"summary": "Their secret notes.", "kept_from": 6}).expect(
        201
    )
    other.build(session, memory="their secret memory")
    return {"<str:public_id>": "theirs", "<int:number>": 1, "<str:cid>": done["id"]}


def at(route: str, parameters: dict[str, object]) -> str:
    for name, value in parameters.items():
        route = route.replace(name, str(value))
    return f"/{route}"


def everything(client: Api) -> list[bytes]:
    """All that the project can read of its session."""
    paths = ["", "messages/", "history/", "compactions/", "turns/1/request/"]
    return [client.get(f"/sessions/theirs/{path}").expect(200).raw for path in paths]


def test_every_route_is_in_the_table():
    assert routes() == set(TABLE)


@pytest.mark.parametrize(("method", "route"), sorted(OF_A_SESSION))
def test_another_projects_session_is_a_404_that_tells_nothing(api, other, theirs, method, route):
    before = everything(other)
    answer = api.call(method.upper(), at(route, theirs), OF_A_SESSION[method, route])
    never = api.call(
        method.upper(), at(route, {**theirs, "<str:public_id>": "never-was"}), OF_A_SESSION[method, route]
    )
    answer.problem(404)
    assert (answer.status, _content(answer), answer.headers["Content-Type"]) == (
        never.status,
        _content(never),
        never.headers["Content-Type"],
    )
    assert "secret" not in answer.text
    assert everything(other) == before


@pytest.mark.parametrize(("method", "route"), sorted(OF_A_SESSION))
def test_a_body_that_is_wrong_tells_nothing_either(api, theirs, method, route):
    """Whatever is looked at first, the answer is the same as for a session that never was."""
    for body in ({"nonsense": 1}, [], {"messages": 5, "message": 5, "limits": 5, "kept_from": -1}):
        pair = [
            api.call(method.upper(), at(route, {**theirs, "<str:public_id>": name}), body)
            for name in ("theirs", "never-was")
        ]
        assert pair[0].status == pair[1].status
        assert _content(pair[0]) == _content(pair[1])


@pytest.mark.parametrize(("method", "route"), sorted(OF_A_SESSION))
def test_the_owner_gets_another_answer(other, theirs, method, route):
    """The calls above are good ones: only the key is wrong."""
    assert other.call(method.upper(), at(route, theirs), OF_A_SESSION[method, route]).status < 300


@pytest.mark.parametrize(
    ("method", "route"), [r for r in sorted(OF_A_SESSION) if "number" in r[1] or "cid" in r[1]]
)
def test_another_projects_turn_or_compaction_is_not_found_under_an_own_session(
    api, other, theirs, method, route
):
    session = api.session("mine", limits=SMALL)
    api.say(session, user("hi"))
    before = everything(other)
    answer = api.call(
        method.upper(), at(route, {**theirs, "<str:public_id>": "mine"}), OF_A_SESSION[method, route]
    )
    answer.problem(404)
    assert everything(other) == before


ODD = [
    "../theirs", "..%2ftheirs", "%2e%2e%2ftheirs", "%2e%2e/theirs", "%252e%252e%252ftheirs", "..%5ctheirs", "theirs%00", "theirs%00.md",
    "%00", "theirs%0a", "theirs%20", "THEIRS", "the\u0456rs", "t%68eirs/../theirs", "theirs;", "theirs%3f", "a" * 5000, "%ff%fe", "*", "%25",
]  # fmt: skip


@pytest.mark.parametrize(("method", "route"), sorted(OF_A_SESSION))
def test_no_spelling_of_an_id_leads_to_another_projects_session_or_out_of_the_tree(
    api, other, theirs, method, route
):
    before = everything(other)
    for odd in ODD:
        for name in ("<str:public_id>", "<str:cid>"):
            path = at(route, {**theirs, name: odd})
            answer = api.call(method.upper(), path, OF_A_SESSION[method, route])
            assert answer.status in (400, 404, 405), (path, answer.status)
            assert "secret" not in answer.text
    assert everything(other) == before


OPEN = {"healthz", "readyz", "api/schema/", "api/docs/", "api/v1/…", "admin/…"}


def test_every_other_address_is_known_and_shows_nothing_of_a_session(other, theirs, client):
    found = set()
    for pattern in get_resolver().url_patterns:
        route = str(pattern.pattern)
        found.add(f"{route}…" if isinstance(pattern, URLResolver) else route)
    assert found == OPEN
    for address in OPEN - {"api/v1/…", "admin/…"}:
        answer = client.get(f"/{address}")
        assert answer.status_code in (200, 503)
        assert b"secret" not in answer.content
    assert client.get("/admin/transcript/session/").status_code == 302  # to the login


def test_an_own_session_of_the_same_id_is_another_one(api, other, theirs):
    before = everything(other)
    session = api.session("theirs", system="ours")
    api.say(session, user("ours"))
    api.build(session)
    api.complete(session, 1).expect(200)
    api.patch(f"{session}/", {"system": "changed"}).expect(200)
    assert "secret" not in api.get(f"{session}/history/").text
    api.delete(f"{session}/").expect(204)
    assert everything(other) == before


def test_the_list_shows_a_projects_own_sessions_only(api, other, theirs):
    api.session("mine")
    assert [s["id"] for s in api.get("/sessions/")["results"]] == ["mine"]
    assert [s["id"] for s in other.get("/sessions/")["results"]] == ["theirs"]


def test_a_page_of_another_projects_list_shows_nothing_of_it(api, other):
    for i in range(4):
        other.session(f"theirs-{i}")
    following = other.get("/sessions/?limit=2")["next"].partition("/api/v1")[2]
    assert api.get(following).expect(200)["results"] == []


def test_an_id_that_is_taken_in_another_project_is_free(api, theirs):
    api.post("/sessions/", {"id": "theirs", "model": MODEL}).expect(201)


def test_an_idempotency_key_of_another_project_is_another_key(api, other):
    """Neither its answer nor the fact that it was used comes out."""
    body = {"id": "s", "model": MODEL}
    for client in (other, api):
        answer = client.post("/sessions/", body, Idempotency_Key="k").expect(201)
        assert "Idempotency-Replayed" not in answer.headers
    assert Session.objects.count() == 2
    assert api.post("/sessions/", {**body, "id": "t"}, Idempotency_Key="k").status == 409
    assert other.post("/sessions/", {**body, "id": "s"}, Idempotency_Key="k").expect(201)


def test_a_client_id_of_another_project_is_another_one(api, other):
    for client, text in ((other, "theirs"), (api, "ours")):
        session = client.session()
        client.say(session, user(text, client_id="c"))
        assert client.transcript(session)[0]["content"] == text


# --- without a key

BAD_HEADERS = [
    None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic dXNlcjpwYXNz", "Token x", "Bearer a b", "Bearer \xe9", "bearer", "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize(("method", "route"), sorted(TABLE))
def test_without_a_good_key_every_call_is_a_401(other, theirs, method, route):
    counts = [model.objects.count() for model in (Session, Message, IdempotentAnswer)]
    for header in BAD_HEADERS:
        headers = {} if header is None else {"Authorization": header}
        for name in ("theirs", "never-was"):
            path = at(route, {**theirs, "<str:public_id>": name})
            answer = Api(None).call(method.upper(), path, TABLE[method, route], **headers)
            answer.problem(401)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert "secret" not in answer.text
    assert [model.objects.count() for model in (Session, Message, IdempotentAnswer)] == counts


def test_a_revoked_key_is_a_401(api):
    api.session()
    ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    api.get("/sessions/").problem(401)


def test_the_scheme_may_be_written_in_any_case(api):
    api.get("/sessions/", Authorization=f"bEaReR {api.key}").expect(200)


def test_a_key_in_the_query_or_a_cookie_opens_nothing(api):
    assert api.key
    Api(None).get(f"/sessions/?key={api.key}&access_token={api.key}").problem(401)
    Api(None).get("/sessions/", Cookie=f"Authorization={api.key}").problem(401)


def test_no_key_is_stored_as_it_is(api):
    assert api.key
    assert all(api.key not in str(vars(row)) for row in ApiKey.objects.all())


def test_someone_logged_in_to_the_admin_still_needs_a_key(api, admin_client):
    assert admin_client.get("/api/v1/sessions/").status_code == 401


def test_an_unknown_route_tells_nothing_about_sessions(api, other, theirs):
    for name in ("theirs", "never-was"):
        api.get(f"/sessions/{name}/nonsense/").problem(404)
        Api(None).get(f"/sessions/{name}/nonsense/").problem(404)


def test_a_session_of_another_project_cannot_be_summarised_into_an_own_one(api, other, theirs):
    session = api.session("mine")
    api.say(session, user("go"), calls("c"))
    answer = api.delete(f"{session}/compactions/{theirs['<str:cid>']}/")
    answer.problem(404)
    assert other.get(f"/sessions/theirs/compactions/{theirs['<str:cid>']}/")["status"] == "ready"


def _content(answer: Answer) -> str:
    return answer.text.replace("never-was", "theirs")

"""The OpenAPI document: valid, complete, and true about what is answered."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from drf_spectacular.validation import validate_schema

from tests.api.client import SMALL, Api, assistant, chat, user
from tests.api.test_tenants import routes


@pytest.fixture
def schema(client) -> dict[str, Any]:
    answer = client.get("/api/schema/?format=json")
    assert answer.status_code == 200
    return answer.json()


def test_it_is_open_and_valid_openapi_3_1(schema):
    assert schema["openapi"].startswith("3.1")
    assert schema["info"]["title"]
    assert schema["info"]["version"]
    validate_schema(schema)


def test_it_is_yaml_unless_asked_for_json(client, schema):
    answer = client.get("/api/schema/")
    assert answer.status_code == 200
    assert yaml.safe_load(answer.content) == schema


def test_making_it_warns_of_nothing(tmp_path):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yaml"))


def test_it_lists_every_route_and_nothing_else(schema):
    listed = {
        (method, path.removeprefix("/api/v1/"))
        for path, item in schema["paths"].items()
        for method in item
        if method in ("get", "post", "put", "patch", "delete")
    }
    assert listed == {(method, re.sub(r"<\w+:(\w+)>", r"{\1}", route)) for method, route in routes()}


def test_every_operation_has_a_name_of_its_own_and_needs_the_key(schema):
    operations = [operation for item in schema["paths"].values() for operation in item.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    schemes = schema["components"]["securitySchemes"]
    assert [(s["type"], s["scheme"]) for s in schemes.values()] == [("http", "bearer")]
    assert all(list(need) == list(schemes) for operation in operations for need in operation["security"])
    assert all(operation["security"] for operation in operations)


def test_every_reference_leads_somewhere(schema):
    def walk(node: object) -> None:
        if isinstance(node, dict):
            if isinstance(ref := node.get("$ref"), str):
                found: Any = schema
                for part in ref.removeprefix("#/").split("/"):
                    found = found[part]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)


def test_answers_are_what_the_document_says(api: Api, schema):
    session = api.session(limits=SMALL)
    seen = {
        ("/api/v1/sessions/{public_id}/", "get", "200"): api.get(f"{session}/").json,
        ("/api/v1/sessions/{public_id}/messages/", "post", "201"): api.say(session, *chat(8)).json,
        ("/api/v1/sessions/{public_id}/messages/", "get", "200"): api.get(f"{session}/messages/").json,
        ("/api/v1/sessions/{public_id}/compactions/", "post", "201"): api.post(
            f"{session}/compactions/", {"wait": True}
        ).json,
        ("/api/v1/sessions/{public_id}/requests/", "post", "200"): api.build(session).json,
        ("/api/v1/sessions/{public_id}/compactions/", "get", "200"): api.get(f"{session}/compactions/").json,
        ("/api/v1/sessions/{public_id}/turns/{number}/request/", "get", "200"): api.get(
            f"{session}/turns/1/request/"
        ).json,
        ("/api/v1/sessions/{public_id}/turns/{number}/overflow/", "post", "200"): api.post(
            f"{session}/turns/1/overflow/", {}
        ).json,
        ("/api/v1/sessions/{public_id}/turns/{number}/complete/", "post", "200"): api.complete(
            session, 1
        ).json,
        ("/api/v1/sessions/", "get", "200"): api.get("/sessions/").json,
    }
    for (path, method, status), body in seen.items():
        media = schema["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
        assert not list(unlike(schema, media, body, path)), path


def unlike(schema: dict[str, Any], said: dict[str, Any], value: Any, at: str):
    """What of an answer is not as the document says: types, required members, members that it does not name."""
    if "$ref" in said:
        said = schema["components"]["schemas"][said["$ref"].rsplit("/", 1)[-1]]
    for part in said.get("allOf", []):
        yield from unlike(schema, part, value, at)
    options = said.get("oneOf") or said.get("anyOf")
    if options:
        if all(list(unlike(schema, option, value, at)) for option in options):
            yield f"{at}: {value!r} is none of the options"
        return
    kinds = said.get("type")
    if kinds is None:
        return
    kinds = [kinds] if isinstance(kinds, str) else kinds
    python = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if not any(isinstance(value, python[kind]) for kind in kinds):
        yield f"{at}: {value!r} is no {kinds}"
    if isinstance(value, dict) and "properties" in said:
        for name in said.get("required", []):
            if name not in value:
                yield f"{at}/{name} is missing"
        for name, inner in value.items():
            if name not in said["properties"]:
                yield f"{at}/{name} is not in the document"
            else:
                yield from unlike(schema, said["properties"][name], inner, f"{at}/{name}")
    if isinstance(value, list) and "items" in said:
        for i, inner in enumerate(value):
            yield from unlike(schema, said["items"], inner, f"{at}/{i}")


def test_bodies_that_the_document_names_are_taken(api: Api, schema):
    session = schema["components"]["schemas"]["SessionFields"]
    assert set(session["properties"]) == {
        "id", "model", "system", "tools", "max_tokens", "limits", "summarizer_model", "compact_tool", "strict", "memory_placement", "metadata",
    }  # fmt: skip
    assert session["required"] == ["model"]


def test_the_history_is_said_to_be_markdown(schema):
    content = schema["paths"]["/api/v1/sessions/{public_id}/history/"]["get"]["responses"]["200"]["content"]
    assert list(content) == ["text/markdown"]


def test_the_document_and_its_pages_need_no_key(client):
    assert client.get("/api/schema/").status_code == 200
    assert client.get("/api/docs/").status_code == 200


def test_liveness_needs_no_key_and_no_database(client):
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readiness_names_database_broker_and_storage(client):
    """The broker of these tests is away."""
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert set(answer.json()) == {"status", "database", "broker", "storage"}
    assert answer.json()["broker"] != "ok"
    assert answer.json()["storage"] == "ok"


def test_every_body_field_of_a_turn_is_in_the_document(schema):
    named = schema["components"]["schemas"]["CompleteBody"]["properties"]
    assert set(named) == {"message", "stop_reason", "usage"}
    assert assistant()
    assert user()

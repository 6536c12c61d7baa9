"""A client of one project: JSON calls whose answers keep their bytes, and messages to send."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from django.test import Client

from tests import judges

MODEL = "test-model"
WORDS = "The quick brown fox jumps over the lazy dog and looks for the next file to read. "


@dataclass(frozen=True)
class Answer:
    """An answer as it came over the wire."""

    status: int
    raw: bytes
    headers: Any

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def __getitem__(self, name: str) -> Any:
        return self.json[name]

    def member(self, name: str) -> str:
        """The exact text of a member of the answer's object."""
        return members(self.text)[name]

    def expect(self, status: int) -> Answer:
        assert self.status == status, (self.status, self.text[:2000])
        return self

    def problem(self, status: int, code: str | None = None) -> dict[str, Any]:
        """The problem, after a look at what RFC 9457 and API.md ask of every one."""
        self.expect(status)
        assert self.headers["Content-Type"] == "application/problem+json"
        found = self.json
        assert found["status"] == status
        assert all(isinstance(found[name], str) and found[name] for name in ("type", "title", "detail"))
        assert all(set(e) >= {"pointer", "detail"} for e in found.get("errors", []))
        if code is not None:
            assert found["type"] == code, found
        return found

    def pointers(self, status: int = 422) -> list[str]:
        return [e["pointer"] for e in self.problem(status)["errors"]]


class Api:
    """Calls under `/api/v1` with one project's key."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.http = Client()

    def call(
        self, method: str, path: str, body: object = None, *, raw: str | bytes | None = None, **headers: str
    ) -> Answer:
        """`body` is sent as JSON, `raw` as it stands; header names with `_` for `-`."""
        sent = raw if raw is not None else "" if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key is not None:
            named.setdefault("Authorization", f"Bearer {self.key}")
        media = named.pop("Content-Type", "application/json")
        path = path if path.startswith("/api/") else f"/api/v1{path}"
        response = self.http.generic(method, path, sent, content_type=media, headers=named)
        content = b"".join(response.streaming_content) if response.streaming else response.content
        return Answer(response.status_code, content, response.headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, **headers)

    def post(
        self, path: str, body: object = None, *, raw: str | bytes | None = None, **headers: str
    ) -> Answer:
        return self.call("POST", path, body, raw=raw, **headers)

    def patch(self, path: str, body: object = None, *, raw: str | bytes | None = None) -> Answer:
        return self.call("PATCH", path, body, raw=raw)

    def delete(self, path: str) -> Answer:
        return self.call("DELETE", path)

    # --- the calls that most tests begin with

    def session(self, id: str = "s", **fields: Any) -> str:  # noqa: A002 - the API's own name
        """A new session's path."""
        self.post("/sessions/", {"id": id, "model": MODEL, **fields}).expect(201)
        return f"/sessions/{id}"

    def say(self, session: str, *messages: dict[str, Any]) -> Answer:
        return self.post(f"{session}/messages/", {"messages": list(messages)}).expect(201)

    def build(self, session: str, **body: Any) -> Answer:
        """A built request that the judges accept and whose digest is that of its bytes."""
        built = self.post(f"{session}/requests/", body).expect(200)
        assert accepted(built.member("request"))
        assert built["digest"] == sha256(built.member("request"))
        return built

    def complete(self, session: str, turn: int, text: str = "done", **body: Any) -> Answer:
        sent = {"message": assistant(text), "stop_reason": "end_turn", "usage": {}, **body}
        return self.post(f"{session}/turns/{turn}/complete/", sent)

    def transcript(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        path = f"{session}/messages/"
        while path:
            page = self.get(path).expect(200)
            found += page["results"]
            path = path_of(page["next"])
        return found


def path_of(url: str | None) -> str:
    """Path and query of a page's `next`."""
    parts = urlsplit(url or "")
    return f"{parts.path}?{parts.query}" if url else ""


def members(text: str) -> dict[str, str]:
    """The exact text of each member of a JSON object, by the standard decoder."""
    decoder, found, at = json.JSONDecoder(), {}, text.index("{") + 1
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        at += 1  # the colon: answers are compact
        assert text[at - 1] == ":"
        _, end = decoder.raw_decode(text, at)
        found[key] = text[at:end]
        at = end + (text[end] == ",")
    return found


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def accepted(request: str) -> bool:
    """The judges' word on a request's bytes; tells why when they refuse it."""
    judges.strict_check(SimpleNamespace(body=lambda: request))  # type: ignore[arg-type]
    return True


# --- messages


def user(content: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def calls(*ids: str, name: str = "read_file", **given: Any) -> dict[str, Any]:
    return assistant([{"type": "tool_use", "id": i, "name": name, "input": given} for i in ids])


def results(*ids: str, text: str = "ok") -> dict[str, Any]:
    return user([{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids])


def prose(tokens: int, mark: str = "") -> str:
    """About so many tokens of text."""
    return mark + WORDS * (tokens // 17 + 1)


def chat(rounds: int, tokens: int = 200) -> list[dict[str, Any]]:
    """A long healthy conversation that ends with the user; every message of about so many tokens."""
    said = [
        m
        for i in range(rounds)
        for m in (user(prose(tokens, f"question {i}. ")), assistant(prose(tokens, f"answer {i}. ")))
    ]
    return [*said, user("and now?")]


SMALL = {"max_input_tokens": 8000, "max_output_tokens": 500, "precompute_frac": None, "max_wait_s": 0}
TOOLS = [{"name": "read_file", "description": "reads", "input_schema": {"type": "object"}}]


def label(value: object) -> str:
    """A test id for any value: its beginning, and a checksum that tells equal beginnings apart."""
    text = json.dumps(value)
    return f"{text[:40]} {zlib.crc32(text.encode()) & 0xFFFF:04x}" if len(text) > 40 else text

"""SIGKILL of the worker while a summary is written: after the lease exactly one compaction, and no message lost."""

import json

import pytest

from tests.acceptance.client import Client, wait_for

pytestmark = pytest.mark.acceptance

LEASE_S = 8


def words(tokens: int, mark: str) -> str:
    return mark + " " + "plain old words about the work " * (tokens // 7)


def test_a_worker_killed_during_a_summary_costs_one_call_and_no_message(start_stack, upstream):
    upstream.control(
        {"match": {"purpose": "summarize"}, "latency_s": 1.5, "reply": "## Goal\nSUMMARY of the work."}
    )
    running = start_stack(
        ANTHROPIC_BASE_URL=upstream.url,
        ANTHROPIC_API_KEY="test",
        HANGO_MODEL_PROFILES=json.dumps(
            {"made-up": {"max_input_tokens": 20_000}, "made-up-large": {"max_input_tokens": 90_000}}
        ),
        HANGO_LEASE_S=str(LEASE_S),
        HANGO_SUMMARY_TIMEOUT_S="5",
        HANGO_WEB_WORKERS="1",
        HANGO_WORKERS="1",
    )
    client = Client(running.url)
    client.call(
        "POST",
        "/sessions/",
        {"id": "kept", "model": "made-up", "summarizer_model": "made-up-large", "max_tokens": 1000},
        201,
    )
    messages = [
        {"role": role, "content": [{"type": "text", "text": words(200, f"M-{2 * n + i}")}]}
        for n in range(40)
        for i, role in enumerate(("user", "assistant"))
    ]
    client.call("POST", "/sessions/kept/messages/", {"messages": messages}, 201)
    wait_for(20, lambda: upstream.log("summarize"))
    (job,) = client.pages("/sessions/kept/compactions/")
    assert job["status"] == "running"

    running.kill("worker")
    late = [{"role": "user", "content": [{"type": "text", "text": "M-80 while nobody works"}]}]
    client.call("POST", "/sessions/kept/messages/", {"messages": late}, 201)
    assert client.pages("/sessions/kept/compactions/")[0]["status"] == "running"
    running.start_worker()

    (ready,) = wait_for(
        30, lambda: [c for c in client.pages("/sessions/kept/compactions/") if c["status"] == "ready"]
    )
    assert ready["id"] == job["id"]
    assert len(client.pages("/sessions/kept/compactions/")) == 1
    calls = upstream.log("summarize")
    assert len(calls) == 2  # the one that died and the one that counts
    assert calls[1]["at"] - calls[0]["at"] >= LEASE_S - 1
    assert calls[0]["request"] == calls[1]["request"]

    stored = client.pages("/sessions/kept/messages/")
    assert [m["seq"] for m in stored] == list(range(81))
    assert [{"role": m["role"], "content": m["content"]} for m in stored] == [*messages, *late]
    # What is not in the summary is in the request, and what is in it is in the history: no message between the two.
    client.call("POST", "/sessions/kept/compactions/", {}, 202)
    history = client.call("GET", "/sessions/kept/history/")
    for n in range(ready["kept_from"]):
        assert history.count(f"M-{n} plain") == 1
    assert f"M-{ready['kept_from']} plain" not in history
    built = client.call("POST", "/sessions/kept/requests/", {})
    shown = json.dumps(built["request"]["messages"])
    if built["compaction"]:
        assert "SUMMARY of the work." in shown
    first = built["coverage"]["verbatim"][0]
    for n in range(first, 80):
        assert f"M-{n} plain" in shown
    assert "M-80 while nobody works" in shown

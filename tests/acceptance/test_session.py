"""A long session end to end: the runtime over HTTP, summaries by the official SDK, every request judged by the upstream."""

import json

import anthropic
import pytest

from tests.acceptance.client import Client, wait_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(200)]

TURNS, WINDOW = 120, 32_000
TOOLS = [
    {
        "name": "read_file",
        "description": "Reads a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
]


def page(tokens: int, mark: str) -> str:
    return f"# {mark}\n" + "\n".join(f"{n:04d} value_{n} = compute(total, {n})" for n in range(tokens // 14))


def test_120_turns_in_a_window_of_32k_every_request_accepted_and_no_build_waits(start_stack, upstream):
    upstream.control(
        {"match": {"purpose": "summarize"}, "latency_s": 0.5, "reply": {"echo_identifiers": True}},
        windows={"made-up": WINDOW, "made-up-small": 100_000},
    )
    running = start_stack(
        ANTHROPIC_BASE_URL=upstream.url,
        ANTHROPIC_API_KEY="test",
        HANGO_MODEL_PROFILES=json.dumps(
            {"made-up": {"max_input_tokens": WINDOW}, "made-up-small": {"max_input_tokens": 100_000}}
        ),
        HANGO_WEB_WORKERS="1",
        HANGO_WORKERS="1",
    )
    client = Client(running.url)
    model = anthropic.Anthropic(api_key="test", base_url=upstream.url, max_retries=0, open_telemetry=False)
    session = {
        "id": "long", "model": "made-up", "max_tokens": 2000, "summarizer_model": "made-up-small", "tools": TOOLS,
        "system": [{"type": "text", "text": "You read a tree and report."}],
    }  # fmt: skip
    client.call("POST", "/sessions/", session, 201)
    said = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Read all of src/ and tell what ORDER-4711 touches."}],
        }
    ]
    new, waited, adopted, largest = list(said), [], [], 0
    for n in range(1, TURNS + 1):
        built = client.call("POST", "/sessions/long/requests/", {"messages": new})
        waited.append(client.waited_ms())
        request = built["request"]
        assert built["budget"]["input_tokens"] <= WINDOW
        # The judge: the real SDK, and an upstream that refuses what the real one would refuse.
        reply = model.messages.create(**request, extra_headers={"X-Hango-Purpose": "chat"})
        usage = reply.usage.to_dict()
        largest = max(
            largest,
            sum(usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")),
        )
        if built["compaction"] and built["compaction"]["applied_now"]:
            adopted.append(n)
        # The upstream says "ok"; the tool loop is played here.
        answer = {
            "role": "assistant",
            "content": [
                {"type": "text", "text": page(450, f"Part {n} does this")},
                {
                    "type": "tool_use",
                    "id": f"call_{n % 9}",
                    "name": "read_file",
                    "input": {"path": f"src/part_{n}.py"},
                },
            ],
        }
        client.call(
            "POST",
            f"/sessions/long/turns/{built['turn']}/complete/",
            {"message": answer, "stop_reason": "tool_use", "usage": usage},
        )
        new = [
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"call_{n % 9}",
                        "content": page((450, 480, 450, 1_500)[n % 4], f"src/part_{n}.py"),
                    }
                ],
            }
        ]
        said += [answer, *new]
        if built["work"]["state"] in ("requested", "running"):
            # Tools take their time; here just as much as the summary needs.
            wait_for(20, lambda: work_of(client) not in ("requested", "running"))
    client.call("POST", "/sessions/long/messages/", {"messages": new}, 201)

    stored = client.pages("/sessions/long/messages/?limit=1000")
    assert [{"role": m["role"], "content": m["content"]} for m in stored] == said
    assert max(waited) < 50, f"{sum(w >= 50 for w in waited)} builds waited, the longest {max(waited)} ms"
    assert len(adopted) >= 3
    assert largest <= WINDOW
    # The last answer may have begun one more summary: its call has to be over before the calls are judged.
    wait_for(20, lambda: work_of(client) not in ("requested", "running"))
    chat, summaries = upstream.log("chat"), upstream.log("summarize")
    assert [c["status"] for c in chat] == [200] * TURNS
    assert {c["status"] for c in summaries} == {200}
    assert {c["request"]["model"] for c in summaries} == {"made-up-small"}
    compactions = client.pages("/sessions/long/compactions/")
    assert {c["kind"] for c in compactions if c["status"] == "ready"} == {"model"}
    shown = client.call("GET", "/sessions/long/")
    assert shown["compactions"] == len(adopted)
    assert "ORDER-4711" in json.dumps(request)
    for number in (1, adopted[0], adopted[-1], TURNS):
        past = client.call("GET", f"/sessions/long/turns/{number}/request/")
        assert past["request"] == chat[number - 1]["request"]
    print(
        f"{len(adopted)} swaps, largest {largest} of {WINDOW}, longest wait {max(waited)} ms, {len(summaries)} summaries"
    )


def work_of(client: Client) -> str:
    newest = client.call("GET", "/sessions/long/compactions/")["results"]
    return newest[0]["status"] if newest else "idle"

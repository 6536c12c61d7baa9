"""The Anthropic provider by the real SDK against the strict upstream: what goes out, what comes back, what it never tells."""

import json
import urllib.request

import pytest

from compaction.engine import exact
from compaction.engine.errors import ProviderFailed
from compaction.engine.overflow import Kind, classify
from compaction.providers import sse
from compaction.providers.anthropic import AnthropicProvider
from compaction.providers.base import Call
from tests.providers.loopback import KEY, SECRET, drained
from tests.upstream import strict_anthropic

# Key order, number forms and escapes that a second serialisation would not keep.
BODY = (
    '{"model":"claude-test","max_tokens":100,"system":[{"type":"text","text":"Be brief."}],"tools":[{"name":"f",'
    '"input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"caf\\u00e9 ' + SECRET + '"},'
    '{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{"b": 1.50,"a":[ ]}}]},'
    '{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]}]}'
)


@pytest.fixture(scope="module")
def running():
    server = strict_anthropic.serve()
    yield Upstream(server)
    server.shutdown()
    server.server_close()


@pytest.fixture
def upstream(running):
    running.post("_reset", {})
    running.play()
    return running


class Upstream:
    def __init__(self, server):
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.provider = AnthropicProvider(KEY, self.url)

    def post(self, path, body):
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request) as answer:
            answer.read()

    def play(self, *rules):
        self.post("_control", {"rules": rules, "windows": {"claude-small": 10}})

    @property
    def log(self):
        with urllib.request.urlopen(f"{self.url}/_log") as answer:
            return json.load(answer)["calls"]


def call(body=BODY, timeout_s=5.0, purpose="chat"):
    return Call(body, timeout_s, purpose)


def test_a_whole_answer(upstream):
    upstream.play(
        {
            "reply": [
                {"type": "text", "text": "Yes."},
                {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {}},
            ]
        }
    )
    reply = upstream.provider.send(call(purpose="summarize"))
    assert (reply.text, reply.stop_reason, reply.called_tool, reply.raw) == ("Yes.", "tool_use", True, "")
    assert json.loads(reply.blocks)[1]["id"] == "toolu_2"
    (logged,) = upstream.log
    assert logged["request"] == json.loads(BODY)
    assert (logged["purpose"], logged["status"]) == ("summarize", 200)
    assert reply.usage == logged["usage"]


def test_events_are_passed_on_as_they_come(upstream):
    upstream.play({"reply": "x" * 90})
    events, reply = drained(upstream.provider.stream(call()))
    assert [e.name for e in events] == [
        "message_start", "content_block_start", *["content_block_delta"] * 3, "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    assert (reply.text, reply.stop_reason) == ("x" * 90, "end_turn")
    (logged,) = upstream.log
    assert logged["request"] == {**json.loads(BODY), "stream": True}
    assert {**reply.usage} == logged["usage"]


def test_the_exact_text_goes_out_and_nothing_of_ours_beside_it(server):
    server.body = {"content": [], "stop_reason": "end_turn", "usage": {}}
    AnthropicProvider(KEY, server.url).send(call(purpose="summarize"))
    server.events = []
    with pytest.raises(ProviderFailed):
        drained(AnthropicProvider(KEY, server.url).stream(call()))
    whole, streamed = server.asked
    assert whole.raw.decode() == BODY
    assert streamed.raw.decode() == BODY[:-1] + ',"stream":true}'
    headers = {name.lower(): value for name, value in whole.headers.items()}
    assert headers["x-hango-purpose"] == "summarize"
    assert headers["content-type"] == "application/json"
    assert "traceparent" not in headers
    assert KEY in headers.get("authorization", "") + headers.get("x-api-key", "")
    assert KEY not in whole.path + whole.raw.decode()


def test_a_content_keeps_its_text(server):
    content = (
        '[ {"type":"text", "text":"caf\\u00e9"},{"type":"tool_use","id":"t","name":"f","input":{"b": 1.50}} ]'
    )
    server.body = f'{{"content":{content},"stop_reason":"tool_use","usage":{{"input_tokens":1}}}}'
    assert AnthropicProvider(KEY, server.url).send(call()).blocks == content


def test_long_answers_are_streamed(upstream):
    long = BODY.replace('"max_tokens":100', '"max_tokens":30000')
    assert upstream.provider.send(call(long)).text == "ok"
    assert upstream.log[0]["request"]["stream"] is True


def test_counting(upstream):
    assert upstream.provider.count(call(purpose="count")) > 10
    (logged,) = upstream.log
    assert (logged["endpoint"], logged["purpose"]) == ("count_tokens", "count")
    assert set(logged["request"]) == {"model", "messages", "system", "tools"}
    upstream.play({"match": {"endpoint": "count_tokens"}, "input_tokens": True})
    with pytest.raises(ProviderFailed, match="no number"):
        upstream.provider.count(call())


@pytest.mark.parametrize(
    ("status", "kind", "retry_after_s", "may_pass"),
    [
        (429, "rate_limit_error", 1, True),
        (529, "overloaded_error", 1, True),
        (500, "api_error", None, True),
        (400, "invalid_request_error", None, False),
        (413, "request_too_large", None, False),
        (401, "authentication_error", None, False),
    ],
)
@pytest.mark.parametrize("how", ["send", "stream", "count"])
def test_errors(upstream, how, status, kind, retry_after_s, may_pass):
    endpoint = "count_tokens" if how == "count" else "messages"
    error = {"status": status, "type": kind, "message": f"{SECRET} {KEY}"}
    upstream.play({"match": {"endpoint": endpoint}, "error": error})
    with pytest.raises(ProviderFailed) as caught:
        drained(upstream.provider.stream(call())) if how == "stream" else getattr(upstream.provider, how)(
            call()
        )
    failed = caught.value
    assert (failed.kind, failed.http_status, failed.may_pass) == (kind, status, may_pass)
    assert failed.retry_after_s == (None if how == "count" else retry_after_s)
    assert failed.message == f"{SECRET} {KEY}"
    assert_tells_nothing(failed)
    assert len(upstream.log) == 1  # the SDK retries nothing


def assert_tells_nothing(error):
    for shown in (str(error), error.kind, str(error.__cause__), str(error.extra)):
        assert KEY not in shown
        assert SECRET not in shown


def test_an_overflow_is_told_by_its_words(upstream):
    with pytest.raises(ProviderFailed) as caught:
        upstream.provider.send(call(BODY.replace("claude-test", "claude-small")))
    error = caught.value
    kind = classify(provider="anthropic", status=error.http_status, type=error.kind, message=error.message)
    assert kind is Kind.OVERFLOW


@pytest.mark.parametrize("how", ["send", "stream"])
@pytest.mark.parametrize("rule", [{"latency_s": 1.0}, {"drop_connection": True}])
def test_no_answer(upstream, how, rule):
    upstream.play(rule)
    asked = call(timeout_s=0.2)
    with pytest.raises(ProviderFailed) as caught:
        drained(upstream.provider.stream(asked)) if how == "stream" else upstream.provider.send(asked)
    assert (caught.value.kind, caught.value.may_pass) == ("connection", True)
    assert_tells_nothing(caught.value)


START = {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": SECRET}}


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([], "connection"),
        ([("message_start", START)], "connection"),
        ([("message_start", START), ("error", OVERLOADED)], "overloaded_error"),
        ([("message_start", "{")], "bad-answer"),
        ([("content_block_delta", {"index": 3, "delta": {}})], "bad-answer"),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_that_breaks_off(server, events, kind, cut):
    server.events, server.cut = events, cut
    with pytest.raises(ProviderFailed) as caught:
        drained(AnthropicProvider(KEY, server.url).stream(call()))
    assert (caught.value.kind, caught.value.may_pass) == (kind, True)
    assert_tells_nothing(caught.value)


def test_every_kind_of_delta_is_put_together():
    def block(index, begun, *deltas):
        yield "content_block_start", {"index": index, "content_block": begun}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}

    events = [
        ("message_start", START),
        ("ping", {}),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "h"},
            {"type": "thinking_delta", "thinking": "m"},
            {"type": "signature_delta", "signature": "s"},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "a"},
            {"type": "citations_delta", "citation": {"n": 1}},
            {"type": "new_delta"},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"a":'},
            {"type": "input_json_delta", "partial_json": "1}"},
        ),
        *block(
            3,
            {"type": "tool_use", "id": "u", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
        ),
        *block(4, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "notes"}),
        (
            "message_delta",
            {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5, "input_tokens": None}},
        ),
        ("message_stop", {}),
    ]
    lines = [line for name, data in events for line in (f"event: {name}", f"data: {exact.dumps(data)}", "")]
    reply = sse.drain(sse.events(lines))
    assert json.loads(reply.blocks) == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a", "citations": [{"n": 1}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "u", "name": "f", "input": {}},
        {"type": "compaction", "content": "notes"},
    ]
    assert (reply.stop_reason, reply.usage) == ("tool_use", {"input_tokens": 1, "output_tokens": 5})


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"content":[],"usage":{}}', '{"content":5,"stop_reason":"x","usage":{}}']
)
def test_an_answer_that_is_none(server, body):
    server.body = body
    with pytest.raises(ProviderFailed) as caught:
        AnthropicProvider(KEY, server.url).send(call())
    assert (caught.value.kind, caught.value.may_pass) == ("bad-answer", True)

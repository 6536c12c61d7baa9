"""A provider that drips, redirects or answers with garbage: each call ends in its own time, and goes nowhere else."""

import contextlib
import json
import signal
import socket
import threading

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from compaction.engine.errors import ProviderFailed
from compaction.providers.anthropic import AnthropicProvider
from compaction.providers.base import Call
from compaction.providers.openai import OpenAIProvider
from tests.providers.loopback import KEY, SECRET, drained

BODY = json.dumps(
    {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": [{"type": "text", "text": SECRET}]}]}
)  # fmt: skip
HEAD = b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: 1000000\r\n\r\n"
JSON, STREAM = b"application/json", b"text/event-stream"


class Raw:
    """A server that says `first` at once and then, for ever, `drip` every twentieth second. `asked`: how often."""

    def __init__(self, first: bytes, drip: bytes = b"") -> None:
        self.first, self.drip, self.asked, self.over = first, drip, 0, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            line.recv(65_536)
            self.asked += 1
            line.sendall(self.first)
            while self.drip and not self.over.wait(0.05):
                line.sendall(self.drip)

    def close(self) -> None:
        self.over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def serve():
    made: list[Raw] = []

    def start(*said: bytes) -> Raw:
        made.append(Raw(*said))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(params=["anthropic", "openai"])
def provider(request):
    return AnthropicProvider if request.param == "anthropic" else OpenAIProvider


def asked(provider, how, timeout_s=0.2):
    call = Call(BODY, timeout_s, "summarize")
    return drained(provider.stream(call)) if how == "stream" else provider.send(call)


@pytest.mark.parametrize("how", ["send", "stream"])
@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Drip: 1\r\n"),  # headers
        (HEAD % (200, JSON), b" "),  # an answer
        (HEAD % (529, JSON), b" "),  # an error's text
        (HEAD % (200, STREAM), b": ping\n"),  # a stream's comments
        (HEAD % (200, STREAM), b"x"),  # a line of it that never ends
    ],
)
def test_an_answer_that_drips_ends_in_the_time_of_the_whole_call(serve, provider, how, first, drip):
    server = serve(first, drip)
    with pytest.raises(ProviderFailed) as caught:
        asked(provider(KEY, server.url), how)
    assert caught.value.may_pass
    assert SECRET not in str(caught.value)
    assert server.asked == 1


def test_a_time_limit_is_the_calls_own(serve, provider):
    """One that was over does not end the next on the same thread and client."""
    dripping = serve(HEAD % (200, JSON), b" ")
    client = provider(KEY, dripping.url)
    for _ in range(2):
        with pytest.raises(ProviderFailed):
            asked(client, "send", 0.1)
    assert dripping.asked == 2


@pytest.mark.parametrize("how", ["send", "stream"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(serve, provider, how, status):
    other = serve(b"")
    answer = f"HTTP/1.1 {status} X\r\nLocation: {other.url}/latest/meta-data/\r\nContent-Length: 0\r\n\r\n"
    with pytest.raises(ProviderFailed) as caught:
        asked(provider(KEY, serve(answer.encode()).url), how)
    assert (caught.value.http_status, caught.value.may_pass) == (status, False)
    assert other.asked == 0


@pytest.mark.parametrize(
    "text", [b"\xff\xfe\x00", b'{"content":"\xe9"}', b"\x00" * 100, b"[" * 10_000, b"<html>"]
)
def test_what_is_no_json_or_no_utf_8_is_no_answer(serve, provider, text):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
    with pytest.raises(ProviderFailed) as caught:
        asked(provider(KEY, serve(head + text).url), "send", 5)
    assert (caught.value.kind, caught.value.may_pass) == ("bad-answer", True)


@pytest.mark.parametrize("how", ["send", "stream"])
def test_the_workers_soft_limit_within_the_sdk_ends_the_call_and_is_no_second_one(serve, provider, how):
    """Celery raises it in the worker's main thread wherever that is: here in the SDK's read."""
    server = serve(b"HTTP/1.1 200 OK\r\n", b"X-Drip: 1\r\n")

    def over(number, frame):
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises((ProviderFailed, SoftTimeLimitExceeded)) as caught:
            asked(provider(KEY, server.url), how, 20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert getattr(caught.value, "may_pass", True)
    assert server.asked == 1

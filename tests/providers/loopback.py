"""A stand-in for an OpenAI-compatible server on loopback: plays one answer, notes what was asked."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

KEY = "sk-secret-0123456789"
SECRET = "the prompt's own secret words"


@contextlib.contextmanager
def serving() -> Iterator[SimpleNamespace]:
    """`url`, `asked` (path, headers, body), and what is answered next: `status`, `headers`, `body` (text or a value),
    `events` (server-sent, each with its name or None), `cut` (the stream breaks off), `latency_s`."""
    state = SimpleNamespace(
        asked=[], status=200, headers={}, body={}, events=None, cut=False, latency_s=0.0, pause_s=0.0
    )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_POST(self):
            raw = self.rfile.read(int(self.headers["content-length"]))
            state.asked.append(
                SimpleNamespace(path=self.path, headers=dict(self.headers), raw=raw, body=json.loads(raw))
            )
            time.sleep(state.latency_s)
            with contextlib.suppress(OSError):
                if state.events is None or state.status != 200:
                    self.whole()
                else:
                    self.stream()

        def whole(self):
            body = state.body if isinstance(state.body, str) else json.dumps(state.body)
            self.send_response(state.status)
            for name, value in {"content-type": "application/json", **state.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def stream(self):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for name, data in state.events:
                text = data if isinstance(data, str) else json.dumps(data)
                lines = f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(lines.encode()), lines.encode()))
                time.sleep(state.pause_s)
            if state.cut:
                self.close_connection = True
                self.connection.close()
            else:
                self.wfile.write(b"0\r\n\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def drained(stream):
    """(events, the answer) of a stream."""
    events = []
    while True:
        try:
            events.append(next(stream))
        except StopIteration as end:
            return events, end.value

"""`python -m hango.run`: what it refuses, and that nothing is left of it however it ends."""

import os
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests import servers
from tests.supervisor import Supervisor


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(home="home", **variables):
        started.append(Supervisor(tmp_path / home, "", **variables))
        return started[-1]

    yield begin
    for supervisor in started:
        supervisor.close()


@pytest.fixture
def collector():
    """A stand-in for an OpenTelemetry collector; `paths` holds what was posted to."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            server.paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        server.paths = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_taken_port_and_a_taken_home_are_refused_and_ctrl_c_stops_it(start):
    running = start()
    running.wait_until_ready()
    same_home = start(PORT=str(servers.free_port()))
    assert same_home.process.wait(20) == 1
    assert "another hango is running" in same_home.log.read_text()
    assert running.process.poll() is None, running.log.read_text()
    same_port = start("other", PORT=str(running.port))
    assert same_port.process.wait(20) == 1
    assert f"port {running.port} is taken: set PORT to another" in same_port.log.read_text()
    assert running.process.poll() is None, running.log.read_text()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(15) == 0, running.log.read_text()
    assert running.children() == []


def test_traces_are_sent_and_nothing_is_left_when_the_supervisor_is_killed(start, collector):
    running = start(
        HANGO_OTEL="on",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}",
        OTEL_BSP_SCHEDULE_DELAY="100",
    )
    running.wait_until_ready()
    until = time.monotonic() + 10
    while not collector.paths:
        assert time.monotonic() < until, "no span arrived"
        running.get("/healthz")
        time.sleep(0.1)
    assert collector.paths[0] == "/v1/traces"
    running.process.kill()
    running.process.wait()
    running.wait_for_nobody()


def test_a_part_that_dies_stops_all_and_is_named(start):
    running = start()
    running.wait_until_ready()
    found = ["pgrep", "-P", str(running.process.pid), "-f", "beat"]
    beat = subprocess.run(found, capture_output=True, text=True, check=True).stdout.split()[0]
    os.kill(int(beat), signal.SIGKILL)
    assert running.process.wait(20) == 1
    assert "beat ended with -9" in running.log.read_text()
    assert running.children() == []


def test_a_wrong_setting_is_told_in_one_line(start):
    running = start(HANGO_WORKERS="many")
    assert running.process.wait(20) == 2
    assert running.log.read_text().startswith("hango: HANGO_WORKERS='many' is not valid")

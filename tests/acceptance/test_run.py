"""`python -m hango.run` with its own broker, on the database of this run."""

import signal

import pytest

from tests.supervisor import Supervisor

pytestmark = pytest.mark.acceptance


def test_it_serves_and_stops_on_request_leaving_nothing(tmp_path, fresh_database_url):
    running = Supervisor(tmp_path / "home", fresh_database_url)
    try:
        running.wait_until_ready()
        assert running.get("/healthz") == (200, {"status": "ok"})
        parts = {"database": "ok", "broker": "ok", "storage": "ok"}
        assert running.get("/readyz") == (200, {"status": "ready", **parts})
        assert running.children()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(15) == 0, running.log.read_text()
        assert running.children() == []
    finally:
        running.close()

"""Liveness and readiness."""

import threading
import time

import pytest

from hango import health


@pytest.fixture
def ready(monkeypatch):
    """Every part answers."""
    monkeypatch.setattr(health, "PARTS", dict.fromkeys(health.PARTS, lambda: None))
    monkeypatch.setattr(health, "_running", {})


def test_it_is_alive_whatever_its_servers_do(client):
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_it_is_ready_when_all_parts_answer(client, ready):
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "database": "ok", "broker": "ok", "storage": "ok"}


def test_a_part_that_fails_is_named_without_its_secrets(client, ready, monkeypatch):
    def refuse():
        raise OSError("redis://:secret@host refused")

    monkeypatch.setitem(health.PARTS, "broker", refuse)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "database": "ok", "broker": "failed", "storage": "ok"}


def test_a_part_that_hangs_costs_a_second_and_one_thread(client, ready, monkeypatch):
    release, begun = threading.Event(), []

    def hang():
        begun.append(1)
        release.wait(20)

    monkeypatch.setattr(health, "LIMIT_S", 0.1)
    monkeypatch.setitem(health.PARTS, "broker", hang)
    start = time.monotonic()
    assert [client.get("/readyz").json()["broker"] for _ in range(3)] == ["timeout"] * 3
    assert time.monotonic() - start < 2
    assert len(begun) == 1
    release.set()
    health._running["broker"].join()
    monkeypatch.setitem(health.PARTS, "broker", lambda: None)
    assert client.get("/readyz").json()["broker"] == "ok"


def test_the_broker_is_really_asked(settings, redis_url):
    settings.HANGO_REDIS_URL = redis_url
    health.broker()
    settings.HANGO_REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(Exception, match="refused"):
        health.broker()


@pytest.mark.django_db
def test_the_database_is_really_asked():
    health.database()


def test_a_history_folder_that_is_not_there_yet_is_no_fault(settings, tmp_path):
    backend = "django.core.files.storage.FileSystemStorage"
    location = {"location": str(tmp_path / "later" / "history")}
    settings.STORAGES = {**settings.STORAGES, "history": {"BACKEND": backend, "OPTIONS": location}}
    health.storage()


def test_static_files_of_the_admin_are_served(client):
    assert client.get("/static/unfold/css/styles.css").status_code == 200

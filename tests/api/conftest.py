"""Two projects with a key each, the scripted summarizer, and no broker: jobs run when a test runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compaction import compact, jobs, tasks
from compaction.models import Compaction
from compaction.providers import scripted
from sessions_app import auth
from sessions_app.models import Project
from tests.api.client import Api


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids for which the doorbell was rung, instead of a broker."""
    found: list[str] = []
    monkeypatch.setattr(jobs, "_send", found.append)
    monkeypatch.setattr(tasks.mirror, "apply_async", lambda args, **_: tasks.mirror(*args))
    return found


@pytest.fixture(autouse=True)
def provider() -> Iterator[scripted.ScriptedProvider]:
    scripted.provider.reset()
    yield scripted.provider
    scripted.provider.reset()


@pytest.fixture
def history_folder(settings, tmp_path: Path) -> Path:
    """The storage's folder, empty."""
    backend = "django.core.files.storage.FileSystemStorage"
    folder = tmp_path / "home" / "history"
    settings.STORAGES = {
        **settings.STORAGES,
        "history": {"BACKEND": backend, "OPTIONS": {"location": str(folder)}},
    }
    return folder


def _client(name: str) -> Api:
    return Api(auth.make_key(Project.objects.create(name=name)))


@pytest.fixture
def api(db: None, history_folder: Path) -> Api:
    """The client of the project that most tests are about."""
    return _client("ours")


@pytest.fixture
def other(db: None) -> Api:
    """A client of another project."""
    return _client("theirs")


@pytest.fixture
def work() -> Callable[[], list[Compaction]]:
    """Does what is due, as a worker would, until nothing is."""

    def run() -> list[Compaction]:
        done: list[Compaction] = []
        while job := Compaction.objects.filter(status__in=("requested",), next_at=None).first():
            if (ended := compact.run(str(job.pk))) is not None:
                done.append(ended)
        return done

    return run

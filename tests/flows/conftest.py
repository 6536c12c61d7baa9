"""What every flow test has: a clock that it moves, a doorbell that it hears, a summarizer that plays a script."""

import itertools
import json
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest
from django.utils import timezone as django_timezone

from compaction import jobs
from compaction.engine import tokens, types
from compaction.providers import scripted
from compaction.providers.base import Capabilities
from sessions_app.models import Project, Session
from tests.flows.runtime import Runtime

TOOLS = '[{"name":"read_file","description":"Reads a file.","input_schema":{"type":"object","properties":{}}},' \
    '{"name":"write_file","description":"Writes a file.","input_schema":{"type":"object","properties":{}}}]'  # fmt: skip
SYSTEM = '"You are a careful agent."'


class Clock:
    """Stands still but for a microsecond a look, so that rows keep their order; a test moves it on."""

    def __init__(self) -> None:
        self.moment = datetime(2031, 5, 1, 9, 0, tzinfo=timezone.utc)  # noqa: UP017 - `timezone` is what it is called

    def __call__(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment

    def move(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(django_timezone, "now", clock)
    return clock


class Watch:
    """Stands for the module `time` in the flows: only a sleep takes time, for the clock too, and what a test adds."""

    def __init__(self, clock: Clock) -> None:
        self.now, self.clock = 0.0, clock

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.clock.move(seconds)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Watch:
    watch = Watch(clock)
    for name, module in list(sys.modules.items()):
        if name.startswith("compaction.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", watch)
    return watch


@pytest.fixture(autouse=True)
def bell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the jobs that the worker was rung for, in order; the broker is not there."""
    rung: list[str] = []
    monkeypatch.setattr(jobs, "_send", rung.append)
    return rung


@pytest.fixture(autouse=True)
def provider(monkeypatch):
    """The scripted summarizer, with nothing to play. It counts no tokens, so that every call is a summary."""
    scripted.provider.reset()
    monkeypatch.setattr(
        scripted.provider, "capabilities", Capabilities(prompt_caching=True, counts_tokens=False)
    )
    yield scripted.provider
    scripted.provider.reset()


@pytest.fixture
def start(db, clock, bell, django_capture_on_commit_callbacks):
    """start(window=…, **fields): a session and the runtime that plays in it; the doorbell rings at each commit."""
    numbers = itertools.count()

    def begin(window: int = 12_000, *, model: str = "test-model", public_id: str = "", **fields) -> Runtime:
        project, _ = Project.objects.get_or_create(name="flows")
        return Runtime(
            make_session(project, public_id or f"session-{next(numbers)}", window, model=model, **fields),
            clock, bell, django_capture_on_commit_callbacks,
        )  # fmt: skip

    return begin


@pytest.fixture
def own_history(settings, tmp_path):
    """History files of this test alone."""
    settings.STORAGES = {
        **settings.STORAGES,
        "history": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }


def make_session(project: Project, public_id: str, window: int, **fields) -> Session:
    limits = {"max_input_tokens": window, "max_wait_s": 0} | fields.pop("limits", {})
    fields = {
        "system": SYSTEM,
        "tools": TOOLS,
        "max_tokens": 1_000,
        "estimator": "heuristic-1",
        "model": "test-model",
    } | fields
    estimator = tokens.estimator(fields["estimator"])
    fixed = [types.blocks_of(fields[name])[0] if fields[name] else () for name in ("system", "tools")]
    return Session.objects.create(
        project=project, public_id=public_id, limits=json.loads(json.dumps(limits)),
        fixed_tokens=tokens.fixed_tokens(estimator, *fixed), **fields,
    )  # fmt: skip

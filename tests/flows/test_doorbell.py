"""The doorbell on a broker that is away: no turn waits for it twice, and nobody is flooded with warnings."""

import pytest

from compaction import doorbell


class Task:
    name = "compaction.compact"

    def __init__(self):
        self.tried, self.taken, self.away = 0, [], True

    def apply_async(self, args, retry):
        assert not retry
        self.tried += 1
        if self.away:
            raise ConnectionError("redis://user:secret@host")
        self.taken += args


@pytest.fixture
def task(monkeypatch, watch):
    monkeypatch.setattr(doorbell, "_quiet_until", 0.0)
    watch.now = 100.0
    return Task()


def test_after_a_message_that_was_not_taken_the_broker_is_left_alone_for_a_while(task, watch, caplog):
    for n in range(50):
        doorbell.ring(task, n)
    assert task.tried == 1
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text
    watch.now += doorbell.QUIET_S
    task.away = False
    for n in range(3):
        doorbell.ring(task, n)
    assert task.taken == [0, 1, 2]

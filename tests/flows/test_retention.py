"""Sessions that nobody has used for long are erased, when an operator says so (HANGO_RETENTION_DAYS)."""

import pytest

from compaction import erasure, tasks
from sessions_app.models import Session, Tombstone

DAY_S = 86_400


@pytest.fixture
def sessions(start, clock):
    """One that was used 40 days ago, one made 40 days ago and used yesterday, one that is new."""
    old, used, new = start(public_id="old"), start(public_id="used"), start(public_id="new")
    for one in (old, used):
        one.exchange("Hello.", "Hi.")
    clock.move(39 * DAY_S)
    used.say("Still here.")
    clock.move(DAY_S)
    new.session.created_at = clock.moment
    new.session.save(update_fields=["created_at"])
    return old, used, new


def left():
    return set(Session.objects.values_list("public_id", flat=True))


def test_it_is_off_by_default(sessions):
    assert erasure.expire() == 0
    assert left() == {"old", "used", "new"}


def test_what_was_last_used_before_the_limit_is_erased_with_a_record_and_nothing_else_is(sessions, settings):
    settings.HANGO_RETENTION_DAYS = 30
    tasks.expire()
    assert left() == {"used", "new"}
    row = Tombstone.objects.get()
    assert (row.session_id, row.reason, row.messages) == (sessions[0].session.pk, "retention", 2)
    assert sessions[1].build().turn.number == 2


def test_a_session_that_is_used_in_the_last_moment_stays(sessions, settings, monkeypatch):
    settings.HANGO_RETENTION_DAYS = 30
    erase = erasure._expire

    def used_meanwhile(pk, limit):
        sessions[0].say("Wait.")
        return erase(pk, limit)

    monkeypatch.setattr(erasure, "_expire", used_meanwhile)
    assert erasure.expire() == 0
    assert left() == {"old", "used", "new"}


def test_a_run_erases_a_batch_oldest_first(sessions, settings, monkeypatch, clock):
    settings.HANGO_RETENTION_DAYS = 30
    monkeypatch.setattr(erasure, "AT_A_TIME", 1)
    clock.move(60 * DAY_S)
    after = []
    while erasure.expire():
        after.append(left())
    assert after == [{"used", "new"}, {"new"}, set()]

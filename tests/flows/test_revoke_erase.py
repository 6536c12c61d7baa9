"""Taking back a compaction, and erasing a session also while its summary is being written."""

from pathlib import Path

import pytest
from django.apps import apps
from django.core.files.storage import storages

from compaction import compact, erasure, offload, revoke
from compaction.engine.errors import NotFound
from compaction.models import Compaction
from sessions_app.models import Session
from tests.flows.runtime import shown_text


def compacted(runtime, summary, provider):
    provider.play(summary)
    runtime.request_job()
    (job,) = runtime.work()
    assert job.status == "ready"
    return job


@pytest.fixture
def chain(start, provider):
    """(runtime, three compactions, each on the one before, the last one shown)."""
    runtime = start()
    made = []
    for n in range(3):
        runtime.exchanges(8, first=8 * n)
        made.append(compacted(runtime, f"SUMMARY-{n}: so far.", provider))
    assert [c.base_id for c in made] == [None, made[0].pk, made[1].pk]
    assert runtime.exchange("Go on.", "Yes.").compaction == made[2]
    return runtime, made


def test_revoking_one_revokes_all_built_on_it_and_the_one_before_is_shown_at_the_next_turn(chain):
    runtime, (first, second, third) = chain
    rows = runtime.rows()
    assert {c.pk for c in revoke.revoke(second)} == {second.pk, third.pk}
    assert [c.status for c in runtime.compactions()] == ["ready", "revoked", "revoked"]
    built = runtime.exchange("And now?", "This.")
    assert built.compaction == first
    assert "SUMMARY-0" in shown_text(built)
    assert "SUMMARY-2" not in shown_text(built)
    assert built.prefix_changed
    assert runtime.rows()[: len(rows)] == rows
    following = runtime.exchange("And then?", "That.")
    assert (following.compaction, following.prefix_changed) == (first, False)


def test_revoking_all_shows_the_transcript_as_far_as_it_fits(chain):
    runtime, (first, *_) = chain
    revoke.revoke(first)
    built = runtime.exchange("And now?", "This.")
    if built.compaction is not None:  # too long for the window: another one was made
        assert built.compaction.status == "ready"
    assert "SUMMARY" not in shown_text(built)


def test_an_open_turn_keeps_what_it_shows_and_a_past_one_is_still_built_again(chain):
    from compaction import desk

    runtime, (*_, third) = chain
    runtime.say("Open.")
    one = runtime.build()
    revoke.revoke(third)
    two = runtime.build()
    assert (two.body, two.turn.number) == (one.body, one.turn.number)
    for number, built in runtime.sent.items():
        assert desk.rebuild(runtime.turn(number)) == built.body


def test_revoking_while_the_next_one_is_written_ends_that_too(chain, provider):
    runtime, (first, *_) = chain
    runtime.exchanges(8, first=60)
    runtime.request_job()
    provider.during = lambda call: revoke.revoke(first)
    runtime.work()
    assert {c.status for c in runtime.compactions()} == {"revoked"}
    built = runtime.exchange("And now?", "This.")
    assert "SUMMARY" not in shown_text(built)


def rows_of(session_id):
    """How many rows of each model still belong to the session."""
    found = {}
    for label in ("transcript", "compaction"):
        for model in apps.get_app_config(label).get_models():
            if any(f.name == "session" for f in model._meta.fields):
                found[model.__name__] = model.objects.filter(session_id=session_id).count()
    return {name: count for name, count in found.items() if count}


def file_of(runtime):
    return Path(storages["history"].path(offload.key(runtime.session)))


def erased(runtime):
    with runtime.committing():
        return erasure.erase(
            Session.objects.get(pk=runtime.session.pk), reason=erasure.Reason.REQUEST, by="hango_x"
        )


def test_erasing_leaves_nothing_of_the_session_and_touches_no_other(chain, start):
    runtime, _ = chain
    other = start()
    other.exchange("MINE", "YOURS")
    path, pk = file_of(runtime), runtime.session.pk
    assert path.exists()
    assert rows_of(pk)
    erased(runtime)
    assert rows_of(pk) == {}
    assert not path.exists()
    assert other.exchange("Still", "here").turn.number == 2


def test_erasing_takes_system_and_memory_along_unless_another_session_uses_them(start):
    from compaction.models import Frame

    runtime, other = start(), start()
    for one in (runtime, other):
        one.exchange("Hello.", "Hi.")
    runtime.say("More.")
    runtime.build(memory='[{"type":"text","text":"the user lives in MEMORY-TOWN"}]')
    assert Frame.objects.filter(body__contains="MEMORY-TOWN").exists()
    erased(runtime)
    assert not Frame.objects.filter(body__contains="MEMORY-TOWN").exists()
    assert Frame.objects.count() == 1
    assert other.exchange("Still", "here").turn.number == 2


@pytest.mark.parametrize("by", ["worker", "celery", "wait"])
def test_erasing_while_the_model_writes_brings_nothing_back(start, provider, by):
    runtime = start()
    runtime.exchanges(20)
    job = runtime.live()
    path, pk = file_of(runtime), runtime.session.pk
    provider.during = lambda call: erased(runtime)
    if by == "celery":
        runtime.knock(str(job.pk))
    else:
        with pytest.raises(NotFound):
            compact.run(str(job.pk)) if by == "worker" else compact.wait(job, 20)
    assert rows_of(pk) == {}
    assert not path.exists()
    assert runtime.sweep() == 0
    runtime.knock(str(job.pk))  # a late message finds nothing
    assert Compaction.objects.count() == 0


def test_erasing_while_the_mirror_is_written_leaves_no_file(start, monkeypatch):
    runtime = start()
    runtime.exchanges(20)
    path = file_of(runtime)
    write = offload._write_atomically

    def erased_meanwhile(*args):
        monkeypatch.setattr(offload, "_write_atomically", write)
        erased(runtime)
        write(*args)

    monkeypatch.setattr(offload, "_write_atomically", erased_meanwhile)
    runtime.knock(str(runtime.live().pk))
    assert rows_of(runtime.session.pk) == {}
    assert not path.exists()


def test_a_session_of_the_same_id_begins_empty(chain, start):
    runtime, _ = chain
    public_id = runtime.session.public_id
    erased(runtime)
    again = start(public_id=public_id)
    built = again.exchange("Hello.", "Hi.")
    assert (built.turn.number, built.compaction) == (1, None)
    assert [r["seq"] for r in again.rows()] == [0, 1]
    assert "LINE-0" not in "".join(offload.lines(again.session))

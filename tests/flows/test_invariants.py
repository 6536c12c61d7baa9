"""The judge of the fault tests: it is content with a session that went well, and names each thing that is put wrong."""

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import transaction
from django.db.models import F

from compaction import offload
from compaction.models import Compaction, Turn
from sessions_app.models import Message, Project, Session
from tests import invariants
from tests.flows.runtime import words


@pytest.fixture
def played(start, own_history):
    """Some turns with swaps, and all work done."""
    runtime = start(6_000)
    for n in range(14):
        runtime.exchange(words(350, f"LINE-{n}"), words(350, "answer"))
        runtime.work()
    assert runtime.fresh().compactions > 1
    return runtime


def test_all_hold_over_a_session_that_went_well(played):
    assert invariants.broken(said="a log of ids only", secrets=["LINE-1 asked"]) == []


def test_sweeping_until_quiet_ends_what_is_under_way(start, clock, bell, own_history):
    runtime = start()
    runtime.exchanges(20)
    assert [b[:2] for b in invariants.broken()] == ["I5"]
    bell.clear()
    invariants.sweep_until_quiet(inline=True, move=clock.move)
    assert invariants.broken() == []
    assert [c.status for c in runtime.compactions()] == ["ready"]


def change(model, session, **values):
    assert model.objects.filter(session=session).exclude(**dict.fromkeys(values)).update(**values)


FAULTS = {
    "a gap": ("I1", lambda s: Message.objects.filter(session=s, seq=5).delete()),
    "another text": ("I1", lambda s: Message.objects.filter(session=s, seq=5).update(content='"x"')),
    "another weight": ("I1", lambda s: Message.objects.filter(session=s, seq=5).update(tokens=1)),
    "a cut elsewhere": ("I2", lambda s: change(Compaction, s, kept_from=F("kept_from") + 1)),
    "a summary half-written": ("I2", lambda s: change(Compaction, s, finished_at=None)),
    "another view": ("I3", lambda s: change(Turn, s, args_cut_before=3, first_seq=F("first_seq") + 1)),
    "a hole": ("I3", lambda s: Turn.objects.filter(session=s, number=2).update(kept_from=1)),
    "a turn lost": ("I3", lambda s: Turn.objects.filter(session=s, number=2).delete()),
    "a lease that ran out": (
        "I5",
        lambda s: Compaction.objects.create(
            session=s, status="running", lease_until=s.created_at, reason="manual", apply="next_build"
        ),
    ),
    "a counter": ("I8", lambda s: Session.objects.filter(pk=s.pk).update(compactions=1)),
    "the size": ("I8", lambda s: Session.objects.filter(pk=s.pk).update(last_input_tokens=1)),
}


def test_it_names_what_is_wrong_in_the_rows(played):
    for what, (name, spoil) in FAULTS.items():
        with transaction.atomic():
            spoil(played.session)
            assert name in {breach[:2] for breach in invariants.broken()}, what
            transaction.set_rollback(True)
    assert invariants.broken() == []


def test_it_names_a_frame_and_a_summary_of_others(played):
    other = Project.objects.create(name="other")
    stranger = Session.objects.create(project=other, public_id="s", model="m", estimator="heuristic-1")
    Compaction.objects.filter(session=played.session).update(session=stranger)
    assert {"I6"} <= {breach[:2] for breach in invariants.broken()}


def test_it_names_what_is_wrong_in_the_history_file(played):
    storage, name = storages["history"], offload.key(played.session)
    with storage.open(name) as file:
        text = file.read().decode()
    _, first, *rest = text.split("\n## ")
    wrong = {
        "a message missing": text.replace("\n## " + first, ""),
        "one twice": text + "\n## " + rest[-1],
        "less than is evicted": text.removesuffix("\n## " + rest[-1]),
        "empty": "",
        "gone": None,
    }
    for what, spoiled in wrong.items():
        storage.delete(name)
        if spoiled is not None:
            storage.save(name, ContentFile(spoiled.encode()))
        assert {"I4"} == {breach[:2] for breach in invariants.broken()}, what
    storage.delete(name)
    storage.save(name, ContentFile(text.encode()))
    storage.save(name.replace(str(played.session.pk), "another"), ContentFile(text.encode()))
    assert {"I6"} == {breach[:2] for breach in invariants.broken()}


def test_it_names_words_of_the_transcript_in_a_log(played):
    said = "compaction.compact LINE-1 " + "plain old words"
    assert [b[:2] for b in invariants.broken(said=said, secrets=["LINE-1 plain", "LINE-99"])] == ["I7"]

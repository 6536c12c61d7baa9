"""What has to hold of the store whatever broke: the eight invariants of the fault list, in this project's words.

`broken()` reads the rows and the history files through the ORM and names every breach. As a script it judges the store
of a running stack: `python -m tests.invariants 60` sweeps until quiet, for at most 60 seconds, and then judges.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

import django
from django.core.files.storage import storages

if __name__ == "__main__":
    django.setup()

from django.utils import timezone

from compaction import compact, desk, gather, offload, tasks
from compaction.engine import tokens, types
from compaction.models import LIVE, Compaction, Frame, Turn
from sessions_app.models import Session


def broken(*, said: str = "", secrets: Iterable[str] = (), quiet: bool = True) -> list[str]:
    """Every breach, as `I4 session-id: what`; empty when all hold. A fixed number of queries for each session.

    `said`: what processes logged, traced or sent to the broker; none of `secrets` (keys, words of a transcript) may be in
    it. `quiet`: the sweep has run until quiet, so that nothing may be under way; else I5 is left out.
    """
    found = [f"I7 {secret[:4]}… stands in what was logged or sent" for secret in secrets if secret in said]
    for session in Session.objects.select_related("project"):
        checks = [transcript, compactions, requests, mirror, tenancy, counters]
        found += [breach for check in checks for breach in check(session)]
    if quiet:
        found += ended()
    found += strangers()
    return found


def transcript(session: Session) -> Iterator[str]:
    """I1: seq is 0..n without gap or double; hash chain and running sums are right."""
    digest, through = "", 0
    for n, row in enumerate(session.messages.order_by("seq", "pk").iterator()):
        if row.seq != n:
            yield f"I1 {session}: seq {row.seq} stands where {n} has to be"
            return
        digest = types.digest_of(f"{digest}\n{row.role}\n{row.content}")
        through += row.tokens
        if row.digest != digest:
            yield f"I1 {session}: the hash chain breaks at {n}"
            return
        if row.tokens_through != through:
            yield f"I1 {session}: the running sum is wrong at {n}"
            return


def compactions(session: Session) -> Iterator[str]:
    """I2: one live job; a span is recorded once by a model's job; what is ready is whole and covers what is stored."""
    rows = list(session.compactions_made.order_by("created_at"))
    live = [row for row in rows if row.status in LIVE]
    if len(live) > 1:
        yield f"I2 {session}: {len(live)} live jobs"
    ready = [row for row in rows if row.status == Compaction.Status.READY]
    written = [row.kept_from for row in ready if row.kind == Compaction.Kind.MODEL]
    if len(written) != len(set(written)):
        yield f"I2 {session}: a span was recorded twice: {sorted(map(str, written))}"
    digests = dict(session.messages.values_list("seq", "digest"))
    for row in ready:
        if not row.kept_from or digests.get(row.kept_from - 1) != row.prefix_digest:
            yield f"I2 {session}: ready {row.pk} does not cover what is stored before {row.kept_from}"
        if not row.head.strip() or row.partial or row.lease_until or row.finished_at is None:
            yield f"I2 {session}: ready {row.pk} is half-written"
        if row.base is not None and (row.base.kept_from or 0) > (row.kept_from or 0):
            yield f"I2 {session}: ready {row.pk} is built on a later one"


def requests(session: Session) -> Iterator[str]:
    """I3: what a request shows is one row without a hole (summary, drop note, messages to the end of its time), and it can
    be built again byte for byte."""
    last = session.messages.order_by("-seq").values_list("seq", flat=True).first()
    turns = list(session.turns.select_related("frame", "compaction").order_by("number"))
    if [t.number for t in turns] != list(range(1, len(turns) + 1)):
        yield f"I3 {session}: turns have a gap: {[t.number for t in turns]}"
    for turn in turns:
        turn.session = session
        here, stands_for = f"I3 {session} turn {turn.number}", 0
        if turn.compaction is not None:
            stands_for = turn.compaction.kept_from or 0
        if turn.kept_from != stands_for:
            yield f"{here}: it goes on from {turn.kept_from}, its summary stands for what is before {stands_for}"
        if turn.first_seq < turn.kept_from or turn.last_seq > (-1 if last is None else last):
            yield f"{here}: it shows [{turn.first_seq}, {turn.last_seq}] of {last}"
        shown = [m.seq for m in gather.messages(session, turn.first_seq, turn.last_seq)]
        if shown != list(range(turn.first_seq, turn.last_seq + 1)):
            yield f"{here}: there is a hole in {turn.first_seq}..{turn.last_seq}"
        if types.digest_of(desk.rebuild(turn)) != turn.digest:
            yield f"{here}: built again it is another request"


def mirror(session: Session) -> Iterator[str]:
    """I4: the history file is the beginning of the transcript, each message once and in order; unless it is known to be
    stale, it holds all that is evicted by a summary."""
    ready = session.compactions_made.filter(status=Compaction.Status.READY)
    through = max((row.kept_from or 0 for row in ready.filter(mirrored=True)), default=0)
    storage, name = storages["history"], offload.key(session)
    if not storage.exists(name):
        if through:
            yield f"I4 {session}: there is no history file, and nothing says that it is stale"
        return
    with storage.open(name) as file:
        text = file.read().decode()
    held, rest = -1, text
    for piece in offload.markdown(session, session.messages.count()):  # the title, then one for each message
        piece = piece.encode("utf-8", "replace").decode()
        if not rest or not rest.startswith(piece):
            break
        rest, held = rest[len(piece) :], held + 1
    if rest:
        yield f"I4 {session}: the history file is not the transcript from message {held} on"
    elif held < through:
        yield f"I4 {session}: the history file holds {held} messages of {through}"


def ended() -> Iterator[str]:
    """I5: nothing that is due waits, and no job is held by one that is gone."""
    now = timezone.now()
    for row in Compaction.objects.filter(status__in=LIVE):
        late = row.lease_until if row.status == Compaction.Status.RUNNING else row.next_at or row.created_at
        if late is None or late <= now:
            yield f"I5 {row.session}: job {row.pk} is {row.status} still, after {row.attempts} attempts"


def tenancy(session: Session) -> Iterator[str]:
    """I6: nothing of a session leads to another session or project."""
    other = session.turns.exclude(frame__project=session.project)
    yield from (f"I6 {session}: turn {t.number} uses another project's frame" for t in other)
    other = session.turns.filter(compaction__isnull=False).exclude(compaction__session=session)
    yield from (f"I6 {session}: turn {t.number} shows another session's summary" for t in other)
    lent = session.compactions_made.filter(base__isnull=False).exclude(base__session=session)
    yield from (f"I6 {session}: summary {row.pk} is built on another session's" for row in lent)
    own = set(Frame.objects.filter(project=session.project).values_list("digest", flat=True))
    for turn in session.turns.exclude(memories=[]):
        if not {digest for _, digest in turn.memories} <= own:
            yield f"I6 {session}: turn {turn.number} shows memory that its project does not hold"


def strangers() -> Iterator[str]:
    """I6: every history file belongs to a session that exists, under its own project."""
    storage = storages["history"]
    keys = {offload.key(session) for session in Session.objects.all()}
    for project in _listed(storage, "")[0]:
        folder = f"{project}/conversation_history"
        for name in _listed(storage, folder)[1]:
            whole = PurePosixPath(folder, name)
            if (
                str(whole) not in keys and whole.suffix != ".tmp"
            ):  # what a killed writer left is nobody's history
                yield f"I6 {whole} belongs to no session"


def _listed(storage: Any, folder: str) -> tuple[list[str], list[str]]:
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return [], []
    return list(folders), list(files)


def counters(session: Session) -> Iterator[str]:
    """I8: the session's counters are the sums over its closed turns."""
    closed = list(session.turns.exclude(status=Turn.Status.OPEN).order_by("number"))
    session.refresh_from_db()
    adopted = sum(turn.adopted for turn in closed)
    if session.compactions != adopted:
        yield f"I8 {session}: compactions is {session.compactions}, the turns say {adopted}"
    newest = max(closed, key=lambda turn: (turn.closed_at, turn.number), default=None)
    used = (tokens.context_of(newest.usage or {}) or newest.input_tokens) if newest else 0
    if session.last_input_tokens != used:
        yield f"I8 {session}: last_input_tokens is {session.last_input_tokens}, the last turn says {used}"


# --- until quiet


def sweep_until_quiet(
    seconds: float = 60, *, inline: bool = False, move: Callable[[float], None] | None = None
) -> None:
    """Sweeps until no job is live and no history file is known to be stale; raises `AssertionError` with what is not.

    `inline`: does the work itself, where no worker runs; `move`: moves a test's clock on, else real seconds pass.
    """
    until, looks = time.monotonic() + seconds, 0
    while left := _under_way():
        assert time.monotonic() < until, f"not quiet after {seconds:g} s: {left}"
        assert move is None or looks < 1_000, f"not quiet after {looks} looks: {left}"
        looks += 1
        tasks.sweep()
        if inline:
            due = Compaction.objects.filter(status__in=LIVE).values_list("pk", flat=True)
            for pk in list(due):
                compact.run(str(pk))
            for pk in _stale():
                tasks.mirror(str(pk))
        if move is not None:
            move(30)
        elif not inline or _under_way():
            time.sleep(0.1)


def _under_way() -> list[str]:
    live = Compaction.objects.filter(status__in=LIVE)
    told = [
        f"job {row.pk} {row.status} fence {row.fence} lease {row.lease_until} next {row.next_at} {row.error_code}"
        for row in live
    ]
    return told + [f"stale history of {pk}" for pk in _stale()]


def _stale() -> list[Any]:
    rows = Compaction.objects.filter(status=Compaction.Status.READY, mirrored=False)
    return list(rows.values_list("pk", flat=True))


def main() -> int:
    sweep_until_quiet(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
    found = broken()
    print("\n".join(found) or "all hold")
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main())

"""The provider's own count, where it can matter (SPEC F2; DESIGN 5, Budget)."""

from __future__ import annotations

import logging
import time

from django.db import transaction

from compaction import budget, gather
from compaction import desk as desks
from compaction.desk import Desk, Shown
from compaction.engine import tokens
from compaction.engine.errors import ProviderFailed
from compaction.models import Turn
from compaction.providers import registry
from compaction.providers.base import Call

log = logging.getLogger(__name__)

LATER_LIMIT_S = 30.0  # of a count in the worker, where nobody waits
LIMIT_S = 2.0  # the longest that a count may take on the path of a turn
MARGIN = 1.6  # how much larger than its estimate a request may really be
PAUSE_S = 300.0  # a model that the provider does not count is not asked about again for so long
_not_asked: dict[str, float] = {}  # by model, until when (monotonic seconds), in this process


def decide(desk: Desk, shown: Shown) -> Shown:
    """The same with its size counted by the provider, when the estimate alone cannot tell on which side of the trigger it
    is. On an error or after two seconds the estimate stands."""
    provider = registry.provider()
    if provider is None or not provider.capabilities.counts_tokens or not _matters(desk, shown):
        return shown
    model = shown.request.model
    if _not_asked.get(model, 0.0) > time.monotonic():
        return shown
    try:
        counted = provider.count(Call(shown.request.body(), LIMIT_S, "count"))
    except ProviderFailed as error:
        log.info("the provider did not count a request of %s: %s", model, error.kind)
        _not_asked[model] = time.monotonic() + PAUSE_S
        return shown
    desk.counted = (shown.view, tokens.Anchor(counted, shown.tokens, True))
    return desk.sized(shown)


def count_later(turn: Turn) -> None:
    """Asks the worker to count a closed turn whose usage nobody told, so that the next budget has an anchor."""
    provider = registry.provider()
    if provider is None or not provider.capabilities.counts_tokens or turn.counted_tokens:
        return

    def send() -> None:
        from compaction import tasks  # noqa: PLC0415 - the task imports this module

        try:
            tasks.count.apply_async((turn.pk,), retry=False)
        except Exception as error:
            log.info("the broker did not take a count: %s", type(error).__name__)

    transaction.on_commit(send, robust=True)


def count_closed(turn_id: int) -> None:
    """The worker's part: one count of what the turn sent. An answer that does not come changes nothing."""
    turn = Turn.objects.select_related("session", "frame", "compaction").filter(pk=turn_id).first()
    provider = registry.provider()
    if turn is None or provider is None or gather.reported_tokens(turn):
        return
    if _not_asked.get(turn.session.model, 0.0) > time.monotonic():
        return
    try:
        counted = provider.count(Call(desks.rebuild(turn), LATER_LIMIT_S, "count"))
    except ProviderFailed as error:
        log.info("the provider did not count turn %s: %s", turn_id, error.kind)
        _not_asked[turn.session.model] = time.monotonic() + PAUSE_S
        return
    Turn.objects.filter(pk=turn_id, counted_tokens=None).update(counted_tokens=counted)


def _matters(desk: Desk, shown: Shown) -> bool:
    """Without an anchor, when the estimate could be so far off; with one, when what came since could cross the trigger."""
    anchor = budget.anchor(desk.state, shown.view)
    known = anchor.reported if anchor is not None and anchor.same_view and tokens.believed(anchor) else 0
    since = shown.size - known
    return known < desk.lines.trigger <= known + MARGIN * since and since > 0

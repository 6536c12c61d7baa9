"""The provider's own count, where it can matter (SPEC F2; DESIGN 5, Budget)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import transaction

from compaction import budget, doorbell, gather
from compaction import desk as desks
from compaction.desk import Desk, Shown
from compaction.engine import tokens
from compaction.engine.errors import ProviderFailed
from compaction.models import Turn
from compaction.providers import registry
from compaction.providers.base import Call, Provider

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
    counted = _count(provider, shown.request.model, shown.request.body, LIMIT_S)
    if counted is None:
        return shown
    desk.counted = (shown.view, tokens.Anchor(counted, shown.tokens, True))
    return desk.sized(shown)


def count_later(turn: Turn) -> None:
    """Asks the worker to count a closed turn whose usage nobody told, so that the next budget has an anchor."""
    provider = registry.provider()
    if provider is None or not provider.capabilities.counts_tokens or turn.counted_tokens:
        return

    from compaction import tasks  # noqa: PLC0415 - the task imports this module

    transaction.on_commit(lambda: doorbell.ring(tasks.count, turn.pk), robust=True)


def count_closed(turn_id: int) -> None:
    """The worker's part: one count of what the turn sent. An answer that does not come changes nothing."""
    turn = Turn.objects.select_related("session", "frame", "compaction").filter(pk=turn_id).first()
    provider = registry.provider()
    if turn is None or provider is None or gather.reported_tokens(turn):
        return
    counted = _count(provider, turn.session.model, lambda: desks.rebuild(turn), LATER_LIMIT_S)
    if counted is not None:
        Turn.objects.filter(pk=turn_id, counted_tokens=None).update(counted_tokens=counted)


def _count(provider: Provider, model: str, body: Callable[[], str], limit_s: float) -> int | None:
    """Tokens of a request body; None when the provider does not tell, and then it is not asked again for a while."""
    if _not_asked.get(model, 0.0) > time.monotonic():
        return None
    try:
        return provider.count(Call(body(), limit_s, "count"))
    except ProviderFailed as error:
        log.info("the provider did not count a request of %s: %s", model, error.kind)
        _not_asked[model] = time.monotonic() + PAUSE_S
        return None


def _matters(desk: Desk, shown: Shown) -> bool:
    """Without an anchor, when the estimate could be so far off; with one, when what came since could cross the trigger."""
    anchor = budget.anchor(desk.state, shown.view)
    known = anchor.reported if anchor is not None and anchor.same_view and tokens.believed(anchor) else 0
    since = shown.size - known
    return known < desk.lines.trigger <= known + MARGIN * since and since > 0

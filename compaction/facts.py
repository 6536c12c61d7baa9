"""What hango's own calls teach about a model at one provider address, guarded against poisoning (DESIGN 5, Window).

What a client reports never comes here: it holds for its session only.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import IntegrityError

from compaction.engine import profiles, tokens
from compaction.models import ModelFact
from compaction.providers import registry

log = logging.getLogger(__name__)

RATE = 0.2  # how fast a learned factor follows what is seen
ENOUGH = 3  # samples before a learned factor is used
NOISE = 0.03  # a factor that is this near needs no write: the row is shared by every session of the model


def of(model: str) -> dict[str, Any]:
    """What is known: `max_input_tokens` and `estimate_factor`, as far as learned."""
    fact = ModelFact.objects.filter(base_url=registry.address(), model=model).first()
    if fact is None:
        return {}
    known: dict[str, Any] = {}
    if fact.max_input_tokens:
        known["max_input_tokens"] = fact.max_input_tokens
    if fact.estimate_factor and fact.samples >= ENOUGH:
        known["estimate_factor"] = fact.estimate_factor
    return known


def learn_factor(model: str, reported: int, estimated: int) -> None:
    """The model's tokens per base unit, from one answered request. Usage that cannot be this request's is ignored."""
    if not tokens.believed(tokens.Anchor(reported, estimated, same_view=True)):
        log.info("a usage of %d tokens was not believed for a request estimated at %d", reported, estimated)
        return
    seen = reported / estimated
    fact = _fact(model)
    known = fact.estimate_factor
    if known is not None and fact.samples >= ENOUGH and abs(seen / known - 1) < NOISE:
        return
    factor = seen if known is None else known + RATE * (seen - known)
    ModelFact.objects.filter(pk=fact.pk).update(estimate_factor=factor, samples=fact.samples + 1)


def learn_limit(model: str, limit: int, known: int | None) -> None:
    """The window that the provider named in a refusal; ignored when it is too far from what is known to be this model's."""
    if not believed(limit, known):
        log.warning("a limit of %d tokens was not believed for %s (known: %s)", limit, model, known)
        return
    ModelFact.objects.filter(pk=_fact(model).pk).update(max_input_tokens=limit)


def believed(limit: int, known: int | None) -> bool:
    """Whether a stated window can be this model's."""
    low, high = profiles.BELIEVED_LIMIT
    whole = known or profiles.FALLBACK_WINDOW
    return (low if known else 0) * whole < limit <= high * whole


def _fact(model: str) -> ModelFact:
    try:
        return ModelFact.objects.get_or_create(base_url=registry.address(), model=model)[0]
    except IntegrityError:  # another process was first
        return ModelFact.objects.get(base_url=registry.address(), model=model)

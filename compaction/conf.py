"""What the settings and the price catalog say about models. Read offline: the catalog is the one in the wheel."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from django.conf import settings
from genai_prices import data_snapshot, types

from compaction.engine import profiles, tokens

log = logging.getLogger(__name__)
_logged: set[str] = set()


def max_wait_s() -> float:
    """Longest that a build waits for a summary, in seconds; 0: never."""
    return float(settings.HANGO_MAX_WAIT_S)


def estimator() -> tokens.Estimator:
    """The estimator of new sessions (`HANGO_ESTIMATOR`). Raises `ValueError` when its vocabulary is missing."""
    return tokens.estimator(settings.HANGO_ESTIMATOR)


def profile(model: str, learned: Mapping[str, Any] | None = None) -> profiles.ModelProfile:
    """The model's profile; `learned`: limits taken from refusals. An unknown model is logged once per process.

    Raises `ValueError` for a wrong `HANGO_MODEL_PROFILES`.
    """
    found = profiles.lookup(
        model,
        configured=profiles.parse_configured(settings.HANGO_MODEL_PROFILES),
        catalog=catalog,
        learned=learned,
        defaults=_defaults(),
    )
    if not found.known and model not in _logged:
        _logged.add(model)
        log.warning(
            "the window of model %r is unknown: %d tokens are assumed; name it in HANGO_MODEL_PROFILES",
            model,
            found.window,
        )
    return found


def _defaults() -> dict[str, Any]:
    """The profiles' defaults, with the settings that a deployment may set for all models."""
    return {
        **profiles.DEFAULTS,
        "trigger_frac": settings.HANGO_CONTEXT_TRIGGER_FRAC,
        "keep_frac": settings.HANGO_CONTEXT_KEEP_FRAC,
        "precompute_frac": settings.HANGO_CONTEXT_PRECOMPUTE_FRAC,
        "summarizer_model": settings.HANGO_SUMMARIZER_MODEL,
    }


def catalog(model: str) -> Mapping[str, Any] | None:
    """What `genai-prices` knows of the model: {"max_input_tokens": n}; None when it names no window."""
    found = _find(model)
    return {"max_input_tokens": found[1].context_window} if found and found[1].context_window else None


@cache
def _find(model: str) -> tuple[types.Provider, types.ModelInfo] | None:
    for name in (model, profiles.bare(model)):
        try:
            return data_snapshot.get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
    return None


def price(model: str, usage: Mapping[str, Any]) -> Decimal | None:
    """US dollars that an Anthropic-shaped usage costs, cache reads and writes included; None: no price known.

    With `iterations` every one is paid for, compactions too (PROTOCOL section 4).
    """
    found = _find(model)
    if found is None:
        return None
    provider, facts = found
    iterations = usage.get("iterations")
    paid = iterations if isinstance(iterations, list) and iterations else [usage]
    return sum((facts.calc_price(_usage(one), provider).total_price for one in paid), Decimal(0))


def _usage(usage: Mapping[str, Any]) -> types.Usage:
    """The catalog's shape: `input_tokens` there is the whole input, cached parts included."""
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    parts = usage.get("cache_creation")
    hour = min(_count(parts, "ephemeral_1h_input_tokens"), written) if isinstance(parts, Mapping) else 0
    return types.Usage(
        input_tokens=_count(usage, "input_tokens") + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        output_tokens=_count(usage, "output_tokens"),
    )


def _count(usage: Mapping[str, Any], field: str) -> int:
    value = usage.get(field)
    return value if type(value) is int and value > 0 else 0

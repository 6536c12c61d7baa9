"""Facts about models, as data: windows, how a provider counts, what thinking is bound to.

Sources: PROTOCOL sections 1 (R43, R54), 4 and 6; read in November 2026. Where a row names no window, the catalog's
stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

FALLBACK_WINDOW: Final = (
    200_000  # of a model that nobody knows: the trigger is then exactly 170,000 (SPEC F3)
)
FALLBACK_KEEP_MESSAGES: Final = 6
DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "trigger_frac": 0.85,
        "keep_frac": 0.10,
        "precompute_frac": 0.75,
        "tool_arg_max_tokens": 500,
        "summary_max_tokens": 4_096,
        "summarizer_model": "",
    }
)
BELIEVED_LIMIT: Final = (
    0.3,
    1.2,
)  # learned window / known window; outside it is another model's, or a rate's (DESIGN 5)


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known of one model. Tokens are the model's own unless a field says otherwise."""

    model: str
    max_input_tokens: int | None = None
    """The window. From the configuration, limits learned, `FAMILIES`, the catalog; None: unknown."""
    max_output_tokens: int | None = None
    """Largest `max_tokens`. Same sources; None: unknown."""
    trigger_frac: float = 0.85
    """Share of the usable window at which something is done. Configuration, else `DEFAULTS` (SPEC F5)."""
    keep_frac: float = 0.10
    """Share that is kept verbatim. Configuration, else `DEFAULTS` (SPEC F5)."""
    precompute_frac: float = 0.75
    """Share at which a summary is prepared. Configuration, else `DEFAULTS` (DESIGN 5)."""
    summary_max_tokens: int = 4_096
    """Longest summary. Configuration, else `DEFAULTS` (what LiteLLM's compaction uses, PROTOCOL 5F)."""
    summarizer_model: str = ""
    """Who writes summaries; empty: the same model. Configuration, else the setting (SPEC N2)."""
    counts_output: bool = True
    """True: input + `max_tokens` must fit the window. False: input alone (Claude from 4.5 on, PROTOCOL 3)."""
    estimate_factor: float = 1.0
    """Tokens per base unit of the heuristic estimator, until usage teaches better. `FAMILIES`; default 1."""
    tool_prompt_tokens: int = 0
    """What the provider adds once when there are tools (PROTOCOL 4). `FAMILIES`; default 0."""
    min_cacheable_tokens: int = 1_024
    """A shorter prefix is silently not cached (PROTOCOL R54). `FAMILIES`; default 1,024."""
    prompt_caching: bool = True
    """Takes cache breakpoints. True unless the family caches by itself and knows no marks."""
    binds_thinking: bool = False
    """Thinking is refused when what stood before it has changed (PROTOCOL R43). `FAMILIES`; default no."""
    known: bool = True
    """False: the window is the fallback, whatever `max_tokens`, and `FALLBACK_KEEP_MESSAGES` are kept."""

    @property
    def window(self) -> int:
        """The window in tokens, `FALLBACK_WINDOW` when unknown."""
        return self.max_input_tokens or FALLBACK_WINDOW

    def usable(self, max_tokens: int) -> int:
        """Tokens that the input may take (DESIGN 5): at least half the window, since `max_tokens` can be lowered."""
        if not (self.counts_output and self.known):
            return self.window
        return max(self.window - max_tokens, self.window // 2)


# --- families -----------------------------------------------------------------------------------

# Factors: Claude counts 15-20 % more than cl100k, from 4.7 on about 53 % more (PROTOCOL 4, derived); the heuristic
# is itself 5-10 % above cl100k.
_CLAUDE_OLD: dict[str, Any] = {"max_input_tokens": 200_000, "estimate_factor": 1.1, "tool_prompt_tokens": 346}
_CLAUDE_45 = {**_CLAUDE_OLD, "max_output_tokens": 64_000, "counts_output": False, "tool_prompt_tokens": 496}
_CLAUDE_46 = {
    **_CLAUDE_45,
    "max_input_tokens": 1_000_000,
    "max_output_tokens": 128_000,
    "tool_prompt_tokens": 497,
}
_CLAUDE_47 = {**_CLAUDE_46, "estimate_factor": 1.4, "tool_prompt_tokens": 675, "min_cacheable_tokens": 2_048}
_CLAUDE_5 = {**_CLAUDE_47, "min_cacheable_tokens": 512}  # no tool prompt published: the largest known one
_CLAUDE_BINDING = {**_CLAUDE_5, "binds_thinking": True}
# A Claude that is not listed is taken for a new one, of a window that the catalog may know.
_CLAUDE_NEW = {key: value for key, value in _CLAUDE_BINDING.items() if not key.startswith("max_")}
_OPENAI: dict[str, Any] = {"prompt_caching": False}  # caches by itself; input and output share the window
# Input limits proper: the whole window less the largest output (PROTOCOL 6, traps).
_GPT_272K = {**_OPENAI, "max_input_tokens": 272_000, "max_output_tokens": 128_000, "counts_output": False}
_GPT_922K = {**_GPT_272K, "max_input_tokens": 922_000}
_GEMINI = {**_OPENAI, "max_input_tokens": 1_048_576, "max_output_tokens": 65_536, "counts_output": False}

FAMILIES: Final[Mapping[str, Mapping[str, Any]]] = {
    # the longest matching prefix of whole name parts decides
    "claude": _CLAUDE_NEW,
    "claude-3": _CLAUDE_OLD,
    "claude-opus-4": _CLAUDE_OLD,
    "claude-sonnet-4": _CLAUDE_OLD,
    "claude-opus-4-5": {**_CLAUDE_45, "min_cacheable_tokens": 4_096},
    "claude-sonnet-4-5": _CLAUDE_45,
    "claude-haiku-4-5": {**_CLAUDE_45, "min_cacheable_tokens": 4_096},
    "claude-opus-4-6": {**_CLAUDE_46, "min_cacheable_tokens": 4_096},
    "claude-sonnet-4-6": _CLAUDE_46,
    "claude-opus-4-7": _CLAUDE_47,
    "claude-opus-4-8": {**_CLAUDE_47, "tool_prompt_tokens": 290, "min_cacheable_tokens": 1_024},
    "claude-mythos-preview": _CLAUDE_47,
    "claude-sonnet-5": {**_CLAUDE_5, "tool_prompt_tokens": 354, "min_cacheable_tokens": 1_024},
    "claude-opus-5": _CLAUDE_5,
    "claude-fable-5": _CLAUDE_5,
    "claude-mythos-5": _CLAUDE_5,
    "claude-opus-5-5": _CLAUDE_BINDING,
    "claude-sonnet-5-5": _CLAUDE_BINDING,
    "claude-haiku-5-5": _CLAUDE_BINDING,
    "claude-fable-5-1": _CLAUDE_BINDING,
    "claude-fable-5-2": _CLAUDE_BINDING,
    "claude-mythos-5-1": _CLAUDE_BINDING,
    "claude-mythos-5-2": _CLAUDE_BINDING,
    "gpt": _OPENAI,
    "o1": _OPENAI,
    "o3": _OPENAI,
    "o4": _OPENAI,
    "gpt-4.1": {**_OPENAI, "max_input_tokens": 1_047_576, "max_output_tokens": 32_768},
    "gpt-5": _GPT_272K,
    "gpt-5.1": _GPT_272K,
    "gpt-5.1-codex": {**_OPENAI, "max_input_tokens": 400_000, "max_output_tokens": 128_000},
    "gpt-5.2": _GPT_272K,
    "gpt-5.3-codex": _GPT_272K,
    "gpt-5.4": _GPT_922K,  # published as 1,050,000: the whole window
    "gpt-5.4-mini": _GPT_272K,
    "gpt-5.4-nano": _GPT_272K,
    "gpt-5.5": _GPT_922K,
    "gpt-5.6": _GPT_922K,
    "gpt-5.6-cyber": _GPT_272K,
    "gpt-6": _GPT_922K,
    "gpt-6.1": _GPT_922K,
    "gemini-2.5": _GEMINI,
    "gemini-3": _GEMINI,
    "gemini-3.1": _GEMINI,
    "gemini-3.5": _GEMINI,
    "gemini-3.6": _GEMINI,
    "gemini-3.7": _GEMINI,
    "gemini-3.8": _GEMINI,
    "deepseek-chat": {"max_input_tokens": 131_072, "max_output_tokens": 8_192},
    "deepseek-reasoner": {"max_input_tokens": 131_072, "max_output_tokens": 65_536},
}

_VENDOR = re.compile(
    r"^(?:[a-z-]+\.)?(?:anthropic|openai|google|mistral|deepseek|moonshot|meta|qwen|xai)\.(?=[a-z])"
)
_SUFFIX = re.compile(r"(?:\[[^]]*\]|[-@]20\d{6}|-20\d\d-\d\d-\d\d|-v\d+|:[\w.]+|-latest)+$")


def bare(model: str) -> str:
    """The model's own name: without vendor, region and path before it, date, revision and variant behind it.

    `us.anthropic.claude-opus-4-8-v1:0`, `openrouter/anthropic/claude-opus-4.8` → `claude-opus-4-8`.
    """
    name = _VENDOR.sub("", model.strip().lower().rsplit("/", 1)[-1])
    name = _SUFFIX.sub("", name)
    return name.replace(".", "-") if name.startswith("claude") else name


def family(model: str) -> Mapping[str, Any]:
    """The facts of the model's family in `FAMILIES`; empty when there is none."""
    parts = bare(model).split("-")
    names = ("-".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((FAMILIES[name] for name in names if name in FAMILIES), {})


# --- looking one up -----------------------------------------------------------------------------


def lookup(
    model: str,
    *,
    configured: Mapping[str, Mapping[str, Any]],
    catalog: Callable[[str], Mapping[str, Any] | None],
    learned: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] = DEFAULTS,
) -> ModelProfile:
    """The profile of a model: the configuration, over limits learned from refusals, over the family's and the
    catalog's facts, over the fallback (SPEC F3, DESIGN 5).

    `configured` as `parse_configured` gives it; `catalog(model)` → some of the profile's fields, or None.
    """
    own = configured.get(model) or configured.get(bare(model)) or {}
    facts = {key: value for key, value in defaults.items() if key in _FIELDS}
    facts |= dict(catalog(model) or {}) | dict(family(model))
    facts |= _believed(learned or {}, own.get("max_input_tokens") or facts.get("max_input_tokens"))
    facts |= own
    known = facts.get("max_input_tokens") is not None
    return ModelProfile(model=model, known=known, **facts)


def _believed(learned: Mapping[str, Any], window: int | None) -> dict[str, Any]:
    """The learned window if it can be this model's. Of an unknown model even a small one can."""
    limit = learned.get("max_input_tokens")
    if type(limit) is not int or limit < 1:
        return {}
    low, high = BELIEVED_LIMIT if window else (0.0, BELIEVED_LIMIT[1])
    return {"max_input_tokens": limit} if low <= limit / (window or FALLBACK_WINDOW) <= high else {}


# --- the configuration --------------------------------------------------------------------------

_FIELDS: Final = {f.name: str(f.type) for f in fields(ModelProfile) if f.name not in ("model", "known")}
_MAY_BE_ZERO: Final = frozenset({"tool_prompt_tokens", "min_cacheable_tokens"})


def parse_configured(value: object) -> dict[str, dict[str, Any]]:
    """`HANGO_MODEL_PROFILES`, checked: {model: {field: value}}. Raises `ValueError` naming model, field and rule."""
    if not isinstance(value, dict):
        raise ValueError("HANGO_MODEL_PROFILES must be an object: model id to an object of facts")
    return {str(model): _checked(str(model), facts) for model, facts in value.items()}


def _checked(model: str, facts: object) -> dict[str, Any]:
    if not isinstance(facts, dict):
        raise ValueError(f"HANGO_MODEL_PROFILES: {model!r} must be an object of facts")
    for field, fact in facts.items():
        if field not in _FIELDS:
            raise ValueError(
                f"HANGO_MODEL_PROFILES: {model!r} has the unknown field {field!r}; known: {', '.join(_FIELDS)}"
            )
        if rule := _broken_rule(field, fact):
            raise ValueError(f"HANGO_MODEL_PROFILES: {model!r}, {field} is {fact!r}; it must be {rule}")
    trigger = facts.get("trigger_frac", DEFAULTS["trigger_frac"])
    for field in ("keep_frac", "precompute_frac"):
        if field in facts and facts[field] >= trigger:
            raise ValueError(
                f"HANGO_MODEL_PROFILES: {model!r}, {field} must be below trigger_frac, {trigger}"
            )
    return dict(facts)


def _broken_rule(field: str, fact: object) -> str:
    """The rule of a field that the fact breaks; empty when it breaks none."""
    kind = _FIELDS[field]
    number = isinstance(fact, int | float) and not isinstance(fact, bool)
    if kind == "bool":
        return "" if isinstance(fact, bool) else "true or false"
    if kind == "str":
        return "" if isinstance(fact, str) else "a model id"
    if kind == "float":
        most = 5 if field == "estimate_factor" else 1
        return "" if number and 0 < fact < most else f"a number above 0 and below {most}"  # type: ignore[operator]
    least = 0 if field in _MAY_BE_ZERO else 1
    return "" if type(fact) is int and fact >= least else f"a whole number, at least {least}"

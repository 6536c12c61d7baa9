"""The text of a summary: who writes it, of how much at a time, how the answer is checked, and what code adds to it.

What must survive, survives by code and not by the model's grace: the ledger of identifiers that the summary lost, pinned
messages, the last request, the latest input of state tools, the path of the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings

from compaction import conf, facts, gather
from compaction.engine import answer as check
from compaction.engine import briefing, exact, identifiers, tokens, trigger, types
from compaction.engine import warm as warming
from compaction.engine.errors import ProviderFailed, SummaryRejected
from compaction.engine.profiles import ModelProfile
from compaction.models import Compaction
from compaction.providers import extractive, registry
from compaction.providers.base import Call, Provider, Reply
from sessions_app import redaction
from sessions_app.models import Session

LEAST_S = 0.5  # a call with less time than this is not begun


@dataclass(frozen=True, slots=True)
class Warm:
    """A conversation that the provider's prompt cache still holds for the summarizer's model, up to the cut; `tokens`: of
    that model."""

    request: types.OutgoingRequest
    tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """A checked text and the first message that it does not cover. `usage`: of all calls, the reminder's too."""

    text: str
    through: int
    kind: Compaction.Kind
    model: str = ""
    usage: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def write(
    session: Session,
    messages: Sequence[types.Message],
    previous: str | None,
    *,
    instructions: str,
    longest: int,
    factor: float,
    timeout_s: float,
    warm: Warm | None = None,
) -> Written:
    """Notes on the oldest of the messages that one call can read, brought up to date from `previous`.

    `longest`: the model's tokens that the notes may have; `factor`: tokens per base unit of the session's model. Raises
    `ProviderFailed`, and `SummaryRejected` when the answer cannot stand even after one reminder.
    """
    estimator = tokens.estimator(session.estimator)
    without = redaction.of_limits(session.limits) or str
    previous, instructions = previous and without(previous), without(instructions)
    provider = registry.provider()
    if provider is None:
        if settings.HANGO_SUMMARIZER_DELAY_S:
            time.sleep(settings.HANGO_SUMMARIZER_DELAY_S)
        text = extractive.summarise(
            messages, previous, max_tokens=int(longest / factor), estimate=estimator.estimate
        )
        return Written(text, messages[-1].seq + 1, Compaction.Kind.EXTRACTIVE)
    model = summarizer(session)
    profile = conf.profile(model, facts.of(model))
    longest = min(longest, profile.max_output_tokens or longest)
    mode: briefing.Mode = "update" if previous else "create"
    system = briefing.instructions(mode, focus=instructions, max_tokens=longest)
    beside = estimator.estimate(system) + estimator.estimate(previous or "")
    chunk, rendered = _chunk(messages, _room(profile, longest, beside), estimator)
    prompt = briefing.user_prompt(mode, previous, rendered, instructions)
    fenced_tokens = int((estimator.estimate(prompt) + estimator.estimate(system)) * profile.estimate_factor)
    choice = ""
    if warm is not None:
        usd = _cost(model, cached=warm.tokens), _cost(model, read=fenced_tokens)
        choice = f"warm prefix about {usd[0]:.6f} USD, fenced about {usd[1]:.6f} USD"
        warm = warm if usd[0] < usd[1] else None
    if warm is not None:
        chunk = list(messages)
        prompts = [warming.instruction(mode, focus=instructions, max_tokens=longest)]
        conversation = warm.request

        def body(texts: list[str]) -> str:
            return warming.request(conversation, texts, longest).body()
    else:
        prompts = [prompt]

        def body(texts: list[str]) -> str:
            fields = {"model": model, "max_tokens": longest, "system": [_text(system)]}
            return exact.dumps(
                {**fields, "messages": [{"role": "user", "content": [_text(t) for t in texts]}]}
            )

    reply, usage = _accepted(
        provider, body, prompts, estimator.estimate, sum(m.tokens for m in chunk), timeout_s
    )
    said = [gather.text_of(m) for m in chunk if m.asks]
    text = check.without_invented_quotes(reply.text, [*said, previous or ""])
    notes = [] if briefing.has_sections(text) else ["no-headings"]
    notes += [choice] if choice else []
    return Written(text, chunk[-1].seq + 1, Compaction.Kind.MODEL, model, usage, tuple(notes))


def _cost(model: str, *, read: int = 0, cached: int = 0) -> Decimal:
    """US dollars of reading so many tokens, new or from the prompt cache; by relative weight when no price is known."""
    usage = {"input_tokens": read, "cache_read_input_tokens": cached, "output_tokens": 0}
    price = conf.price(model, usage)
    return price if price is not None else (Decimal(read) + Decimal(cached) / 10) / 1_000_000


def summarizer(session: Session) -> str:
    """The model that writes a session's summaries."""
    configured = settings.HANGO_SUMMARIZER_MODEL or conf.profile(session.model).summarizer_model
    return session.summarizer_model or configured or session.model


def _room(profile: ModelProfile, longest: int, beside: int) -> int:
    """Base units of transcript that one call of the summarizer may read, `beside` other base units in it: instructions and
    notes. Some is left for the reminder and for what an estimate misses."""
    room = (profile.window - longest) * 0.97 / profile.estimate_factor - beside - 400
    return max(500, int(room))


def _chunk(
    messages: Sequence[types.Message], room: int, estimator: tokens.Estimator
) -> tuple[list[types.Message], str]:
    """(the oldest messages that one call can read beside the previous notes, as rendered); at least one message, whose
    parts are cut further when it alone is too large."""
    limits = briefing.Limits()
    chunk: list[types.Message] = []
    weight = 0
    for message in messages:
        weight += estimator.estimate(briefing.render([message], limits=limits))
        if chunk and weight > room:
            break
        chunk.append(message)
    rendered = briefing.render(chunk, limits=limits)
    while estimator.estimate(rendered) > room and limits.text > 200:
        limits = briefing.Limits(
            max(100, limits.argument // 2), max(100, limits.result // 2), max(100, limits.text // 2)
        )
        rendered = briefing.render(chunk, limits=limits)
    return chunk, rendered


def _accepted(
    provider: Provider,
    body: Callable[[list[str]], str],
    prompts: list[str],
    estimate: briefing.Estimate,
    input_tokens: int,
    timeout_s: float,
) -> tuple[Reply, dict[str, Any]]:
    """(a usable answer, the usage of all calls): checked, with one reminder. Raises `SummaryRejected`.

    `timeout_s`: of both calls together, since somebody may be waiting.
    """
    usage: dict[str, Any] = {}
    problem = ""
    until = time.monotonic() + timeout_s
    for attempt in range(2):
        if attempt and (timeout_s := until - time.monotonic()) < LEAST_S:
            raise ProviderFailed("no time was left to ask again", kind="deadline", retryable=True)
        texts = [*prompts, check.reminder(problem)] if attempt else prompts
        reply = provider.send(Call(body(texts), timeout_s, "summarize"))
        usage = added(usage, reply.usage)
        found = check.check(
            reply.text,
            stop_reason=reply.stop_reason,
            has_tool_call=reply.called_tool,
            input_tokens=input_tokens,
            estimate=estimate,
        )
        if found is None:
            return reply, usage
        problem = found
    raise SummaryRejected(f"the summarizer's answer was not accepted twice, last because: {problem}")


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The sum of two usages: their whole-number fields."""
    numbers = {k: v for k, v in {**one, **other}.items() if isinstance(v, int) and not isinstance(v, bool)}
    return {k: _number(one.get(k)) + _number(other.get(k)) for k in numbers}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


# --- what code adds


def composed(
    state: gather.State,
    base: Compaction | None,
    evicted: Sequence[types.Message],
    kept_from: int,
    at: trigger.Lines,
    factor: float,
    text: str,
    partial: str = "",
) -> dict[str, Any]:
    """The record's fields that are made by code, not by the model."""
    session, estimate = state.session, state.estimator.estimate
    # What an earlier summary or ledger carried counts as the user's own: it was chosen once already.
    without = redaction.of_limits(session.limits) or str
    earlier = without(
        identifiers.lines([*(base.identifiers_kept if base else ()), *identifiers.find(partial)])
    )
    carried = [types.Message(0, "user", (types.Block.text_of(earlier),))] if earlier else []
    ledger = identifiers.ledger(
        [*carried, *evicted], text, limit_tokens=int(at.ledger / factor), estimate=estimate
    )
    text = without(text)
    pins, asked = gather.carried(session, 0, kept_from)
    state_of_tools = [(tool, without(given)) for tool, given in _tool_state(session, kept_from)]
    head = briefing.compose(
        text, session_id=session.public_id, history_path=session.history_path, ledger=ledger.listed, pinned=list(map(without, pins)),
        last_request=asked and without(asked),
        state=state_of_tools, limit_tokens=int(at.head / factor), estimate=estimate,
    )  # fmt: skip
    return {
        "summary": text, "head": head, "head_tokens": tokens.message_tokens(state.estimator, (types.Block.text_of(head),)),
        "evicted_messages": len(evicted), "identifiers_found": list(ledger.found)[:500],
        "identifiers_kept": [*ledger.kept, *ledger.listed][:500], "ledger": list(ledger.listed), "offload_path": session.history_path,
    }  # fmt: skip


def _tool_state(session: Session, kept_from: int) -> list[tuple[str, str]]:
    """(tool, its latest input before the cut) of the tools whose input is state, such as a todo list (`limits.state_tools`)."""
    found: dict[str, str] = {}
    wanted = set(session.limits.get("state_tools") or ())
    if not wanted:
        return []
    for row in (
        session.messages.filter(role="assistant", seq__lt=kept_from, content__contains='"tool_use"')
        .order_by("-seq")
        .iterator()
    ):
        for call in reversed(gather.message(row).calls):
            name = str(call.data["name"])
            if name in wanted and name not in found:
                found[name] = exact.dumps(call.data["input"])
        if found.keys() >= wanted:
            break
    return sorted(found.items())

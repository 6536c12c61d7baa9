"""The ordered pipeline of named slots: view + messages → outgoing request.

The order is part of the contract (SPEC N7): summarization comes after the offload and sub-agent slots, truncation is
nested in it, and the prompt cache comes before memory, so that memory lands after the breakpoint. Leaving slots out
of the stack restores plain behaviour (SPEC N6). Repair is the last step, over the whole request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compaction.engine import breakpoints, pointers, redact, repair, sendable, thinking, truncate
from compaction.engine.tokens import Estimator, fixed_tokens, message_tokens
from compaction.engine.types import Block, Frame, Head, Message, OutgoingRequest, Repair, View

# The first `render_version` that marks stubs; earlier requests are rebuilt as they were sent.
POINTERS_SINCE = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """A request on its way through the slots. `lead`: hango's own blocks before the first message."""

    frame: Frame
    view: View
    head: Head
    messages: tuple[Message, ...]
    estimator: Estimator
    where: str  # path of the history file
    lead: tuple[Block, ...] = ()
    system: tuple[Block, ...] = ()
    tools: tuple[Block, ...] = ()
    memory: tuple[Block, ...] = ()
    memories: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    cuts: tuple[tuple[int, int], ...] = ()  # (seq, how many of its arguments, results and texts were cut)


@dataclass(frozen=True, slots=True)
class Slot:
    """A named step. `inner` slots are nested: the step runs them at its own end."""

    name: str
    apply: Callable[[Draft], Draft]
    inner: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembled:
    """The request, its weight in base units (images by their own weights, cut messages as they are shown), and the view
    that it shows: the given one, with as much thinking left out as had to be."""

    request: OutgoingRequest
    tokens: int
    view: View


def run(stack: Sequence[Slot], draft: Draft) -> Draft:
    for slot in stack:
        draft = run(slot.inner, slot.apply(draft))
    return draft


def offload_previews(draft: Draft) -> Draft:
    """Blocks over the view's limit are shown as head, tail and size: the last rung of the ladder."""
    if not draft.view.block_limit:
        return draft
    return _each(
        draft, lambda m: truncate.giant_message(m, draft.view.block_limit, draft.estimator, draft.where)
    )


def sub_agents(draft: Draft) -> Draft:
    """Reserved for runtimes that fold sub-agent sessions into one; hango stores each as a session of its own."""
    return draft


def summarization(draft: Draft) -> Draft:
    """One summary stands for everything before `kept_from`; what was dropped mechanically is left out, and so is thinking
    that was bound to something else (PROTOCOL R43)."""
    view = draft.view
    start = max(view.kept_from, view.first_seq)
    shown = tuple(
        thinking.without_thinking(m, draft.estimator) if m.seq < view.thinking_cut_before else m
        for m in draft.messages
        if start <= m.seq <= view.last_seq
    )
    return replace(draft, messages=shown, lead=draft.head.blocks)


def truncation(draft: Draft) -> Draft:
    """Large tool arguments and results of messages before `args_cut_before` are cut (SPEC F4); results that point at what is
    gone say so."""

    def cut(message: Message) -> tuple[Message, int]:
        if message.seq >= draft.view.args_cut_before:
            return message, 0
        return truncate.old_message(message, draft.frame.arg_limit, draft.estimator, draft.where)

    made = _each(draft, cut)
    if draft.frame.render_version < POINTERS_SINCE:
        return made
    evicted = bool(draft.lead or draft.view.first_seq)
    marked = pointers.dangling(made.messages, draft.messages, draft.estimator, draft.where, evicted=evicted)
    return replace(made, messages=marked)


def prompt_cache(draft: Draft) -> Draft:
    """Breakpoints on the stable prefix (SPEC F11); none when the provider takes none."""
    if not draft.frame.caching:
        return draft
    if draft.system:
        draft = replace(draft, system=breakpoints.of_blocks(draft.system))
    elif draft.tools:
        draft = replace(draft, tools=breakpoints.of_blocks(draft.tools))
    flat = [*draft.lead, *(b for m in draft.messages for b in m.blocks)]
    marked = set(
        breakpoints.positions(
            [breakpoints.may_carry(b) for b in flat],
            summary_end=len(draft.lead) - 1 if draft.lead else None,
            available=breakpoints.MAX_BREAKPOINTS - (1 if draft.system or draft.tools else 0),
        )
    )
    blocks = iter(replace(b, marked=True) if i in marked else b for i, b in enumerate(flat))
    lead = tuple(next(blocks) for _ in draft.lead)
    messages = tuple(replace(m, blocks=tuple(next(blocks) for _ in m.blocks)) for m in draft.messages)
    return replace(draft, lead=lead, messages=messages)


def memory(draft: Draft) -> Draft:
    """Memory blocks come after the breakpoint, so that changing them leaves tools and system cached.

    In `system` a change still costs the cache of every message; placed in the user message that was the newest when it
    changed, after its tool results, it costs none. Without such a message it goes to `system` all the same.
    """
    if draft.frame.memory_placement == "system" or not draft.view.memories:
        return replace(draft, memory=draft.frame.memory)
    placed = {seq: draft.memories[name] for seq, name in draft.view.memories if name in draft.memories}
    return replace(
        draft, messages=tuple(_remembering(m, placed.get(m.seq, ()), draft) for m in draft.messages)
    )


def _remembering(message: Message, blocks: tuple[Block, ...], draft: Draft) -> Message:
    """The user message with memory after its tool results, before its own words."""
    if not blocks:
        return message
    at = max((i + 1 for i, b in enumerate(message.blocks) if b.kind == "tool_result"), default=0)
    weight = message.tokens + fixed_tokens(draft.estimator, blocks, ())
    return replace(
        message, blocks=(*message.blocks[:at], *blocks, *message.blocks[at:]), as_text=False, tokens=weight
    )


TRUNCATION = Slot("truncation", truncation)
DEFAULT_STACK: tuple[Slot, ...] = (
    Slot("offload_previews", offload_previews),
    Slot("sub_agents", sub_agents),
    Slot("summarization", summarization, inner=(TRUNCATION,)),
    Slot("prompt_cache", prompt_cache),
    Slot("memory", memory),
)


def assemble(
    frame: Frame,
    view: View,
    head: Head,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    estimator: Estimator,
    where: str,
    stack: Sequence[Slot] = DEFAULT_STACK,
    without: redact.Redact | None = None,
    memories: Mapping[str, tuple[Block, ...]] | None = None,
) -> Assembled:
    """The request that a view shows. The same arguments give the same bytes, whenever it is called.

    `messages`: at least those that the view shows, by `seq`; `without`: takes the frame's redacted patterns out of a
    text; `memories`: the blocks that the view names. Raises nothing: whether the result is valid is for
    `validator.violations` to say.
    """
    frame = _plain(frame)
    if without is not None:
        frame = replace(
            frame,
            system=redact.blocks(frame.system, without),
            tools=redact.blocks(frame.tools, without),
            memory=redact.blocks(frame.memory, without),
        )
        head = Head(without(head.summary), without(head.dropped))
        messages = [redact.message(m, without, estimator) for m in messages]
        memories = {name: redact.blocks(blocks, without) for name, blocks in (memories or {}).items()}
    draft = Draft(
        frame,
        view,
        head,
        tuple(messages),
        estimator,
        where,
        system=frame.system,
        tools=frame.tools,
        memories=memories or {},
    )
    assembled = _assembled(draft, stack, max_tokens)
    while (
        frame.binds_thinking
    ):  # what is left out changes nothing that other thinking is bound to, so this ends
        before = thinking.cut_before(assembled.request, {m.seq: m.produced_on for m in messages})
        if before <= draft.view.thinking_cut_before:
            break
        draft = replace(draft, view=replace(draft.view, thinking_cut_before=before))
        assembled = _assembled(draft, stack, max_tokens)
    return assembled


def _assembled(draft: Draft, stack: Sequence[Slot], max_tokens: int) -> Assembled:
    frame, view, estimator = draft.frame, draft.view, draft.estimator
    draft = run(stack, draft)
    outgoing, repairs = repair.repair(
        draft.messages, lead=draft.lead, compact_tool=frame.compact_tool, close=True
    )
    tools = draft.tools
    if not tools and (missing := repair.missing_tools(outgoing)):
        tools = missing
        repairs += (
            Repair(None, "tools-missing R18", "definitions were added for tools that the history names"),
        )
    shown = {m.seq for m in draft.messages}
    request = OutgoingRequest(
        model=frame.model,
        max_tokens=max_tokens,
        system=draft.system,
        tools=tools,
        messages=outgoing,
        memory=draft.memory,
        system_as_text=frame.system_as_text,
        repairs=repairs,
        truncated=sum(count for seq, count in draft.cuts if seq in shown),
    )
    weight = fixed_tokens(estimator, draft.system, tools, draft.memory) + sum(
        m.tokens for m in draft.messages
    )
    if draft.lead:
        weight += message_tokens(estimator, draft.lead)
    return Assembled(request, weight, view)


def _plain(frame: Frame) -> Frame:
    """System, tools and memory without the client's own cache marks and lone surrogates."""
    return replace(
        frame,
        system=tuple(map(sendable.plain, frame.system)),
        tools=tuple(map(sendable.plain, frame.tools)),
        memory=tuple(map(sendable.plain, frame.memory)),
    )


def _each(draft: Draft, change: Callable[[Message], tuple[Message, int]]) -> Draft:
    changed = [(m.seq, *change(m)) for m in draft.messages]
    cuts = tuple((seq, count) for seq, _, count in changed if count)
    return replace(draft, messages=tuple(m for _, m, _ in changed), cuts=draft.cuts + cuts)

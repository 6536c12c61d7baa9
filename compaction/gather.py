"""Rows read into plain values: the first block of every flow. A fixed number of queries, whatever the session's age."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from django.conf import settings
from django.db.models import Case, F, IntegerField, OuterRef, Q, Subquery, Value, When

from compaction import conf, facts
from compaction.engine import redact, tokens, trigger, types
from compaction.engine.profiles import ModelProfile
from compaction.models import LIVE, Compaction, Turn
from sessions_app import redaction
from sessions_app.models import Message, Session

DEFAULT_MAX_TOKENS = (
    8_192  # of an answer, when neither session nor turn says; non-streaming SDK calls stop at 21,333 (R9)
)
RECENT = 6  # turns and compactions looked at


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a session before a decision, without its messages.

    `turns`, `jobs`: the newest first. `candidate`: the latest valid compaction. `last_seq` is -1 and `through` 0 for an
    empty transcript; `through`: weight of all messages, in base units.
    """

    session: Session
    profile: ModelProfile
    limits: trigger.Limits
    turns: tuple[Turn, ...]
    jobs: tuple[Compaction, ...]
    candidate: Compaction | None
    last_seq: int
    through: int

    @property
    def estimator(self) -> tokens.Estimator:
        return tokens.estimator(self.session.estimator)

    @property
    def last(self) -> Turn | None:
        return self.turns[0] if self.turns else None

    @property
    def open(self) -> Turn | None:
        last = self.last
        return last if last and last.status == Turn.Status.OPEN else None

    @property
    def live(self) -> Compaction | None:
        return next((job for job in self.jobs if job.status in LIVE), None)

    @property
    def reported(self) -> Turn | None:
        """The newest turn whose size is known from the provider: reported with its answer, which directly followed it, or
        counted before it was sent."""
        return next((t for t in self.turns if not t.warnings and reported_tokens(t)), None)

    def view(self) -> types.View:
        """The view that a new turn inherits: the last turn's, unless its compaction was revoked since."""
        last = self.last
        if last is None:
            return types.View(last_seq=self.last_seq)
        if last.compaction is not None and last.compaction.status == Compaction.Status.REVOKED:
            best = self.candidate
            kept_from = best.kept_from or 0 if best else 0
            return types.View(
                compaction=str(best.pk) if best else None,
                kept_from=kept_from,
                first_seq=kept_from,
                args_cut_before=last.args_cut_before,
                thinking_cut_before=last.thinking_stripped_to or 0,
                memories=memories_of(last),
                last_seq=self.last_seq,
            )
        return replace(view_of(last), last_seq=self.last_seq)


def state(session: Session, max_tokens: int | None = None) -> State:
    """Six queries. `max_tokens`: of the turn to be built, else the session's."""
    learned = facts.of(session.model)
    profile = conf.profile(session.model, learned)
    if "estimate_factor" in learned:
        profile = replace(profile, estimate_factor=learned["estimate_factor"])
    turns = tuple(session.turns.select_related("compaction", "frame").order_by("-number")[:RECENT])
    jobs = tuple(
        session.compactions_made.defer("head", "partial", "summary").order_by("-created_at")[:RECENT]
    )
    newest = session.messages.order_by("-seq").values("seq", "tokens_through").first()
    return State(
        session=session,
        profile=profile,
        limits=limits(session, profile, max_tokens),
        turns=turns,
        jobs=jobs,
        candidate=latest_valid(session),
        last_seq=newest["seq"] if newest else -1,
        through=newest["tokens_through"] if newest else 0,
    )


def view_of(turn: Turn) -> types.View:
    """The view that a turn shows."""
    return types.View(
        compaction=str(turn.compaction_id) if turn.compaction_id else None,
        kept_from=turn.kept_from,
        first_seq=turn.first_seq,
        args_cut_before=turn.args_cut_before,
        block_limit=turn.block_limit,
        thinking_cut_before=turn.thinking_stripped_to or 0,
        memories=memories_of(turn),
        last_seq=turn.last_seq,
    )


def memories_of(turn: Turn) -> tuple[tuple[int, str], ...]:
    """Where a turn shows memory within its messages: (seq, digest of the frame that holds the blocks)."""
    return tuple((seq, digest) for seq, digest in turn.memories)


def reported_tokens(turn: Turn) -> int:
    """Input tokens of a turn's request as the provider told them; 0: unknown."""
    return tokens.context_of(turn.usage or {}) or turn.counted_tokens or 0


def latest_valid(session: Session, before: int | None = None, models_only: bool = False) -> Compaction | None:
    """The ready compaction with the highest `kept_from` whose covered prefix is what the transcript holds; among equals
    a model's before an extractive one, newer before older (DESIGN 3)."""
    digest = Message.objects.filter(session=OuterRef("session"), seq=OuterRef("kept_from") - 1).values(
        "digest"
    )[:1]
    found = session.compactions_made.filter(status=Compaction.Status.READY, kept_from__gt=0)
    if before is not None:
        found = found.filter(kept_from__lte=before)
    if models_only:
        found = found.exclude(kind=Compaction.Kind.EXTRACTIVE)
    plain_last = Case(
        When(kind=Compaction.Kind.EXTRACTIVE, then=Value(1)), default=Value(0), output_field=IntegerField()
    )
    return (
        found.annotate(stored=Subquery(digest), plain=plain_last)
        .filter(stored=F("prefix_digest"))
        .order_by("-kept_from", "plain", "-created_at")
        .first()
    )


def limits(session: Session, profile: ModelProfile, max_tokens: int | None) -> trigger.Limits:
    """The session's own values over the model profile's (API.md, `limits`)."""
    own = session.limits
    known = profile.known or "max_input_tokens" in own
    window = own.get("max_input_tokens") or profile.max_input_tokens or 200_000
    if (
        session.reported_limit
        and session.reported_limit < window
        and facts.believed(session.reported_limit, window)
    ):
        window = session.reported_limit
    most = own.get("max_output_tokens") or profile.max_output_tokens
    wanted = max_tokens or session.max_tokens or min(DEFAULT_MAX_TOKENS, max(1, window // 4))
    counts_output = profile.counts_output and known
    sent = min(wanted, most) if most else wanted
    return trigger.Limits(
        window=window,
        max_tokens=sent,
        counts_output=counts_output,
        trigger_frac=own.get("trigger_frac", profile.trigger_frac),
        keep_frac=own.get("keep_frac", profile.keep_frac),
        precompute_frac=own.get("precompute_frac", profile.precompute_frac),
        max_trigger_tokens=own.get("max_trigger_tokens"),
        summary_max_tokens=own.get("summary_max_tokens", profile.summary_max_tokens),
        keep_messages=None if known else 6,
        arg_limit=own.get("tool_arg_max_tokens", settings.HANGO_TOOL_ARG_MAX_TOKENS),
        max_wait_s=own.get("max_wait_s", conf.max_wait_s()),
    )


# --- rows to engine values


def message(row: Message) -> types.Message:
    blocks, as_text = types.blocks_of(row.content)
    return types.Message(
        seq=row.seq,
        role="assistant" if row.role == "assistant" else "user",
        blocks=blocks,
        tokens=row.tokens,
        as_text=as_text,
        pinned=row.pinned,
        shown_ids=tuple(json.loads(row.shown_ids)) if row.shown_ids else None,
        produced_on=row.produced_on,
    )


def messages(session: Session, first: int, last: int | None = None) -> list[types.Message]:
    """The messages [first, last], oldest first. One query, of the rows that are shown and no others."""
    rows = (
        session.messages.filter(seq__gte=first)
        .order_by("seq")
        .defer("digest", "client_id", "open_calls", "created_at")
    )
    return [message(row) for row in (rows.filter(seq__lte=last) if last is not None else rows)]


def readable(session: Session, first: int, last: int | None = None) -> list[types.Message]:
    """The same as a summarizer may read them: without what the session redacts."""
    found = messages(session, first, last)
    without = redaction.of_limits(session.limits)
    if without is None:
        return found
    estimator = tokens.estimator(session.estimator)
    return [redact.message(m, without, estimator) for m in found]


def carried(session: Session, first: int, before: int) -> tuple[list[str], str | None]:
    """(texts of pinned messages in [first, before), the user's words that the message `before` goes on from).

    The second is None when the message at `before` is itself a request of the user.
    """
    rows = list(session.messages.filter(Q(pinned=True), seq__gte=first, seq__lt=before).order_by("seq"))
    pins = [text_of(message(row)) for row in rows]
    at = session.messages.filter(seq__in=(before,)).values_list("asks", flat=True).first()
    if at:
        return pins, None
    asked = session.messages.filter(asks=True, seq__gte=first, seq__lt=before).order_by("-seq").first()
    if asked is None or asked.pinned:
        return pins, None
    return pins, text_of(message(asked))


def text_of(asked: types.Message) -> str:
    """A user message's own words; pictures and documents as notes."""
    return "\n\n".join(
        b.text if b.kind == "text" else f"[{b.kind}]"
        for b in asked.blocks
        if b.kind == "text" or b.kind in types.MEDIA
    )


def weight_before(session: Session, seq: int) -> int:
    """Base units of all messages before `seq`."""
    if seq <= 0:
        return 0
    return session.messages.filter(seq=seq - 1).values_list("tokens_through", flat=True).first() or 0

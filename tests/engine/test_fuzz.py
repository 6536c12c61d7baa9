"""Whole sessions at random: transcripts grow, summaries are swapped in, rungs drop and cut, thinking is bound or not, ids
repeat; whatever a build shows, the strict upstream accepts. `make fuzz` runs 100,000 of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import assemble, cut, integrity, thinking, tokens, truncate, validator
from compaction.engine.types import Block, Frame, Head, Message, View, blocks_of
from tests.engine import strategies
from tests.upstream import strict_anthropic

ESTIMATOR = tokens.estimator("heuristic")
TOOLS = tuple(
    Block.of({"name": name, "input_schema": {"type": "object"}})
    for name in ("read_file", "grep", "write_file")
)


@dataclass
class Session:
    """A session played in memory, as the flows play it with rows."""

    bound: bool
    view: View = field(default_factory=View)
    head: Head = field(default_factory=Head)
    messages: list[Message] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    memory: str = ""

    @property
    def frame(self) -> Frame:
        memory = (Block.text_of(self.memory),) if self.memory else ()
        return Frame(
            "m", (Block.text_of("You work."),), TOOLS, memory, binds_thinking=self.bound, arg_limit=60
        )

    def say(self, role: Any, content: Any, produced_on: str = "") -> None:
        blocks, as_text = blocks_of(json.dumps(content))
        seq = len(self.messages)
        calls = [str(b.data["id"]) for b in blocks if b.kind == "tool_use"]
        shown = integrity.shown_ids(calls, self.taken, seq) if calls else None
        self.taken |= {*calls, *(shown or ())}
        weight = tokens.message_tokens(ESTIMATOR, blocks)
        self.messages.append(
            Message(seq, role, blocks, weight, as_text, shown_ids=shown, produced_on=produced_on)
        )

    def build(self) -> dict[str, Any]:
        """The next request, judged; its view is what the next one inherits."""
        view = replace(self.view, last_seq=len(self.messages) - 1)
        made = assemble.assemble(
            self.frame, view, self.head, self.messages, max_tokens=100, estimator=ESTIMATOR, where="/h.md"
        )
        self.view = made.view
        body: dict[str, Any] = json.loads(made.request.body())
        assert validator.violations(made.request) == []
        strict_anthropic.check_request(body, self.bound)
        self.sent = thinking.sent_digest(made.request)
        return body

    def answer(self, body: dict[str, Any], content: list[dict[str, Any]]) -> None:
        self.say("assistant", strict_anthropic.reply_blocks(content, body), self.sent)

    def shown(self) -> list[Message]:
        return [m for m in self.messages if m.seq >= self.view.first_seq]

    def swap(self, at: int) -> None:
        """A summary is adopted at one of the allowed cuts."""
        places = cut.allowed(self.shown())
        if places:
            kept_from = self.shown()[places[at % len(places)]].seq
            self.head = Head("[Summary] what was done")
            self.view = replace(
                self.view, compaction="c", kept_from=kept_from, first_seq=kept_from, block_limit=0
            )

    def drop(self, excess: int) -> None:
        shown = self.shown()
        place = cut.drop(shown, excess)
        if place:
            self.head = replace(self.head, dropped="[Left out]")
            self.view = replace(self.view, first_seq=shown[place].seq)

    def cut_arguments(self, keep: int) -> None:
        shown = self.shown()
        line = cut.keep_line(shown, keep)
        before = shown[line].seq if line < len(shown) else len(self.messages)
        self.view = replace(self.view, args_cut_before=max(before, self.view.args_cut_before))

    def preview(self, excess: int) -> None:
        self.view = replace(self.view, block_limit=truncate.block_limit(self.shown(), excess, ESTIMATOR))


ids = st.sampled_from(["a", "b", "call 1", "toolu_9", "", "a_2"])
words = st.sampled_from(["go on", "look at src/app.py", "日本語で", "🙂 fine", "x " * 400])
results = st.sampled_from(
    ["ok", "row\n" * 300, "", [{"type": "text", "text": "part"}], [{"type": "text", "text": " "}]]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("round"), st.lists(ids, min_size=1, max_size=3), st.booleans(), results),
        st.tuples(st.just("talk"), words, st.booleans()),
        st.tuples(st.just("lost"), ids),
        st.tuples(st.just("swap"), st.integers(0, 50)),
        st.tuples(st.just("drop"), st.integers(0, 2_000)),
        st.tuples(st.just("cut"), st.integers(0, 1_000)),
        st.tuples(st.just("preview"), st.integers(1, 1_000)),
        st.tuples(st.just("memory"), words),
    ),
    min_size=1,
    max_size=14,
)


def play(session: Session, step: tuple[Any, ...], n: int) -> None:
    kind = step[0]
    if kind == "round":
        _, names, thinks, result = step
        calls = [
            {"type": "tool_use", "id": f"{name}", "name": "grep", "input": {"q": n, "text": "y " * 100}}
            for name in names
        ]
        thought = [{"type": "thinking", "thinking": f"thought {n}"}] if thinks else []
        session.answer(session.build(), [*thought, {"type": "text", "text": "I look."}, *calls])
        session.say(
            "user", [{"type": "tool_result", "tool_use_id": c["id"], "content": result} for c in calls]
        )
    elif kind == "talk":
        _, text, thinks = step
        thought = [{"type": "thinking", "thinking": f"thought {n}"}] if thinks else []
        session.answer(session.build(), [*thought, {"type": "text", "text": f"answer {n}"}])
        session.say("user", text)
    elif kind == "lost":  # a runtime that crashed between a call and its result, and a user who went on
        call = {"type": "tool_use", "id": step[1], "name": "grep", "input": {}}
        session.answer(session.build(), [call])
        session.say("user", "are you there?")
    elif kind == "memory":
        session.memory = step[1]
    else:
        {
            "swap": session.swap,
            "drop": session.drop,
            "cut": session.cut_arguments,
            "preview": session.preview,
        }[kind](step[1])


@given(bound=st.booleans(), script=steps)
def test_whatever_a_session_goes_through_the_strict_upstream_accepts_its_requests(
    bound: bool, script: list[tuple[Any, ...]]
) -> None:
    session = Session(bound)
    session.say("user", "begin")
    for n, step in enumerate(script):
        play(session, step, n)
    session.build()


@given(strategies.broken(), st.booleans())
def test_a_broken_transcript_is_accepted_under_any_binding(messages: list[Message], bound: bool) -> None:
    frame = Frame("m", tools=TOOLS, binds_thinking=bound)
    made = assemble.assemble(
        frame,
        View(last_seq=len(messages)),
        Head(),
        messages,
        max_tokens=9,
        estimator=ESTIMATOR,
        where="/h.md",
    )
    if made.request.messages:
        strict_anthropic.check_request(json.loads(made.request.body()), bound)

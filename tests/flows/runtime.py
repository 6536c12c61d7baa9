"""Plays the agent runtime and the worker against the flows, without HTTP and without a broker."""

import contextlib
import json
from typing import Any

from compaction import compact, jobs, ladder, outgoing, tasks, turns
from compaction.models import Compaction, Turn
from sessions_app import append, views
from sessions_app.models import Message, Session
from tests.cases import reference
from tests.upstream import strict_anthropic

TURN_S = 30  # how long a turn with its tools takes


def words(tokens: int, mark: str = "") -> str:
    """Text of about so many tokens that begins with `mark`."""
    return (mark + " " + "plain old words about the work " * (tokens // 7 + 1))[
        : max(len(mark), tokens * 4 - 12)
    ]


def text(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value}]


def use(tool_id: str, tool: str = "read_file", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_id, "name": tool, "input": arguments}


def result(tool_id: str, content: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content, **more}


def new(
    role: str, content: str | list[dict[str, Any]], *, pinned: bool = False, client_id: str | None = None
) -> append.NewMessage:
    return append.NewMessage(role, json.dumps(content), client_id, pinned)


def judge(body: str) -> None:
    """The strict upstream and the case files' reference both take the request."""
    request = json.loads(body)
    strict_anthropic.check_request(request)
    assert reference.shape_error(request) is None
    assert reference.pair_errors(request) == []
    assert reference.blank_errors(request) == []
    assert request["messages"][-1]["role"] == "user"


class Runtime:
    """One session's runtime. Every built request is judged, and kept in `sent` by its turn's number."""

    def __init__(self, session: Session, clock, bell: list[str], commits=None) -> None:
        self.session, self.clock, self.bell = session, clock, bell
        self._commits = commits
        self.sent: dict[int, outgoing.Built] = {}
        self._calls = 0

    def committing(self):
        return self._commits(execute=True) if self._commits else contextlib.nullcontext()

    # --- the runtime

    def append(self, *messages: append.NewMessage, expected_seq: int | None = None) -> append.Appended:
        with self.committing():
            return views.appended(self.session, list(messages), expected_seq)

    def say(self, value: str, *, pinned: bool = False) -> Message:
        return self.append(new("user", text(value), pinned=pinned)).rows[0]

    def build(self, **options: Any) -> outgoing.Built:
        with self.committing():
            built = outgoing.build(self.session, **options)
        return self._keep(built)

    def _keep(self, built: outgoing.Built) -> outgoing.Built:
        judge(built.body)
        if built.shown.size > built.lines.usable:
            raise AssertionError(
                f"a request of {built.shown.size} tokens was built where {built.lines.usable} fit"
            )
        self.sent[built.turn.number] = built
        return built

    def complete(
        self,
        content: str | list[dict[str, Any]],
        *,
        usage: dict[str, Any] | None = None,
        number: int | None = None,
        body: str = "",
    ) -> turns.Closed:
        blocks = text(content) if isinstance(content, str) else content
        number = number or max(self.sent)
        answer = body or json.dumps([number, blocks, usage])
        with self.committing():
            closed = turns.complete(self.session, number, new("assistant", blocks), "end_turn", usage, answer)
        self.clock.move(TURN_S)
        return closed

    def overflow(self, number: int | None = None) -> ladder.Climbed:
        with self.committing():
            refusal = ladder.reported(
                {"status": 400, "type": "invalid_request_error", "message": "prompt is too long"}
            )
            climbed = ladder.climb(self.session, number or max(self.sent), refusal)
        if climbed.built is not None:
            self._keep(climbed.built)
        return climbed

    def exchange(self, asked: str, answered: str) -> outgoing.Built:
        """A user message, the request, the answer."""
        self.say(asked)
        built = self.build()
        self.complete(answered)
        return built

    def round(self, size: int, mark: str = "", *, tool_id: str | None = None) -> outgoing.Built:
        """The next request; the model answers it with a call, whose result of `size` tokens is stored."""
        built = self.build()
        self._calls += 1
        tool_id = tool_id or f"call_{self._calls}"
        self.complete([use(tool_id, path=f"src/part_{self._calls}.py")])
        self.append(new("user", [result(tool_id, words(size, mark))]))
        return built

    def exchanges(self, count: int, tokens_each: int = 400, first: int = 0) -> None:
        """Stored exchanges without turns, each marked LINE-n: a transcript as another runtime left it."""
        for n in range(first, first + count):
            half = tokens_each // 2
            self.append(
                new("user", text(words(half, f"LINE-{n} asked"))),
                new("assistant", text(words(half, f"LINE-{n} answered"))),
            )

    # --- the worker

    def work(self) -> list[Compaction]:
        """The worker: answers every ring so far, and those that come of it. The jobs that it worked on."""
        done = []
        while self.bell:
            job_id = self.bell.pop(0)
            with self.committing():
                row = compact.run(job_id)
            if row is not None:
                done.append(row)
        return done

    def knock(self, job_id: str) -> None:
        """One Celery message as the worker takes it."""
        with self.committing():
            tasks.compact(job_id)

    def sweep(self) -> int:
        with self.committing():
            before = len(self.bell)
            tasks.sweep()
        return len(self.bell) - before

    # --- what is stored

    def rows(self) -> list[dict[str, Any]]:
        """Every value of every message."""
        return list(self.session.messages.order_by("seq").values())

    def compactions(self, **wanted: Any) -> list[Compaction]:
        return list(self.session.compactions_made.filter(**wanted).order_by("created_at"))

    def live(self) -> Compaction:
        return self.session.compactions_made.get(status__in=("requested", "running"))

    def job(self, pk: Any) -> Compaction:
        return Compaction.objects.get(pk=pk)

    def fresh(self) -> Session:
        self.session.refresh_from_db()
        return self.session

    def turn(self, number: int) -> Turn:
        return turns.get(self.session, number)

    def request_job(self) -> Compaction:
        """Any job on this session, as forced from outside; the bell has rung for it."""
        from compaction import budget, gather

        state = gather.state(self.session)
        size, at, _ = budget.standing(state)
        with self.committing():
            return jobs.request(state, reason=gather.types.Reason.MANUAL, size=size, keep=at.keep)


def shown_text(built: outgoing.Built) -> str:
    """Everything that a request says, joined."""
    return json.dumps(json.loads(built.body)["messages"], ensure_ascii=False)

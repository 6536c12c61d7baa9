"""The summary call on the warm prefix: what was sent stays byte for byte, the instruction comes at its end."""

from __future__ import annotations

import pytest

from compaction.engine import briefing, warm
from compaction.engine.types import Block, OutgoingMessage, OutgoingRequest
from tests.engine.strategies import text

ASK = OutgoingMessage("user", (Block.of(text("go")),), (0,), as_text=True)
ANSWER = OutgoingMessage("assistant", (Block.of(text("done")),), (1,))
CLOSE = OutgoingMessage("user", (Block.of(text("Continue.")),))


def prefix(*messages: OutgoingMessage) -> OutgoingRequest:
    tool = Block.of({"name": "bash", "input_schema": {"type": "object"}})
    return OutgoingRequest("m", 8_000, (Block.of(text("careful")),), (tool,), messages)


def asked(request: OutgoingRequest) -> list[str]:
    return [b.text for b in request.messages[-1].blocks]


def test_the_texts_follow_the_assistants_answer_in_a_message_of_their_own() -> None:
    made = warm.request(prefix(ASK, ANSWER), ["notes please", "once more"], 500)
    assert made.messages[:2] == (ASK, ANSWER)
    assert (made.messages[2].role, asked(made), made.max_tokens) == (
        "user",
        ["notes please", "once more"],
        500,
    )
    assert made.elements()[:-2] == prefix(ASK, ANSWER).elements()


def test_they_join_the_users_last_message_behind_what_it_says() -> None:
    made = warm.request(prefix(ASK), ["notes please"], 500)
    assert (len(made.messages), asked(made)) == (1, ["go", "notes please"])
    assert made.elements()[:-1] == prefix(ASK).elements()
    assert '"text":"go"' in made.body()


def test_hangos_own_close_gives_way_to_them() -> None:
    made = warm.request(prefix(ASK, ANSWER, CLOSE), ["notes please"], 500)
    assert (len(made.messages), asked(made)) == (3, ["notes please"])


def test_an_empty_conversation_takes_them_as_its_first_message() -> None:
    made = warm.request(prefix(), ["notes please"], 500)
    assert [m.role for m in made.messages] == ["user"]


@pytest.mark.parametrize("mode", ["create", "update"])
def test_the_instruction_keeps_the_rules_of_the_fenced_form(mode: briefing.Mode) -> None:
    said = warm.instruction(mode, focus="the parser", max_tokens=4_000)
    assert briefing.RULES in said
    assert briefing.form(4_000) in said
    assert "the parser" in said
    assert ("Bring the notes up to date" in said) == (mode == "update")
    assert said.endswith("no tool call.\n")

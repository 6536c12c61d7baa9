"""A summarizer's answer stands only if it can stand for the messages."""

from __future__ import annotations

import pytest

from compaction.engine import answer


def judged(
    text: str, stop_reason: str | None = "end_turn", *, called: bool = False, input_tokens: int = 1_000
) -> str | None:
    return answer.check(
        text, stop_reason=stop_reason, has_tool_call=called, input_tokens=input_tokens, estimate=len
    )


@pytest.mark.parametrize(
    "text",
    ["Facts: a=1.", "The user works on a ticket in the ledger code; a run was started.", "## Goal\n- I'm sorry, but I can't say",
     "I can't reproduce the bug; the user asked for a second run.", "There are two codes.", "Entschuldigung kam vom Kunden; Ticket INV-22 ist offen.",
     "Sorry, I cannot " + "go on " * 80],
)  # fmt: skip
def test_usable_text_is_accepted_with_or_without_headings(text: str) -> None:
    assert judged(text) is None
    assert judged(text, None) is None


@pytest.mark.parametrize("text", ["", "  \n ", "...", "```\n```", "\u200b", "---"])
def test_text_without_a_word_is_empty(text: str) -> None:
    assert judged(text) == "empty"


@pytest.mark.parametrize("reason", ["max_tokens", "length", "model_context_window_exceeded", "pause_turn"])
def test_an_answer_that_did_not_come_to_its_end_is_cut_off(reason: str) -> None:
    assert judged("## Goal", reason) == "cut_off"


@pytest.mark.parametrize(
    "text",
    ["Sorry, I am not able to write this summary.", "I'm sorry, but I can't help with that.", "I’m very sorry, but I cannot do this.",
     "I cannot help with this request.", "I can't assist.", "We are unable to comply with it.", "I'm unable to summarize this conversation.",
     "Unfortunately, I can't continue.", "As an AI, I am not able to take part.", "I apologize, but I won't write it.", "Es tut mir leid, das geht nicht.",
     "Ich kann dabei leider nicht helfen.", "Je suis désolé.", "Lo siento, no puedo.", "抱歉，我无法完成。", "申し訳ありません。"],
)  # fmt: skip
def test_a_short_refusal_in_words_is_refused(text: str) -> None:
    assert judged(text) == "refused"


@pytest.mark.parametrize("reason", ["refusal", "content_filter"])
def test_a_refusal_by_stop_reason_is_refused_whatever_the_text(reason: str) -> None:
    assert judged("Facts: a=1.", reason) == "refused"


def test_a_tool_call_instead_of_text_is_told_apart() -> None:
    assert judged("Facts: a=1.", called=True) == "tool_call"
    assert judged("", "tool_use") == "tool_call"


def test_a_summary_that_is_not_smaller_than_its_input_is_too_large() -> None:
    assert judged("x" * 10, input_tokens=10) == "too_large"
    assert judged("x" * 9, input_tokens=10) is None


@pytest.mark.parametrize(
    "problem", ["tool_call", "refused", "cut_off", "empty", "too_large", "something new"]
)
def test_the_reminder_says_what_was_wrong_and_what_to_do(problem: str) -> None:
    text = answer.reminder(problem)
    assert text.startswith("Your last answer could not be used.")
    assert text.endswith('start with "## Goal".')


def test_a_quotation_that_no_user_message_holds_is_removed() -> None:
    """The public case 052."""
    summary = 'Facts: 3 locks.\nUser asked: "purge the vault"'
    assert answer.without_invented_quotes(summary, ["How many locks?"]) == (
        "Facts: 3 locks.\nUser asked: [a quotation that is in no user message was removed]"
    )


def test_quotations_that_stand_in_a_message_stay_also_with_gaps_and_other_marks() -> None:
    said = ["Rename  only the\n'audit' table, nothing else. Then stop!"]
    summary = (
        "- The user said: \"rename only the 'audit' table\"\n- Request: “Rename only … nothing else.”\n"
        '- User wants "audit" done\n- The log reads "no such table here"'
    )
    assert answer.without_invented_quotes(summary, said) == summary

"""Messages requests as OpenAI's: one table a rule of PROTOCOL section 7."""

import json

import pytest

from compaction.engine import exact
from compaction.providers import openai_format as form
from tests.engine.strategies import MEDIA, assistant, call, result, text, thinking, user

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
DOCUMENT = {"type": "document", "source": PDF, "title": "a.pdf"}


def body(*messages, **more):
    return exact.dumps({"model": "m", "max_tokens": 9, "messages": list(messages), **more})


def chat(*messages, **more):
    return form.chat(body(*messages, **more), official=False)


def responses(*messages, **more):
    return form.responses(body(*messages, **more))


def tool(tool_call_id, content):
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


def output(call_id, given):
    return {"type": "function_call_output", "call_id": call_id, "output": given}


# Chat Completions -----------------------------------------------------------------------------------


def test_o1_the_system_text_comes_first():
    asked = chat(
        user("hi"), system=[text("Be brief."), {**text("Be kind."), "cache_control": {"type": "ephemeral"}}]
    )
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "hi"},
    ]
    assert chat(user("hi"), system="Be brief.")["messages"][0]["content"] == "Be brief."
    assert len(chat(user("hi"))["messages"]) == 1
    later = chat(user("hi"), {"role": "system", "content": "Now be brief."}, assistant("ok"), user("go"))
    assert [m["role"] for m in later["messages"]] == ["user", "system", "assistant", "user"]


def test_o2_an_assistant_has_words_or_calls():
    asked = chat(
        user("a"), assistant(call("toolu_1", given={"b": 1})), user(result("toolu_1")),
        assistant(thinking("hm")), user("b"), assistant(thinking("hm"), "words"), user("c"),
    )["messages"]  # fmt: skip
    assert asked[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "bash", "arguments": '{"b":1}'}}
        ],
    }
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert asked[4] == {"role": "assistant", "content": "words"}
    assert "hm" not in json.dumps(asked)  # never as text


def test_o3_one_message_a_result_in_the_order_of_the_calls_and_words_after_them():
    asked = chat(
        user("a"),
        assistant("both", call("toolu_1"), call("toolu_2")),
        user(result("toolu_2", "two"), result("toolu_1", "one"), "and now?"),
    )["messages"]
    assert asked[2:] == [
        tool("toolu_1", "one"),
        tool("toolu_2", "two"),
        {"role": "user", "content": "and now?"},
    ]


def test_o3_holds_over_messages_that_the_messages_api_takes_as_one():
    asked = chat(
        user("a"), assistant(call("toolu_1")), assistant("words"), user(result("toolu_1", "one")), user("b")
    )["messages"]
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "user"]
    assert (asked[1]["content"], len(asked[1]["tool_calls"])) == ("words", 1)


def test_o3_o4_what_has_no_partner_is_told():
    asked = chat(user("a"), assistant(call("toolu_1")), user(result("toolu_9", "lost"), "b"))["messages"]
    assert asked[2:] == [
        tool("toolu_1", "[tool error] [result not available]"),
        {"role": "user", "content": "lost\n\nb"},
    ]


@pytest.mark.parametrize("given", ["toolu_1", "a" * 40])
def test_o5_ids_that_fit_stay(given):
    assert form.id_of(given) == given


@pytest.mark.parametrize("given", ["a" * 41, "functions.bash:0", "", "größe", "\ud800"])
def test_o5_others_are_mapped_the_same_way_everywhere(given):
    asked = chat(user("a"), assistant(call(given)), user(result(given)))["messages"]
    made = asked[1]["tool_calls"][0]["id"]
    assert made == asked[2]["tool_call_id"] == form.id_of(given)
    assert len(made) <= 40
    assert made.isascii()
    items = responses(user("a"), assistant(call(given)), user(result(given)))["input"]
    assert items[1]["call_id"] == items[2]["call_id"] == made


def test_o5_names_are_mapped_there_and_back():
    long, odd = "n" * 65, "read.file"
    tools = [
        {"name": name, "description": "d", "input_schema": {"type": "object"}} for name in (long, odd, "ok")
    ]
    asked = chat(
        user("a"), assistant(call("toolu_1", long)), user(result("toolu_1")),
        tools=tools, tool_choice={"type": "tool", "name": odd},
    )  # fmt: skip
    sent = [t["function"]["name"] for t in asked["tools"]]
    assert len({*sent}) == 3
    assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in sent)
    assert sent[2] == "ok"
    assert asked["messages"][1]["tool_calls"][0]["function"]["name"] == sent[0]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": sent[1]}}
    names = form.names_in({"tools": tools})
    assert [names[name] for name in sent] == [long, odd, "ok"]


def test_o5_arguments_keep_their_text():
    raw = '{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"b": 1.50,"a":"\\u00e9"}}]}'
    said = body(user("a"), user(result("t"))).replace(
        '{"role":"user","content":[', raw + ',{"role":"user","content":['
    )
    asked = form.chat(said, official=False)["messages"]
    assert asked[1]["tool_calls"][0]["function"]["arguments"] == '{"b": 1.50,"a":"\\u00e9"}'


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        ("ok", {}, "ok"),
        ("no such file", {"is_error": True}, "[tool error] no such file"),
        ([text("a"), text("b")], {}, "a\n\nb"),
        ([MEDIA[1]], {}, "T\na page"),
        ([{"type": "search_result", "title": "T", "source": "s", "content": [text("found")]}], {}, "T\ns\nfound"),
        ([{"type": "tool_reference", "tool_name": "t"}], {}, '[tool_reference: {"type":"tool_reference","tool_name":"t"}]'),
        ([{"type": "image", "source": {"type": "file", "file_id": "f"}}], {}, "[image is not available here]"),
        ([{"type": "document", "title": "D", "source": {"type": "file"}}], {}, "[document D is not available here]"),
        (None, {}, ""),
    ],
)  # fmt: skip
def test_o6_a_result_is_text(content, more, told):
    asked = chat(user("a"), assistant(call("toolu_1")), user(result("toolu_1", content, **more)))["messages"]
    assert asked[2:] == [tool("toolu_1", told)]


def test_o6_attachments_of_results_come_after_all_of_them():
    asked = chat(
        user("a"),
        assistant(call("toolu_1"), call("toolu_2")),
        user(
            result("toolu_1", [MEDIA[0]], is_error=True), result("toolu_2", [text("two"), DOCUMENT]), "see?"
        ),
    )["messages"]
    assert asked[2:4] == [
        tool("toolu_1", "[tool error] [see the attachment below]"),
        tool("toolu_2", "two"),
    ]
    assert asked[4] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "[attachment of the result of toolu_1]"},
            {"type": "image_url", "image_url": {"url": PNG}},
            {"type": "text", "text": "[attachment of the result of toolu_2]"},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
            },
            {"type": "text", "text": "see?"},
        ],
    }


def test_o7_history_needs_no_tools_and_the_other_providers_tools_are_not_offered():
    asked = chat(
        user("a"), assistant(call("toolu_1")), user(result("toolu_1")),
        tools=[{"type": "web_search_20260101", "name": "web_search"}], tool_choice={"type": "any"},
    )  # fmt: skip
    assert "tools" not in asked
    assert "tool_choice" not in asked


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        (None, {}),
    ],
)
def test_tool_choice(choice, made):
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    asked = chat(user("a"), tools=tools, tool_choice=choice)
    assert {k: asked[k] for k in ("tool_choice", "parallel_tool_calls") if k in asked} == made
    assert asked["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]


def test_settings_of_the_request():
    more = {
        "temperature": 0.5,
        "stop_sequences": ["X"],
        "thinking": {"type": "adaptive"},
        "metadata": {"user_id": "u"},
    }
    asked = chat(user("a"), **more)
    assert {k: v for k, v in asked.items() if k != "messages"} == {
        "model": "m", "max_tokens": 9, "temperature": 0.5, "stop": ["X"],
    }  # fmt: skip
    assert form.chat(body(user("a")), official=True)["max_completion_tokens"] == 9
    assert responses(user("a"))["max_output_tokens"] == 9


# Responses ------------------------------------------------------------------------------------------


def test_p1_p2_p3_items_without_ids_calls_then_outputs_with_nothing_between():
    asked = responses(
        user("a"),
        assistant(thinking("hm"), "both", call("toolu_1"), call("toolu_2")),
        user(
            result("toolu_2", "two", is_error=True),
            result("toolu_1", [text("see"), MEDIA[0]], is_error=True),
            "b",
        ),
        {"role": "system", "content": "c"},
        system="Be brief.",
    )
    assert asked["instructions"] == "Be brief."
    assert asked["store"] is False
    assert asked["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "role": "assistant", "content": "both"},
        {"type": "function_call", "call_id": "toolu_1", "name": "bash", "arguments": "{}"},
        {"type": "function_call", "call_id": "toolu_2", "name": "bash", "arguments": "{}"},
        output(
            "toolu_1",
            [
                {"type": "input_text", "text": "[tool error]"},
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": PNG, "detail": "auto"},
            ],
        ),
        output("toolu_2", "[tool error] two"),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"type": "message", "role": "developer", "content": "c"},
    ]


def test_p5_p6_nothing_refers_to_what_the_provider_holds():
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    asked = responses(user("a"), tools=tools, tool_choice={"type": "tool", "name": "f"})
    assert asked["tools"] == [
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    ]
    assert asked["tool_choice"] == {"type": "function", "name": "f"}
    assert not {"previous_response_id", "conversation", "context_management", "truncation"} & set(asked)

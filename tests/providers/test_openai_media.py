"""What only the other provider can read, and what users attach."""

from compaction.engine import exact
from compaction.providers import openai_format as form
from tests.engine.strategies import MEDIA, assistant, text, user


def chat(*messages):
    return form.chat(exact.dumps({"model": "m", "max_tokens": 9, "messages": list(messages)}), official=False)


def responses(*messages):
    return form.responses(exact.dumps({"model": "m", "max_tokens": 9, "messages": list(messages)}))


def test_what_only_the_other_provider_can_read_is_told_or_left_out():
    search = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"title": "t", "encrypted_content": "opaque"}],
        },
    ]
    asked = chat(user("a"), assistant(*search, "found"), user("b"))["messages"]
    assert asked[1]["content"] == (
        '[called web_search: {"query":"q"}]\n\n[web_search_tool_result: [{"title":"t"}]]\n\nfound'
    )
    compacted = {"type": "compaction", "content": "Earlier: x", "encrypted_content": "opaque"}
    asked = chat(assistant(compacted, "go on"), user("b"))["messages"]
    assert [(m["role"], m["content"]) for m in asked] == [
        ("user", "Earlier: x"),
        ("assistant", "go on"),
        ("user", "b"),
    ]
    assert responses(assistant(compacted), user("b"))["input"][0]["content"] == "Earlier: x"


def test_a_users_pictures_and_documents():
    url = {"type": "url", "url": "https://x/y"}
    said = user({"type": "image", "source": url}, {"type": "document", "source": url}, MEDIA[1], "")
    assert chat(said)["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://x/y"}},
        {"type": "text", "text": "[document at https://x/y]"},
        {"type": "text", "text": "T\na page"},
    ]
    assert responses(said)["input"][0]["content"] == [
        {"type": "input_image", "image_url": "https://x/y", "detail": "auto"},
        {"type": "input_file", "file_url": "https://x/y"},
        {"type": "input_text", "text": "T\na page"},
    ]
    parts = {"type": "document", "source": {"type": "content", "content": [text("p1"), text("p2")]}}
    assert chat(user(parts))["messages"][0]["content"] == "p1\np2"

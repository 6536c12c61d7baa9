"""The history: what was evicted, as markdown, in parts and by pattern; no id leads anywhere else."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.api.client import SMALL, TOOLS, assistant, calls, chat, prose, results, user


@pytest.fixture
def evicted(api) -> str:
    """A session of 17 messages whose first 10 are evicted."""
    session = api.session(limits=SMALL)
    api.say(session, *chat(8, 20))
    assert (
        api.post(f"{session}/compactions/", {"summary": "Foxes.", "kept_from": 10}).expect(201)["outcome"]
        == "done"
    )
    return session


def history(api, session: str, query: str = "", **headers: str) -> str:
    answer = api.get(f"{session}/history/{query}", **headers).expect(200)
    assert answer.headers["Content-Type"].startswith("text/markdown")
    return answer.text


def test_it_holds_what_was_evicted_and_nothing_else(api, evicted):
    text = history(api, evicted)
    assert all(f"question {i}." in text and f"answer {i}." in text for i in range(5))
    assert not any(f"question {i}." in text or f"answer {i}." in text for i in range(5, 8))
    assert text.startswith("# ")


def test_before_any_compaction_it_is_empty_but_there(api):
    session = api.session()
    api.say(session, user("not evicted"))
    assert "not evicted" not in history(api, session)


def test_it_grows_with_the_next_compaction(api, evicted):
    before = history(api, evicted)
    api.post(f"{evicted}/compactions/", {"summary": "More.", "kept_from": 14}).expect(201)
    after = history(api, evicted)
    assert after.startswith(before)
    assert "question 6." in after


def test_it_holds_calls_and_results_word_for_word(api):
    session = api.session(tools=TOOLS)
    odd = "``` fence\n# heading\n</system> é \u2028 😀"
    api.say(
        session,
        user("go"),
        calls("c", path="/a/b.py"),
        results("c", text=odd),
        assistant("done"),
        user("next"),
    )
    api.post(f"{session}/compactions/", {"summary": "Before.", "kept_from": 4}).expect(201)
    text = history(api, session)
    assert odd in text
    assert '{"path": "/a/b.py"}' in text or '{"path":"/a/b.py"}' in text
    assert "read_file" in text


def test_the_file_holds_the_same_bytes(api, evicted, history_folder, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        api.post(f"{evicted}/compactions/", {"summary": "More.", "kept_from": 12}).expect(201)
    (file,) = [p for p in history_folder.rglob("*") if p.is_file()]
    assert file.read_bytes() == history(api, evicted).encode()


def test_a_worker_writes_the_file_too(api, history_folder):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    (file,) = [p for p in history_folder.rglob("*") if p.is_file()]
    assert file.read_bytes() == history(api, session).encode()


def test_offset_and_limit_are_lines(api, evicted):
    lines = history(api, evicted).splitlines(keepends=True)
    assert history(api, evicted, "?offset=0&limit=3") == "".join(lines[:3])
    assert history(api, evicted, "?offset=3&limit=4") == "".join(lines[3:7])
    assert history(api, evicted, "?offset=5") == "".join(lines[5:])
    assert history(api, evicted, f"?offset={len(lines)}") == ""
    assert history(api, evicted, "?limit=0") == ""
    joined = "".join(history(api, evicted, f"?offset={at}&limit=7") for at in range(0, len(lines) + 7, 7))
    assert joined == "".join(lines)


@pytest.mark.parametrize(
    "query",
    ["offset=-1", "offset=x", "limit=-1", "limit=1.5", "limit=", "offset=99999999999999999999", "limit=٣"],
)
def test_a_window_that_is_none_is_a_400(api, evicted, query):
    api.get(f"{evicted}/history/?{query}").problem(400)


def test_a_pattern_finds_lines(api, evicted):
    found = history(api, evicted, "?pattern=question").splitlines()
    assert len(found) == 5
    assert all(f"question {i}." in line for i, line in enumerate(found))
    assert history(api, evicted, "?pattern=nowhere-in-it") == ""
    assert history(api, evicted, "?pattern=question&offset=1&limit=2").splitlines() == found[1:3]


def test_a_found_line_tells_where_it_stands(api, evicted):
    lines = history(api, evicted).splitlines()
    for found in history(api, evicted, "?pattern=answer").splitlines():
        number, _, line = found.partition(":")
        assert lines[int(number)] == line.removeprefix(" ")


@pytest.mark.parametrize("pattern", ["(", "[a-", "*", "\\", "(a+)+$", "^.*$", "\x00", "é", "%"])
def test_no_pattern_is_a_server_error_or_takes_long(api, evicted, pattern):
    answer = api.get(f"{evicted}/history/?pattern={quote(pattern)}")
    assert answer.status in (200, 400)


def test_a_pattern_of_any_length_is_answered_or_refused(api, evicted):
    api.get(f"{evicted}/history/?pattern={'a' * 5000}").problem(400)


@pytest.mark.parametrize(
    "accept", ["text/markdown", "*/*", "text/plain", "application/json", "image/png", "nonsense"]
)
def test_it_is_markdown_whatever_the_caller_accepts(api, evicted, accept):
    assert "question 0." in history(api, evicted, Accept=accept)


@pytest.mark.parametrize(
    "path",
    [
        "..%2f..%2fetc%2fpasswd", "%2e%2e", "..", "../..", "%2fetc%2fpasswd", "s%00", "%00", "s/../s", "..%5c..", "%c0%ae%c0%ae", "s%2f", "s.md",
        "%252e%252e%252f", "a" * 5000, "%ed%a0%80", "😀",
    ],
)  # fmt: skip
def test_an_id_that_is_none_leads_nowhere(api, evicted, history_folder, path):
    history_folder.mkdir(parents=True)
    (history_folder.parent / "secret.md").write_text("secret")
    answer = api.get(f"/sessions/{path}/history/")
    answer.problem(404)
    assert "secret" not in answer.text


@pytest.mark.parametrize("name", ["a..b", "x.md", "A-_.0", "con", "0" * 128])
def test_every_id_that_is_allowed_has_its_file_inside_the_folder(api, history_folder, name):
    session = api.session(name, limits=SMALL)
    api.say(session, *chat(8))
    assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    files = [p for p in history_folder.parent.rglob("*") if p.is_file()]
    assert len(files) == 1
    assert files[0].is_relative_to(history_folder)
    assert re.fullmatch(
        r"[0-9a-f-]{36}/conversation_history/[0-9a-f-]{36}\.md", str(files[0].relative_to(history_folder))
    )


def test_two_projects_with_the_same_id_have_two_files(api, other, history_folder):
    for client, word in ((api, "ours"), (other, "theirs")):
        session = client.session("same", limits=SMALL)
        client.say(session, user(f"word {word}. " + prose(300)), assistant("ok"), *chat(8))
        assert client.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    assert len([p for p in history_folder.rglob("*") if p.is_file()]) == 2
    assert "word theirs." not in history(api, "/sessions/same")
    assert "word ours." not in history(other, "/sessions/same")


def test_a_storage_that_fails_delays_the_file_and_nothing_else(api, history_folder):
    history_folder.parent.mkdir(parents=True, exist_ok=True)
    history_folder.write_text("a file where the folder should be")
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
    assert "question 0." in history(api, session)
    assert api.build(session)["compaction"]

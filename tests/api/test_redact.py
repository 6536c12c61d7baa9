"""`limits.redact` at the door: patterns are checked where they are given, and no answer but the transcript shows a match."""

from __future__ import annotations

import pytest

from sessions_app.models import Session
from tests.api.client import MODEL, assistant, user

GOOD = r"PERSON-\d+"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "RE2"),
        ("a(?=b)", "RE2"),  # what RE2 leaves out, since its time would not be linear
        (r"(a)\1", "RE2"),
        ("x*", "empty"),
        ("a|", "empty"),
    ],
)
@pytest.mark.parametrize("change", [False, True], ids=["create", "change"])
def test_a_pattern_that_cannot_be_used_is_refused_by_its_place_and_rule(api, pattern, said, change):
    limits = {"limits": {"redact": [GOOD, pattern]}}
    if change:
        refused = api.patch(api.session("s") + "/", limits)
    else:
        refused = api.post("/sessions/", {"id": "s", "model": MODEL, **limits})
    (error,) = refused.problem(422, "invalid")["errors"]
    assert error["pointer"].startswith("/limits/redact")
    assert "pattern 1" in error["detail"]
    assert said in error["detail"]
    assert not Session.objects.exclude(limits={}).exists()


@pytest.mark.parametrize("patterns", [["a"] * 21, ["a" * 1001], [""], "a", [1.5, None]])
def test_there_may_be_twenty_of_a_thousand_characters(api, patterns):
    refused = api.post("/sessions/", {"id": "s", "model": MODEL, "limits": {"redact": patterns}})
    assert all(p.startswith("/limits/redact") for p in refused.pointers())


def test_the_largest_list_that_is_allowed_is_taken(api):
    api.session("s", limits={"redact": [("a" * 999 + str(n % 10)) for n in range(20)]})


def test_a_built_request_shows_no_match_and_the_transcript_every_one(api):
    session = api.session("s", system="Serve PERSON-7.", limits={"redact": [GOOD]})
    api.say(session, user("I am PERSON-12."), assistant("Hello PERSON-12."))
    built = api.build(session, messages=[user("Who am I?")], memory="PERSON-12 again")
    assert "PERSON" not in built.member("request")
    assert built.member("request").count("[redacted]") == 4
    assert api.get(f"{session}/turns/1/request/").member("request") == built.member("request")
    assert [m["content"] for m in api.transcript(session)] == [
        "I am PERSON-12.",
        "Hello PERSON-12.",
        "Who am I?",
    ]
    assert api.get(f"{session}/").expect(200)["limits"]["redact"] == [GOOD]


def test_a_pattern_is_taken_away_by_a_change(api):
    session = api.session("s", limits={"redact": [GOOD]})
    api.say(session, user("I am PERSON-12."))
    api.patch(f"{session}/", {"limits": {}}).expect(200)
    assert "PERSON-12" in api.build(session).member("request")

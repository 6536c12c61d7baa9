"""Identifiers are found, secrets never, and the ledger carries what a summary lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import identifiers, redaction
from compaction.engine.types import Block, Message, Role

CASES = Path(__file__).parents[1] / "cases"


def estimate(text: str) -> int:
    return (len(text.encode()) + 3) // 4


def message(seq: int, role: Role, *blocks: dict[str, Any] | str) -> Message:
    return Message(seq, role, tuple(Block.text_of(b) if isinstance(b, str) else Block.of(b) for b in blocks))


@pytest.mark.parametrize(
    "identifier",
    [
        "/etc/hosts", "~/notes.txt", "./run.sh", "../pkg/b", "src/ledger/apply_v9.py", "src/ledger/", "feature/add-login", "a/b/c",
        "@scope/pkg-name", r"C:\Users\new\test.py", "D:/work/x.txt", r"\\server\share\x.doc", r"src\ledger\apply.py",
        "apply_v9.py", "package.json", ".env", "Makefile", "报告.docx", "数据/报告_2024.xlsx",
        "https://x.org/a/b?q=1&r=2#top", "https://x.org/foo_(bar)", "s3://bucket/key", "arn:aws:s3:::bucket/key",
        "550e8400-e29b-41d4-a716-446655440000", "3f9c2ab71d", "3F9C2AB71D", "0xdeadbeef", "inv-2291", "ABC-123", "QX-41", "CVE-2024-1234",
        "owner/repo#797", "#797", "jo.doe+x@example.com", "v1.2.3", "2.0.1-rc1", "10.0.0.1:5432", "10.0.0.1", "localhost:8080",
        "db.internal:5432", "redis:6379", "run_20260114_7", "run_7d1e44b0", "4471-TEST", "mia_li_3668", "NM1VX1", "HAT271",
    ],
)  # fmt: skip
def test_an_identifier_is_found_as_it_is_written(identifier: str) -> None:
    for text in (
        identifier,
        f"see {identifier}.",
        f'{{"a": "{identifier}"}}',
        f"(`{identifier}`),",
        f"x\n{identifier}\ny",
    ):
        assert identifiers.find(text) == [identifier], text


@pytest.mark.parametrize(
    "text",
    [
        "", "and/or 24/7 km/h n/a input/output application/json // / .", "100ms 5GB 20 3.14 2026-01-14 2026-01-14T08:30 12:30:45 1234567",
        "e.g. i.e. foo.bar os.path Node.js utf-8 sha256 x86_64 gpt-4 step-1", "toolu_01ABCDEF srvtoolu_01ABC", "2024/01/02 ../..",
        "VGhpcyBpcyBhIGxvbmcgYmFzZTY0IHJ1biB3aXRob3V0IHNlcGFyYXRvcg/+09aZ", "QUJD" * 500, "http://a", "x.c", "=== --- ___ :: @ # +", "::",
        f"/{'n' * 90}",
    ],
)  # fmt: skip
def test_words_numbers_dates_tool_ids_and_encoded_runs_are_no_identifiers(text: str) -> None:
    assert identifiers.find(text) == []


def test_identifiers_come_once_in_order_of_first_appearance() -> None:
    assert identifiers.find("bb-22, https://x.org/bb-22 aa-11 bb-22 src/z.py:42 src/z.py") == [
        "bb-22",
        "https://x.org/bb-22",
        "aa-11",
        "src/z.py",
    ]


def test_identifiers_are_found_where_words_are_not_separated_by_spaces() -> None:
    text = "打开src/ledger/apply.py文件，见https://x.org/a。票号INV-22"
    assert identifiers.find(text) == ["src/ledger/apply.py", "https://x.org/a", "INV-22"]


def test_line_ends_escaped_in_printed_json_are_no_part_of_a_path() -> None:
    assert identifiers.find(r'"a\nsrc/b.py\r\nsrc/c.py\"') == ["src/b.py", "src/c.py"]


def test_parts_of_a_word_with_colons_are_looked_at_one_by_one() -> None:
    assert identifiers.find("sha256:abc1234def ticket:INV-22 image:no") == ["abc1234def", "INV-22"]


def test_an_address_that_held_a_secret_is_kept_without_its_query_or_not_at_all() -> None:
    assert identifiers.find(
        "https://x.org/y?api_key=hunter2222 postgres://me:hunter2222@db.internal:5432/x"
    ) == ["https://x.org/y"]


HEX = "0123456789abcdef"
ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SECRETS = st.one_of(
    st.builds("sk-ant-api03-{}".format, st.text(ALNUM, min_size=20, max_size=60)),
    st.builds("sk-{}1x".format, st.text(ALNUM, min_size=8, max_size=40)),
    st.builds("sk_live_{}".format, st.text(ALNUM, min_size=16, max_size=30)),
    st.builds("ghp_{}".format, st.text(ALNUM, min_size=16, max_size=40)),
    st.builds("github_pat_{}".format, st.text(ALNUM, min_size=16, max_size=40)),
    st.builds("AKIA{}".format, st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=16, max_size=16)),
    st.builds("AIza{}".format, st.text(ALNUM, min_size=35, max_size=35)),
    st.builds("xoxb-{}".format, st.text(ALNUM, min_size=12, max_size=40)),
    st.builds("SG.{0}.{0}".format, st.text(ALNUM, min_size=22, max_size=22)),
    st.builds("eyJ{0}.eyJ{0}.{0}".format, st.text(ALNUM, min_size=10, max_size=40)),
)  # fmt: skip
NAMED = st.builds("{}{}".format, st.text(ALNUM, min_size=6, max_size=20), st.just("7x_31"))
FRAMES = ["{}", "key {} end", '"{}"', "({}),", "a={}", "x\n{}\ny", "https://x.org/?t={}"]


@given(SECRETS, st.sampled_from(FRAMES))
def test_no_secret_of_a_known_format_is_found_or_left(secret: str, frame: str) -> None:
    text = frame.replace("{}", secret)
    assert secret not in identifiers.redact_secrets(text)
    assert not any(secret in found or found in secret for found in identifiers.find(text))


@given(
    NAMED,
    st.sampled_from(["password={}", 'DB_PASSWORD="{}"', '"password": "{}"', r"\"api_key\":\"{}\"", "api-key: {}", "GITHUB_TOKEN={}", "client_secret='{}'",
                     "Authorization: Bearer {}", "postgres://me:{}@host/db", "Authorization: Basic {}"]),
)  # fmt: skip
def test_no_secret_beside_its_name_is_found_or_left(secret: str, frame: str) -> None:
    secret = secret.replace("_", "") if "Basic" in frame else secret
    text = frame.replace("{}", secret)
    assert secret not in identifiers.redact_secrets(text)
    assert not any(secret in found for found in identifiers.find(text))


@given(st.text(st.characters(), max_size=200), SECRETS)
def test_taking_secrets_out_twice_is_the_same_as_once(text: str, secret: str) -> None:
    once = identifiers.redact_secrets(f"{text} password={secret} {text}")
    assert identifiers.redact_secrets(once) == once


@pytest.mark.parametrize(
    "text",
    ["token: str", "password=None", "password = get_password()", 'password=os.environ["X"]', "max_tokens=4096", "task-abcdefghijklmnopqrstuv",
     "next_page_token=abc123", "bearer of news", "risk-assessment-1234567", "https://x.org:8080/a@b"],
)  # fmt: skip
def test_code_and_prose_that_only_look_like_secrets_stay(text: str) -> None:
    assert identifiers.redact_secrets(text) == text


def test_a_private_key_is_removed_whole_and_a_cut_one_as_far_as_it_goes() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nMIIEow+/=\n-----END RSA PRIVATE KEY-----"
    assert identifiers.redact_secrets(f"a {key} b") == f"a {redaction.REMOVED} b"
    assert "MIIE" not in identifiers.redact_secrets(
        r"-----BEGIN PRIVATE KEY-----\nMIIEow12345678901234 and on"
    )


ANY = st.text(st.one_of(st.characters(), st.sampled_from("/\\.:@#-_=[](){}'\" \n\t中a1")), max_size=300)


@given(ANY)
def test_any_text_gives_identifiers_that_stand_in_it_on_one_line(text: str) -> None:
    for found in identifiers.find(text):
        assert found in identifiers.quoting.harmless(text)
        assert len(found.split()) == 1
        assert len(found) <= 2_020


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "ab1/",
        "sk-",
        "://",
        "http://a",
        "password=",
        "1.2.",
        "\\n",
        "x@",
        "é中",
        "-----BEGIN KEY-----",
        "eyJa.",
    ],
)
def test_a_megabyte_of_one_pattern_is_read_to_its_end(unit: str) -> None:
    text = unit * (1_000_000 // len(unit)) + " inv-2291"
    assert identifiers.find(text)[-1] == "inv-2291"


# --- the ledger


def test_what_a_vague_summary_loses_is_listed() -> None:
    """The public case 039: ticket, path, commit and run id are said early and the summary names none."""
    case = json.loads((CASES / "039.json").read_text())
    said = [m for m in case["messages"] if "role" in m]
    messages = [message(seq, m["role"], *m["content"]) for seq, m in enumerate(said)]
    made = identifiers.ledger(messages, case["script"][0]["text"], limit_tokens=100, estimate=estimate)
    assert set(made.listed) == {"inv-2291", "src/ledger/apply_v9.py", "3f9c2ab71d", "run_7d1e44b0"}
    assert made.kept == ()


def test_what_the_summary_kept_is_not_listed_but_a_part_of_a_longer_word_is_not_kept() -> None:
    messages = [message(0, "user", "inv-22 inv-2291 src/a.py")]
    made = identifiers.ledger(
        messages, "Ticket inv-2291 is about inv-229x, src/a.py.", limit_tokens=100, estimate=estimate
    )
    assert made.kept == ("inv-2291", "src/a.py")
    assert made.listed == ("inv-22",)
    assert made.found == ("inv-22", "inv-2291", "src/a.py")


def test_what_the_user_typed_comes_first_then_reuse_then_role_then_the_newest() -> None:
    call = {
        "type": "tool_use",
        "id": "t1",
        "name": "read",
        "input": {"path": "src/arg.py", "deep": [{"more": "arg-77"}, 3]},
    }
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "res-11 res-22 res-11"}],
    }
    messages = [
        message(0, "user", "typed-11"),
        message(1, "assistant", {"type": "thinking", "thinking": "thought-99"}, "said-33", call),
        message(2, "user", result),
        message(3, "user", {"type": "tool_result", "tool_use_id": "t1", "content": "res-22 res-44"}),
    ]
    made = identifiers.ledger(messages, "", limit_tokens=1_000, estimate=estimate)
    assert made.listed == ("typed-11", "res-22", "arg-77", "said-33", "src/arg.py", "res-44", "res-11")


def test_the_middle_of_a_long_user_text_counts_as_pasted() -> None:
    text = "ask-11 " + "x " * 1_500 + "log-22 " + "x " * 1_500 + "end-33"
    made = identifiers.ledger(
        [message(0, "user", text), message(1, "assistant", "said-44")],
        "",
        limit_tokens=100,
        estimate=estimate,
    )
    assert made.listed == ("ask-11", "end-33", "said-44", "log-22")


def test_a_path_argument_with_spaces_is_an_identifier() -> None:
    given = {
        "file_path": "My Documents/über uns.txt",
        "paths": ["a b.md", 7],
        "command": "x y.md",
        "dir": "password=hunter22",
        "file": "a\nb",
    }
    made = identifiers.ledger(
        [message(1, "assistant", {"type": "tool_use", "id": "t", "name": "w", "input": given})],
        "",
        limit_tokens=100,
        estimate=estimate,
    )
    assert {"My Documents/über uns.txt", "a b.md"} <= set(made.found)
    assert not any("hunter22" in found or "\n" in found for found in made.found)
    assert list(identifiers.paths(None)) == []


def test_an_argument_whose_name_says_secret_is_not_looked_at() -> None:
    call = {
        "type": "tool_use",
        "id": "t",
        "name": "login",
        "input": {"db_password": "hunter_2222", "user": "mia_li_3668"},
    }
    assert identifiers.ledger(
        [message(1, "assistant", call)], "", limit_tokens=99, estimate=estimate
    ).found == ("mia_li_3668",)


def test_blocks_of_other_kinds_hold_nothing_for_the_ledger() -> None:
    assert (
        identifiers.ledger(
            [message(0, "user", {"type": "image", "source": {"data": "inv-22"}})],
            "",
            limit_tokens=9,
            estimate=estimate,
        ).found
        == ()
    )


IDS = st.lists(st.builds("ID-{}".format, st.integers(10, 10**7)), unique=True, max_size=40)


@given(IDS, st.integers(0, 120), st.sampled_from([1, 3, 7]))
def test_the_ledger_never_exceeds_its_limit(ids: list[str], limit: int, weight: int) -> None:
    def uneven(text: str) -> int:
        return len(text) // weight + (3 if text.count("\n") > 4 else 0)

    made = identifiers.ledger([message(0, "user", " ".join(ids))], "", limit_tokens=limit, estimate=uneven)
    assert not made.listed or uneven(identifiers.lines(made.listed)) <= limit
    assert set(made.listed) <= set(made.found)
    assert sorted(made.found) == sorted(ids)


def test_a_short_identifier_still_fits_where_a_longer_one_does_not() -> None:
    made = identifiers.ledger(
        [message(0, "user", f"AB-11 src/{'long_' * 20}name.py CD-22")], "", limit_tokens=5, estimate=estimate
    )
    assert made.listed == ("AB-11", "CD-22")

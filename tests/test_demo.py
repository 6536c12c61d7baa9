"""The demo's own parts: an explorer that repeats itself, a screen, and checks that fail when they should."""

import dataclasses
import io
import json
from xml.etree import ElementTree

import pytest

from demo import checks, explorer, record, runtime, sawtooth, screen, tools
from tests.upstream import strict_anthropic

TOPICS = (
    explorer.Topic(
        "HGO-1001: how does shop work? notes/HGO-1001.md", "shop", "notes/HGO-1001.md", (r"def \w+", r"class \w+"), ("HGO-1001",)
    ),
    explorer.Topic("And its cart? notes/cart.md", "shop", "notes/cart.md", (r"def \w+",)),
    explorer.Topic("Last, its tax: notes/tax.md", "shop/tax.py", "notes/tax.md", (r"def \w+",)),
)  # fmt: skip


@pytest.fixture
def shop(tmp_path):
    """A small source tree."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("cart", "order", "tax"):
        body = "".join(f"def {name}_{n}(x):\n    return x + {n}\n\n\n" for n in range(30))
        (folder / f"{name}.py").write_text(f"class {name.title()}:\n    pass\n\n\n{body}")
    (tmp_path / "secret.txt").write_text("not for you")
    return folder


def session_of(shop, notes, rounds=12):
    """(the whole transcript, the explorer) of a session without a server."""
    agent = explorer.Explorer(tools.Tools({"shop": shop}, notes), TOPICS, rounds)
    messages = [agent.ask()]
    for turn in range(1, agent.turns + 1):
        answer, stop_reason = agent.answer()
        messages.append(answer)
        if stop_reason == "tool_use":
            messages.append(agent.results(answer))
        elif turn < agent.turns:
            messages.append(agent.ask())
    return messages, agent


class TestExplorer:
    def test_the_same_tree_gives_the_same_session(self, shop, tmp_path):
        one, _ = session_of(shop, tmp_path / "notes1")
        other, _ = session_of(shop, tmp_path / "notes2")
        assert json.dumps(one) == json.dumps(other)

    def test_another_tree_gives_another(self, shop, tmp_path):
        one, _ = session_of(shop, tmp_path / "notes1")
        (shop / "cart.py").write_text("def only(): ...\n")
        assert session_of(shop, tmp_path / "notes2")[0] != one

    def test_each_request_ends_in_an_answer_without_calls(self, shop, tmp_path):
        messages, agent = session_of(shop, tmp_path / "notes")
        assert sum(isinstance(m["content"], str) for m in messages) == len(TOPICS)
        assert sum(m["role"] == "assistant" for m in messages) == agent.turns
        assert [b["type"] for b in messages[-1]["content"]] == ["text"]

    def test_rounds_have_parallel_calls_with_one_result_each_in_order(self, shop, tmp_path):
        messages, _ = session_of(shop, tmp_path / "notes")
        widths = []
        for answer, results in zip(messages[1::2], messages[2::2], strict=False):
            calls = [b["id"] for b in answer["content"] if b["type"] == "tool_use"]
            if calls:
                assert calls == [b["tool_use_id"] for b in results["content"]]
            widths.append(len(calls))
        assert {0, 1, 2} < set(widths)
        assert max(widths) == explorer.PLACES

    def test_ids_of_calls_come_again(self, shop, tmp_path):
        messages, _ = session_of(shop, tmp_path / "notes")
        ids = [b["id"] for m in messages[1::2] for b in m["content"] if b["type"] == "tool_use"]
        assert len(set(ids)) < len(ids)

    def test_it_reads_around_what_its_grep_found(self, shop, tmp_path):
        messages, _ = session_of(shop, tmp_path / "notes")
        reads = [b["input"] for b in messages[5]["content"] if b["type"] == "tool_use"]
        assert {read["path"] for read in reads} == {"shop/cart.py"}
        assert [read["offset"] for read in reads] == [2, 6, 10, 14, 18, 22]

    def test_notes_are_written_and_their_revisions_planted(self, shop, tmp_path):
        _, agent = session_of(shop, tmp_path / "notes")
        written = (tmp_path / "notes" / "HGO-1001.md").read_text()
        assert agent.planted["HGO-1001"] == "request 1"
        assert agent.planted[tools.revision(written)] == "result of write_file, request 1"

    def test_what_the_demo_explores_is_installed(self):
        trees = tools.installed("django", "rest_framework", "celery", "kombu")
        for topic in explorer.TOPICS:
            root, _, rest = topic.where.partition("/")
            assert (trees[root] / rest).is_dir()
        with pytest.raises(LookupError, match="no_such_package"):
            tools.installed("no_such_package")

    def test_planted_identifiers_stand_in_the_request_that_plants_them(self):
        for topic in explorer.TOPICS:
            assert all(name in topic.ask for name in topic.planted)


class TestTools:
    @pytest.mark.parametrize(
        ("name", "arguments", "says"),
        [
            ("read_file", {"path": "shop/../secret.txt"}, "leads out"),
            ("read_file", {"path": "/etc/passwd"}, "not below"),
            ("read_file", {"path": "shop/none.py"}, "no such file"),
            ("read_file", {"path": "shop/tax.py", "offset": 9_999}, "has only"),
            ("list_dir", {"path": "shop/tax.py"}, "not a folder"),
            ("write_file", {"path": "shop/tax.py", "content": ""}, "only notes/"),
        ],
    )
    def test_what_is_not_allowed_or_not_there_is_an_error_result(self, shop, tmp_path, name, arguments, says):
        before = (shop / "tax.py").read_text()
        text, failed = tools.Tools({"shop": shop}, tmp_path / "notes").call(name, arguments)
        assert failed
        assert says in text
        assert (shop / "tax.py").read_text() == before

    def test_answers_are_bounded(self, shop, tmp_path):
        (shop / "long.py").write_text("def f(): pass\n" * 5_000)
        own = tools.Tools({"shop": shop}, tmp_path / "notes")
        assert len(own.read_file("shop/long.py")) < tools.MOST_CHARS + 100
        assert len(own.grep("def", "shop/long.py").splitlines()) == tools.MOST_HITS + 1


# --- checks


def turn(number=1, **values):
    defaults = {
        "sent": 30_000, "budget": 31_000, "trigger": 54_400, "precompute": 48_000, "action": "nothing", "build_ms": 20.0, "waited_ms": 0.0,
    }  # fmt: skip
    return record.Turn(number, **(defaults | values))


@pytest.fixture
def good():
    """A run in which everything holds."""
    turns = [turn(n, action="swapped" if n == 100 else "nothing") for n in range(1, 161)]
    appended = [
        {"role": "user", "content": "HGO-7: look"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": "found it\nhere"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "There."}]},
    ]
    return record.Recording(
        window=64_000, turns=turns, appended=appended, stored=json.loads(json.dumps(appended)), raw_tokens=450_000, evicted=3,
        planted={"HGO-7": "request 1"}, session={"compactions": 1, "history_path": "/conversation_history/demo.md"},
        last_request={"messages": [{"role": "user", "content": "HGO-7, see /conversation_history/demo.md"}]},
        last_compaction={"identifiers": {"found": 5, "kept": 4}}, history="# demo\nHGO-7: look\nfound it\n",
    )  # fmt: skip


def failed(run):
    return [check.name for check in checks.all_of(run) if not check.holds]


class TestChecks:
    def test_a_good_run_passes_all(self, good):
        assert failed(good) == []

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("builds that waited", {"waited_ms": 51.0}),
            ("builds that waited", {"inside": True}),
            ("valid requests", {"fault": "messages: at least one message is required"}),
            ("largest request", {"sent": 64_001}),
            ("largest request", {"budget": 64_001}),
            ("messages dropped", {"action": "dropped"}),
        ],
    )
    def test_one_bad_turn_fails_its_check(self, good, name, fault):
        good.turns[42] = dataclasses.replace(good.turns[42], **fault)
        assert failed(good) == [name]

    @pytest.mark.parametrize("spoil", [
        lambda stored: stored.pop(),
        lambda stored: stored.append(stored[0]),
        lambda stored: stored[0].update(content="HGO-7: look "),
        lambda stored: stored[1].update(content=[{"text": "I look.", "type": "text"}]),
    ], ids=["missing", "added", "changed", "order of keys"])  # fmt: skip
    def test_a_transcript_that_differs_fails(self, good, spoil):
        spoil(good.stored)
        assert failed(good) == ["transcript"]

    def test_a_short_run_fails(self, good):
        good.raw_tokens = 399_999
        assert failed(good) == ["turns"]

    def test_a_counter_that_says_otherwise_fails(self, good):
        good.session["compactions"] = 2
        assert failed(good) == ["compactions"]

    def test_a_run_without_a_compaction_fails(self, good):
        good.turns = [turn(n) for n in range(1, 161)]
        good.session["compactions"] = 0
        assert failed(good) == ["compactions"]

    def test_a_history_without_an_early_message_fails(self, good):
        good.history = "# demo\nHGO-7: look\n"
        assert failed(good) == ["history"]

    def test_a_summary_without_the_path_fails(self, good):
        good.last_request["messages"][0]["content"] = "HGO-7"
        assert failed(good) == ["history"]

    def test_a_lost_identifier_fails(self, good):
        good.planted["HGO-8"] = "request 2"
        assert failed(good) == ["identifiers"]


class TestJudges:
    def test_a_request_that_the_strict_rules_refuse_is_a_fault(self):
        request = {"model": "m", "max_tokens": 1, "messages": [{"role": "assistant", "content": "hello"}]}
        assert "first message" in (runtime.fault(request) or "")
        request["messages"][0]["role"] = "user"
        assert runtime.fault(request) is None

    @pytest.mark.parametrize(
        ("coverage", "good"),
        [
            ({"summarised": None, "dropped": None, "verbatim": [0, 9]}, True),
            ({"summarised": [0, 4], "dropped": None, "verbatim": [5, 9]}, True),
            ({"summarised": [0, 4], "dropped": None, "verbatim": [6, 9]}, False),
            ({"summarised": [0, 4], "dropped": [4, 5], "verbatim": [6, 9]}, False),
            ({"summarised": None, "dropped": None, "verbatim": [0, 8]}, False),
        ],
    )
    def test_coverage_has_no_gap_and_no_overlap(self, coverage, good):
        assert (runtime.covered(coverage, 10) is None) == good

    def test_the_usage_reported_is_the_strict_count(self):
        request = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hello " * 500}]}
        usage = strict_anthropic.Cache().use(request)
        assert sum(usage.values()) == strict_anthropic.count(request)


# --- what is drawn


class TestScreen:
    def test_a_line_tells_the_turn(self):
        told = screen.line(turn(7, sent=32_000, action="truncated", build_ms=18.4), 160, 64_000)
        assert told.split() == [
            "7/160",
            "█" * 20 + "·" * 10 + ":···|·····",
            "32,000",
            "truncated",
            "18",
            "ms",
        ]

    def test_a_line_tells_waiting_and_faults(self):
        told = screen.line(turn(7, waited_ms=312, fault="no pairs"), 160, 64_000)
        assert "waited 312 ms" in told
        assert "INVALID: no pairs" in told

    def test_a_bar_never_leaves_its_cells(self):
        for sent in (0, 64_000, 90_000):
            assert len(screen.bar(turn(sent=sent, precompute=None), 64_000, 30)) == 30

    @pytest.mark.parametrize("width", [40, 100, 160, 400])
    def test_the_chart_fits_its_width(self, width):
        turns = [turn(n, sent=n * 400) for n in range(1, 161)]
        for seen in (0, 1, 80, 160):
            rows = screen.chart(turns[:seen], 160, 64_000, width)
            assert len(rows) == screen.HEIGHT
            assert {len(row) for row in rows} <= {screen._LEFT + min(width, -(-160 // -(-160 // width)))}

    def test_the_chart_is_as_high_as_the_tokens(self):
        rows = screen.chart([turn(1, sent=32_000), turn(2, sent=64_000)], 2, 64_000, 80)
        columns = [[row[screen._LEFT + at] for row in rows].count("█") for at in (0, 1)]
        assert columns == [screen.HEIGHT // 2, screen.HEIGHT]

    def test_without_a_terminal_there_are_plain_lines(self, good):
        out = io.StringIO()
        shown = screen.Screen(160, out)
        shown.turn(good.turns[0], good)
        shown.check(checks.Check("turns", True, "160"))
        assert "\x1b" not in out.getvalue()
        assert len(out.getvalue().splitlines()) == 2

    def test_on_a_terminal_it_redraws_in_place(self, good, monkeypatch):
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setenv("LINES", "40")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        out = io.StringIO()
        out.isatty = lambda: True
        shown = screen.Screen(160, out)
        shown.turn(good.turns[98], good)
        shown.turn(good.turns[99], good)
        first, again = out.getvalue().split(f"\x1b[{screen.HEIGHT + 2 + screen.EVENTS}A")
        assert first.count("\n") == again.count("\n") == screen.HEIGHT + 2 + screen.EVENTS
        assert "\x1b[32mswapped" in again


class TestPicture:
    def test_it_is_svg_with_the_lines_and_what_was_done(self, good):
        picture = sawtooth.svg(good)
        ElementTree.fromstring(picture)
        for word in ("window 64k", "trigger 54k", "precompute", "summary swapped in (1)", "160 turns"):
            assert word in picture
        assert picture.count("<circle") == 2

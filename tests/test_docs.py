"""The documents: links lead somewhere, code compiles, and what they name exists."""

import importlib
import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from django.urls import resolve

from hango import env, reference

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HOSTS = {"127.0.0.1", "api.openai.com", "keepachangelog.com"}  # others would be addresses that nobody checks
MODULES = ("compaction", "compaction.engine", "sessions_app")


def pages(given=None):
    return pytest.mark.parametrize("page", given or PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page):
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def quoted(page):
    """What stands between single backticks, outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def anchors(page):
    """The anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def walk_through():
    text = README.read_text(encoding="utf-8")
    part = text.split("<!-- walk-through: begin -->")[1].split("<!-- walk-through: end -->")[0]
    return BLOCK.search(part).group(3)


@pages()
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pages()
def test_addresses_are_few_and_no_path_is_of_one_machine(page):
    text = page.read_text(encoding="utf-8")
    assert {host.split(":")[0] for host in re.findall(r"https?://([^/\s$`)]+)", text)} <= HOSTS | {"name"}
    assert not re.search(r"(?<![\w.])/(home|root|tmp|Users|work)/", text)


@pages()
def test_python_blocks_compile(page):
    for _, language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(code, str(page), "exec")


@pages()
def test_files_that_are_named_exist(page):
    for name in quoted(page):
        if re.fullmatch(r"[\w.\-]+(/[\w.\-]+)+\.(py|md|toml|yml|lock|svg)", name):
            assert any((ROOT / folder / name).exists() for folder in ("", "compaction", "docs")), name


def test_functions_that_the_architecture_names_exist():
    named = [
        re.fullmatch(r"([a-z_]+)\.([A-Za-z_]+)", text)
        for text in quoted(ROOT / "docs/system-architecture.md")
    ]
    checked = 0
    for module, name in (match.groups() for match in named if match and match[2] != "py"):
        places = [
            f"{package}.{module}" for package in MODULES if importlib.util.find_spec(f"{package}.{module}")
        ]
        if places:
            assert any(hasattr(importlib.import_module(place), name) for place in places), f"{module}.{name}"
            checked += 1
    assert checked > 20


def test_the_walk_through_takes_twenty_lines_of_calls_that_exist():
    lines = walk_through().splitlines()
    calls = [match[1] for line in lines if (match := re.match(r"hango '?([^' ?]*)", line))]
    assert len(lines) <= 20
    assert len(calls) >= 10
    for path in calls:
        assert resolve(f"/api/v1/sessions/{path}")


def test_the_table_of_settings_is_what_the_settings_say(tmp_path):
    copy = tmp_path / "README.md"
    shutil.copy(README, copy)
    assert reference.main([str(copy)]) == 0
    assert copy.read_text(encoding="utf-8") == README.read_text(encoding="utf-8"), "run `make docs`"


@pages()
def test_every_variable_that_is_named_is_read_somewhere(page):
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for name in set(re.findall(r"\b(?:HANGO|ANTHROPIC)_[A-Z0-9_]+\b", page.read_text(encoding="utf-8"))):
        if name.startswith("HANGO_TEST_"):
            assert name in tests.replace(Path(__file__).read_text(encoding="utf-8"), ""), name
        else:
            assert name.removesuffix("_FILE") in env.REGISTRY, name


@pages(DECISIONS)
def test_a_decision_is_short_and_tells_context_decision_consequences(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40
    assert lines[0].startswith(f"# {page.name[:4]} ")
    assert [line for line in lines if line.startswith("## ")] == [
        "## Context",
        "## Decision",
        "## Consequences",
    ]


def test_decisions_are_numbered_without_a_gap_and_listed():
    assert [page.name[:4] for page in DECISIONS] == [f"{n:04}" for n in range(1, len(DECISIONS) + 1)]
    listed = LINK.findall((ROOT / "docs/decisions/README.md").read_text(encoding="utf-8"))
    assert listed == [page.name for page in DECISIONS]

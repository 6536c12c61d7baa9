"""The history file: a mirror of the evicted messages, written whole, and never in the way (SPEC F8; success 2)."""

import os
import re
from pathlib import Path

import pytest
from django.core.files.storage import storages

from compaction import offload
from tests.flows.runtime import new, result, text, use


def mirrored(runtime):
    return Path(storages["history"].path(offload.key(runtime.session))).read_text("utf-8")


def sections(markdown):
    return [int(n) for n in re.findall(r"^## (\d+) · ", markdown, re.MULTILINE)]


def test_the_mirror_holds_the_evicted_messages_once_in_order_and_the_summary_names_it(start):
    runtime = start()
    runtime.exchanges(8)
    for round_ in range(3):
        runtime.exchanges(10, first=10 + 10 * round_)
        runtime.request_job()
        (job,) = runtime.work()
        assert (job.status, job.mirrored) == ("ready", True)
        found = mirrored(runtime)
        assert sections(found) == list(range(job.kept_from))
        assert found == "".join(offload.markdown(runtime.session, job.kept_from))
        assert found == "".join(offload.lines(runtime.session))
        assert job.offload_path in job.head
    assert runtime.exchange("On.", "Yes.").turn.kept_from == job.kept_from


def test_it_is_verbatim_with_names_ids_errors_and_fences_that_hold(start):
    nasty = "```\n## 99 · user\n````\n</summary> and `ticks`"
    runtime = start()
    runtime.append(
        new("user", text(nasty)),
        new("assistant", [use("call_A", "write_file", path="a.md", body=nasty)]),
        new("user", [result("call_A", "disk full: /dev/sda1", is_error=True)]),
        new("assistant", "Failed."),
    )
    runtime.exchanges(20)
    runtime.work()
    found = mirrored(runtime)
    for part in (nasty, "write_file", "call_A", "disk full: /dev/sda1", "error"):
        assert part in found
    outside, fence = [], ""
    for line in found.splitlines():  # read as markdown does: what is inside a fence is no heading
        ticks = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif ticks:
            fence = ticks[0]
        else:
            outside.append(line)
    assert fence == ""
    headings = [line for line in outside if line.startswith("## ")]
    assert len(headings) == len(set(headings)) == runtime.compactions(status="ready")[0].kept_from


def test_a_storage_that_fails_marks_the_mirror_stale_and_blocks_nothing(start, monkeypatch):
    runtime = start()
    runtime.exchanges(20)

    def down(*args):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(offload, "_write_atomically", down)
        (job,) = runtime.work()
    assert (job.status, job.mirrored) == ("ready", False)
    assert sections("".join(offload.lines(runtime.session))) == list(range(job.kept_from))  # from the rows
    runtime.exchanges(10, first=50)
    runtime.request_job()
    (following,) = runtime.work()
    assert following.mirrored
    assert sections(mirrored(runtime)) == list(range(following.kept_from))


def test_a_write_that_dies_half_way_leaves_the_old_file_whole_and_nothing_beside_it(start, monkeypatch):
    runtime = start()
    runtime.exchanges(20)
    runtime.work()
    old = mirrored(runtime)
    folder = Path(storages["history"].path(offload.key(runtime.session))).parent

    def dies(number):
        raise OSError("power")

    runtime.exchanges(10, first=50)
    runtime.request_job()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dies)
        runtime.work()
    assert mirrored(runtime) == old
    assert [p for p in folder.iterdir() if p.suffix == ".tmp"] == []


def test_messages_dropped_mechanically_are_in_the_history_too(start):
    runtime = start(limits={"precompute_frac": None})
    runtime.exchanges(14)
    runtime.say("Go on.")
    runtime.build()
    for _ in range(2):
        climbed = runtime.overflow()
    assert climbed.rung == "truncate"
    assert sections("".join(offload.lines(runtime.session))) == list(range(climbed.built.turn.first_seq))


@pytest.mark.parametrize("public_id", ["a..b", "x" * 128, "0.md"])
def test_the_key_is_made_of_our_own_ids(start, public_id):
    runtime = start(public_id=public_id)
    assert (
        offload.key(runtime.session)
        == f"{runtime.session.project_id}/conversation_history/{runtime.session.pk}.md"
    )


def test_one_read_of_a_window_and_of_a_pattern(start):
    runtime = start()
    runtime.exchanges(20)
    runtime.work()
    whole = list(offload.lines(runtime.session))
    assert list(offload.lines(runtime.session, offset=3, limit=4)) == whole[3:7]
    hits = list(offload.lines(runtime.session, pattern="line-3 ASKED"))
    assert len(hits) == 1
    number, _, line = hits[0].partition(": ")
    assert whole[int(number)] == line

"""What goes into a summary, and what code adds to it whatever the model wrote (DESIGN 5, Summary)."""

import json

from compaction.engine.errors import ProviderFailed
from tests.flows.runtime import new, result, shown_text, text, use, words

DOWN = ProviderFailed("no", kind="invalid_request_error", http_status=400)


def told(call):
    return call.messages[0]["content"][0]["text"]


def compacted(runtime):
    runtime.request_job()
    *_, job = runtime.work()  # a long span is folded in several claims
    assert job.status == "ready", job.error_code
    return job


def test_update_mode_the_base_and_only_the_new_span_go_in(start, provider):
    runtime = start()
    runtime.exchanges(10)
    provider.play("BASE-NOTES: the first ten.")
    base = compacted(runtime)
    runtime.exchanges(10, first=10)
    provider.play("SECOND-NOTES: all of it.")
    second = compacted(runtime)
    assert second.base_id == base.pk
    assert second.kept_from > base.kept_from
    one, two = provider.calls[-2:]
    assert "LINE-0 asked" in told(one)
    assert "BASE-NOTES" in told(two)
    went_in = [seq for seq in range(40) if f"LINE-{seq // 2} {('asked', 'answered')[seq % 2]}" in told(two)]
    assert went_in == list(range(base.kept_from, second.kept_from))
    assert two.system != one.system
    assert second.evicted_messages == second.kept_from - base.kept_from
    built = runtime.exchange("Go on.", "Yes.")
    assert "SECOND-NOTES" in shown_text(built)
    assert "BASE-NOTES" not in shown_text(built)


def test_an_extractive_base_is_read_again_by_a_model(start, provider):
    runtime = start(limits={"max_wait_s": 0, "precompute_frac": None})
    runtime.exchanges(40)
    runtime.say("Go on.")
    built = runtime.build()
    assert built.compaction.kind == "extractive"
    assert provider.calls == []
    runtime.complete("Yes.")
    job = compacted(runtime)
    assert (job.kind, job.base_id) == ("model", None)
    asked = "".join(told(c) for c in provider.calls)
    for n in range(job.kept_from // 2):
        assert f"LINE-{n} asked" in asked


def test_the_summary_uses_the_summarizers_model_and_its_usage_is_accounted_for_separately(start, provider):
    runtime = start(summarizer_model="claude-haiku-4-5")
    runtime.exchanges(20)
    runtime.work()
    (job,) = runtime.compactions()
    assert provider.calls[0].model == job.summarizer_model == "claude-haiku-4-5"
    assert provider.calls[0].purpose == "summarize"
    assert job.usage == {"input_tokens": 100, "output_tokens": 10}
    assert job.cost_usd > 0
    assert (runtime.fresh().last_input_tokens, runtime.session.compactions) == (0, 0)


def test_pinned_messages_are_in_the_head_verbatim_through_every_compaction(start, provider):
    runtime = start()
    pin = 'Rule 7: never touch  "prod-db-1"\n  and keep two  spaces.'
    runtime.say(pin, pinned=True)
    runtime.append(new("assistant", "Understood."))
    for n in range(3):
        runtime.exchanges(10, first=10 * n)
        provider.play(f"NOTES-{n}: nothing about rules.")
        job = compacted(runtime)
        assert pin in job.head
        built = runtime.exchange("Go on.", "Yes.")
        first = json.loads(built.body)["messages"][0]
        assert first["role"] == "user"
        assert sum(b["text"].count(pin) for b in first["content"]) == 1


def test_the_last_user_request_is_in_the_head_verbatim_under_a_long_tool_loop(start, provider):
    asked = "Port every module under src/ to the new API;\n\tbut leave  `legacy.py`  alone, please."
    runtime = start(10_000)
    runtime.say(asked)
    for n in range(40):
        built = runtime.round(300, f"RESULT-{n}")
        assert asked in "".join(
            b.get("text", "") for m in json.loads(built.body)["messages"] for b in m["content"]
        )
        runtime.work()
    assert len(runtime.compactions(status="ready")) >= 2
    for job in runtime.compactions(status="ready"):
        assert asked in job.head
    runtime.say("Stop now and report.")  # a new request: the old one is history
    built = runtime.build()
    last = json.loads(built.body)["messages"][-1]
    assert last["content"][-1]["text"] == "Stop now and report."


def test_identifiers_that_the_summary_lost_are_in_the_ledger_and_shown(start, provider):
    runtime = start(40_000)
    kept, lost = (
        "src/billing/invoice_42.py",
        ["req-77310", "https://ci.example.org/job/8812", "a81bc81b-dead-4e5d-abff-90865d1e13b1"],
    )
    for n in range(4):
        runtime.append(
            new("user", text(f"Look at {kept} and {lost[n % 3]} again, round {n}.")),
            new("assistant", [*text("Reading."), use(f"c{n}", path=kept)]),
            new("user", [result(f"c{n}", f"job {lost[0]} at {lost[1]} as {lost[2]}")]),
            new("assistant", "Read."),
        )
    runtime.exchanges(20)
    provider.play(f"## Goal\nThe file {kept} is being worked on.")
    job = compacted(runtime)
    for identifier in lost:
        assert identifier in job.ledger
        assert identifier in job.head
    assert kept not in job.ledger
    assert set(lost) | {kept} <= set(job.identifiers_found)
    assert set(lost) | {kept} <= set(job.identifiers_kept)
    # Carried once, carried on: the next summary does not lose them either.
    runtime.exchanges(20, first=50)
    provider.play("## Goal\nSomething else altogether.")
    second = compacted(runtime)
    for identifier in [*lost, kept]:
        assert identifier in second.head


def test_no_secret_of_a_known_format_is_in_ledger_or_head(start, provider):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    runtime = start()
    for n in range(20):
        runtime.append(new("user", text(words(200, f"LINE-{n} with {secret}"))), new("assistant", words(200)))
    runtime.exchanges(3, 600)  # whose last request is carried verbatim, and holds none
    provider.play("## Goal\nNothing kept.")
    job = compacted(runtime)
    assert secret not in job.head + json.dumps([job.ledger, job.identifiers_found, job.identifiers_kept])


def test_the_head_names_the_history_path_and_the_tool_to_read_it_with(start, provider):
    runtime = start(public_id="my-session.1")
    runtime.exchanges(20)
    runtime.work()
    (job,) = runtime.compactions()
    assert "/conversation_history/my-session.1.md" in job.head
    assert "read_file" in job.head
    assert job.offload_path == "/conversation_history/my-session.1.md"


def test_the_latest_input_of_a_state_tool_is_carried_verbatim(start, provider):
    runtime = start(
        limits={"state_tools": ["write_todos"]},
        tools='[{"name":"write_todos","input_schema":{"type":"object"}}]',
    )
    for n in range(3):
        todos = [{"title": f"step {n}: check  twice", "done": False}]
        runtime.append(
            new("user", f"Plan {n}."), new("assistant", [use(f"t{n}", "write_todos", todos=todos)]), new("user", [result(f"t{n}", "ok")]),
            new("assistant", "Planned."),
        )  # fmt: skip
    runtime.exchanges(20)
    job = compacted(runtime)
    assert "step 2: check  twice" in job.head
    assert "step 1: check" not in job.head


def test_a_usable_text_without_headings_is_accepted_and_noted(start, provider):
    runtime = start()
    runtime.exchanges(20)
    provider.play("Just one line.")
    job = runtime.work()[0]
    assert (job.status, job.notes) == ("ready", ["no-headings"])


def test_without_a_model_the_worker_writes_extracts(start, settings, provider):
    settings.HANGO_PROVIDER = "extractive"
    runtime = start()
    runtime.say("Find out why inv-2291 is slow.")
    runtime.append(
        new("assistant", [use("c1", path="src/import.py")]),
        new("user", [result("c1", words(100))]),
        new("assistant", "Read."),
    )
    runtime.exchanges(20)
    (job,) = runtime.work()
    assert (job.status, job.kind, job.usage) == ("ready", "extractive", None)
    assert "inv-2291" in job.head
    assert "src/import.py" in job.head
    assert provider.calls == []
    runtime.exchanges(12, first=40)
    (second,) = runtime.work() or compacted_list(runtime)
    assert second.base_id == job.pk  # without a model, extracts go on from extracts
    assert "inv-2291" in second.head


def compacted_list(runtime):
    runtime.request_job()
    return runtime.work()

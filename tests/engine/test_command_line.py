"""`python -m lab.engine` as a person types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.engine.events import read_record
from lab.engine.harnesses.conversation import rebuild_inputs
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.yaml_form import to_yaml
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, plain, says

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def command(folder: Path, out: Path, *arguments: str) -> list[str]:
    given = ["--out", str(out), "--data-folder", str(folder), "--sandbox", "process", *arguments]
    return [sys.executable, "-m", "lab.engine", *given]


def run(folder: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FAKE_KEY": KEY}
    return subprocess.run(
        command(folder, out, *arguments), capture_output=True, text=True, env=environment, timeout=300
    )


def kinds(out: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in out.read_text().splitlines()]


def test_a_scripted_run_writes_its_events_and_ends_with_a_verdict(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    done = run(folder, out, "--task", "parse-duration", "--model", "scripted/solver")
    assert done.returncode == 0, done.stderr
    assert "verdict: resolved" in done.stdout
    assert "exit reason: agent" in done.stdout
    records = [read_record(json.loads(line)) for line in out.read_text().splitlines()]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert (records[0].event.kind, records[-1].event.kind) == ("attempt_started", "run_ended")
    rebuilt = list(rebuild_inputs(records))
    assert rebuilt
    assert all(found.sha256_actual == found.sha256_expected for found in rebuilt)
    archives = [r.event.archive for r in records if r.event.kind == "workspace_changed" and r.event.archive]
    assert archives
    assert all((tmp_path / "events.jsonl.blobs" / archive).is_file() for archive in archives)


def test_a_harness_may_be_a_file(folder: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "events.jsonl", tmp_path / "mine.yaml"
    text = to_yaml(load_preset("leaf-compatible"))
    file.write_text(text.replace("name: leaf-compatible", "name: mine").replace("name: Bash", "name: Shell"))
    asked = ("--task", "parse-duration", "--model", "mine", "--harness", str(file))
    with FakeOpenAI(says("done")) as server:
        run(folder, out, *asked, "--base-url", server.base_url)
    body = server.calls[0].body
    assert [tool["function"]["name"] for tool in body["tools"]][-1] == "Shell"
    started = read_record(json.loads(out.read_text().splitlines()[0])).event
    assert started.harness["config"]["name"] == "mine"

    file.write_text(text.replace("executor: bash", "executor: bosh"))
    refused = run(folder, tmp_path / "other.jsonl", *asked, "--base-url", "http://127.0.0.1:9/v1")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"{file}: tools.Bash.executor: 'bosh' ")


def test_a_real_endpoint_gets_the_key_of_the_named_variable_and_the_limits_asked(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "events.jsonl"
    with FakeOpenAI(says("done")) as server:
        done = run(
            folder,
            out,
            *("--task", "parse-duration", "--model", "mine", "--model-id", "fake"),
            *("--base-url", server.base_url, "--key-variable", "FAKE_KEY"),
            *(
                "--limit",
                "max_steps=5",
                "--limit",
                "max_tokens_per_turn=100",
                "--sampling",
                "temperature=0.2",
            ),
        )
        (request,) = server.calls
    assert done.returncode == 0, done.stderr
    assert "verdict: unresolved" in done.stdout
    assert "unknown cost" in done.stdout
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (request.body["max_completion_tokens"], request.body["temperature"]) == (100, 0.2)
    assert json.loads(out.read_text().splitlines()[0])["limits"]["max_steps"] == 5
    assert KEY not in out.read_text()


def test_a_run_that_could_not_be_graded_exits_with_one(folder: Path, tmp_path: Path) -> None:
    done = run(
        folder, tmp_path / "e", "--task", "parse-duration", "--model", "m", "--base-url", "http://127.0.0.1:9/v1",
        "--limit", "max_total_time_sec=1",
    )  # fmt: skip
    assert done.returncode == 0
    assert "exit reason: max_time" in done.stdout
    with FakeOpenAI(Answer(status=401, pieces=[b"{}"])) as server:
        refused = run(
            folder, tmp_path / "f", "--task", "parse-duration", "--model", "m", "--base-url", server.base_url
        )
    assert refused.returncode == 1
    assert "verdict: not graded" in refused.stdout
    assert "llm_query_error" in refused.stdout


def test_control_c_cancels_and_keeps_the_patch(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    endless = Answer(pieces=[f"data: {json.dumps(delta(content='word '))}\n\n".encode()] * 20_000, pause=0.02)
    with FakeOpenAI(endless) as server:
        process = subprocess.Popen(
            command(folder, out, "--task", "parse-duration", "--model", "m", "--base-url", server.base_url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 150
        while not server.calls and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=150)
    assert process.returncode == 1
    assert "exit reason: cancelled" in said
    assert kinds(out)[-4:] == ["model_call_interrupted", "patch_captured", "attempt_ended", "run_ended"]


def killed_at(folder: Path, out: Path, kind: str, count: int) -> None:
    """Start a scripted run and kill it when its log holds so many events of this kind."""
    asked = ["--task", "parse-duration", "--model", "scripted/struggler"]
    process = subprocess.Popen(command(folder, out, *asked), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 150
    while not (out.exists() and out.read_text().count(f'"kind": "{kind}"') >= count):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    process.wait()


@pytest.mark.parametrize(("kind", "count"), [("model_call_started", 3), ("tool_call_started", 4)])
def test_a_run_whose_process_was_killed_goes_on_from_its_log(
    folder: Path, tmp_path: Path, kind: str, count: int
) -> None:
    out = tmp_path / "events.jsonl"
    killed_at(folder, out, kind, count)
    with out.open("a") as file:
        file.write('{"seq": 999, "attem')  # a write that the kill tore
    done = subprocess.run(
        [sys.executable, "-m", "lab.engine", "--continue", str(out), "--data-folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "verdict: " in done.stdout
    records = [read_record(json.loads(line)) for line in out.read_text().splitlines()]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    told = kinds(out)
    assert (told.count("attempt_started"), told.count("attempt_continued"), told[-1]) == (1, 1, "run_ended")
    assert f"{len(records)} in {out}" in done.stdout

    compared = run_plain("--rebuild-inputs", str(out))
    asked = told.count("model_call_started")
    assert compared.returncode == 0
    assert compared.stdout == f"{asked} of {asked} model calls are rebuilt as they were sent\n"

    again = run_plain("--continue", str(out))
    assert again.returncode == 2
    assert "has ended already" in again.stderr


def test_a_log_that_was_changed_is_found_out(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    assert run(folder, out, "--task", "parse-duration", "--model", "scripted/solver").returncode == 0
    system = '"role": "system", "content": "'
    out.write_text(out.read_text().replace(system, f"{system}Also: ", 1))
    compared = run_plain("--rebuild-inputs", str(out))
    assert compared.returncode == 1
    assert "event 3 (attempt 1, step 1, request 1) differs: sent " in compared.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("", "no attempt that has begun"), ("nonsense\n", "line 1")],
)
def test_what_is_no_log_cannot_be_gone_on_from(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "events.jsonl"
    if content is not None:
        path.write_text(content)
    done = run_plain("--continue", str(path))
    assert done.returncode == 2
    assert said in done.stderr
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


def run_plain(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab.engine", *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "scripted/solver"], ["--task", "is missing"]),
        (["--task", "nope", "--model", "scripted/solver"], ["--task", "'nope'", "parse-duration"]),
        (["--task", "parse-duration", "--model", "gpt"], ["--base-url", "is needed"]),
        (
            ["--task", "parse-duration", "--model", "m", "--base-url", "localhost:8000"],
            ["--base-url", "'localhost:8000'", "http://127.0.0.1:8000/v1"],
        ),
        (
            ["--task", "parse-duration", "--model", "m", "--base-url", "http://h", "--context-window", "-4"],
            ["--context-window", "-4", "tokens"],
        ),
        (
            ["--task", "parse-duration", "--model", "scripted/solver", "--limit", "max_steps=-1"],
            ["max_steps"],
        ),
        (["--task", "parse-duration", "--model", "scripted/solver", "--limit", "steps=1"], ["max_steps"]),
        (
            ["--task", "parse-duration", "--model", "scripted/solver", "--limit", "max_cost_usd=$5"],
            ["write 5"],
        ),
        (["--task", "parse-duration", "--model", "scripted/solver", "--seed", "0"], ["--seed", "1 or more"]),
        (["--task", "parse-duration", "--model", "scripted/solver", "--harness", "x"], ["leaf-compatible"]),
        (
            ["--task", "parse-duration", "--model", "m", "--base-url", "http://h/v1", "--sampling", "t"],
            ["temperature=0.6"],
        ),
        (
            [
                "--task",
                "parse-duration",
                "--model",
                "m",
                "--base-url",
                "http://h/v1",
                "--key-variable",
                "NO_K",
            ],
            ["NO_K", "is not set"],
        ),
    ],
)
def test_bad_input_gets_field_value_and_way_out_and_writes_nothing(
    folder: Path, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    out = tmp_path / "events.jsonl"
    done = run(folder, out, *arguments)
    assert done.returncode == 2
    for words in said:
        assert words in done.stderr
    assert not out.exists()


def test_a_request_whose_cost_nobody_knows_is_not_shown_as_free(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    with FakeOpenAI(plain({"error": {"message": "no such key"}}, status=401)) as server:
        done = run(folder, out, "--task", "parse-duration", "--model", "m", "--base-url", server.base_url)
    assert "0 USD and 1 requests of unknown cost" in done.stdout


def test_an_existing_file_is_not_written_over(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    out.write_text("mine")
    done = run(folder, out, "--task", "parse-duration", "--model", "scripted/solver")
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert out.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_named(folder: Path) -> None:
    done = run(
        folder, Path("/proc/no/events.jsonl"), "--task", "parse-duration", "--model", "scripted/solver"
    )
    assert done.returncode == 2
    assert "--out: '/proc/no/events.jsonl' cannot be written" in done.stderr

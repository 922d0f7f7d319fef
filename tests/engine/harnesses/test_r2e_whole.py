"""R2E-Gym's agent over many steps: condensing, and attempts that are continued from everywhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.events import (
    HarnessMessage,
    HistoryRewritten,
    ModelCallStarted,
    PatchCaptured,
)
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.llm.base import JSONObject, ModelConfig, Price
from lab.engine.sandboxes.base import Sandbox
from lab.engine.steering import Ask, Steering
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome
from tests.engine.conftest import MakeTask
from tests.engine.continuing import MakeSpec, Told, cuts, require_same, tell
from tests.engine.harnesses.r2e_replies import (
    CONDENSED,
    LONG,
    NATIVE,
    XML,
    contents,
    gives,
    growing,
    limits,
    options,
    run,
    runs,
    submits,
)
from tests.fakes.openai_server import Answer, FakeOpenAI, says


def test_old_observations_are_condensed_above_the_limit_oldest_first(sandbox: Sandbox) -> None:
    config = options(condense_above_tokens=6_500)
    driven = run(sandbox, *growing(5), submits(), config=config)
    first = contents(driven, 3)
    assert first.count(CONDENSED) == 1
    assert first[3] == CONDENSED
    assert first[1].startswith("The repository")
    assert first[-1].startswith("Exit code: 0")
    rewritten = driven.events(HistoryRewritten)
    assert rewritten[0].reason == "condensed"
    assert rewritten[0].replaced == {3: {"role": "user", "content": CONDENSED}}
    assert rewritten[0].messages == []
    assert rewritten[0].step == 4
    assert 0 < (rewritten[0].context_tokens or 0) <= 6_500
    last = contents(driven, 5)
    assert last[3] == last[5] == CONDENSED
    assert last[-1].startswith("Exit code: 0")
    assert [message["role"] for message in driven.sent(5)["messages"][1:]] == ["user", "assistant"] * 5 + [
        "user"
    ]


def test_nothing_is_condensed_twice_and_never_the_last_observation(sandbox: Sandbox) -> None:
    driven = run(sandbox, *growing(4), submits(), config=options(condense_above_tokens=1))
    places = [sorted(event.replaced) for event in driven.events(HistoryRewritten)]
    assert places == [[3], [5], [7]]
    assert contents(driven, 4)[-1].startswith("Exit code: 0")
    driven = run(sandbox, *growing(4), submits(), config=options(condense_above_tokens=0))
    assert driven.events(HistoryRewritten) == []


def test_what_a_person_wrote_is_never_condensed(sandbox: Sandbox) -> None:
    steering = Steering()
    steering.put(Ask("message", "ann", 1, {"text": "Look at thing.py."}))
    driven = run(sandbox, *growing(3), submits(), config=options(condense_above_tokens=1), steering=steering)
    assert "Look at thing.py." in contents(driven, 3)
    assert contents(driven, 3).count(CONDENSED) == 2


def test_native_conversations_are_never_condensed(sandbox: Sandbox) -> None:
    config = options(NATIVE, condense_above_tokens=1)
    driven = run(sandbox, *growing(3, "native"), submits("native"), config=config)
    assert driven.events(HistoryRewritten) == []


def test_every_observation_is_condensed_once_however_long_the_conversation_gets(sandbox: Sandbox) -> None:
    config = options(condense_above_tokens=1)
    driven = run(sandbox, *growing(30), submits(), config=config, limits=limits(max_context_tokens=None))
    rewritten = [len(event.replaced) for event in driven.events(HistoryRewritten)]
    assert rewritten == [1] * 29


# Whole attempts: continued from everywhere, captured and verified.

HIDDEN = "from thing import f\n\n\ndef test_f():\n    assert f() == 2\n"


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        {"thing.py": "def f():\n    return 1\n", ".gitignore": "*.log\n"},
        command=("python", "-m", "pytest", "test_thing.py"),
        test_files={"test_thing.py": HIDDEN},
        fail_to_pass=("test_thing.py::test_f",),
    )


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r2e-data")


@pytest.fixture
def make_with(data_folder: Path, task: TaskSpec) -> Callable[[HarnessConfig], MakeSpec]:
    def make(config: HarnessConfig) -> MakeSpec:
        def make_spec(server: FakeOpenAI) -> AttemptSpec:
            return AttemptSpec(
                task=task,
                harness=config,
                model=ModelConfig(
                    name="fake", model_id="fake", base_url=server.base_url, price=Price(basis="unknown")
                ),
                limits=config.limits,
                provider=registry.provider("process"),
                data_folder=data_folder,
                label="run-7-1",
                retry_seconds=20.0,
            )

        return make_spec

    return make


def script(protocol: str) -> list[list[Answer]]:
    """Long outputs that are condensed, a reply without a call, an unknown function, an edit, the end."""
    edit = gives(
        "file_editor",
        protocol,
        command="str_replace",
        path="thing.py",
        old_str="return 1",
        new_str="return 2",
    )
    steps = [
        *growing(2, protocol),
        says("I am not sure.", prompt=5_000),
        runs(LONG, protocol, prompt=6_000),
        gives("nonsense", protocol, prompt=8_000),
        edit,
        submits(protocol),
    ]
    return [[step] for step in steps]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["xml", "native"])
def test_from_every_prefix_of_its_log_an_attempt_comes_to_the_same_end(
    make_with: Callable[[HarnessConfig], MakeSpec], protocol: str
) -> None:
    config = options(condense_above_tokens=4_000).model_copy(update={"protocol": protocol})
    make = make_with(config)
    whole = tell(make, script(protocol))
    assert whole.result.verdict is Outcome.RESOLVED, whole.result
    assert bool(whole.of(HistoryRewritten)) is (protocol == "xml")
    assert whole.of(HarnessMessage)
    for cut in cuts(whole):
        told = tell(make, script(protocol), before=whole, cut=cut)
        require_same(told, whole, cut=cut)
        assert rewritings(told) == rewritings(whole)
        assert [event.step for event in told.of(HarnessMessage)] == [3]


def rewritings(told: Told) -> list[tuple[int, dict[int, JSONObject]]]:
    return [(event.step, event.replaced) for event in told.of(HistoryRewritten)]


def test_an_exhausted_limit_still_captures_and_verifies(
    make_with: Callable[[HarnessConfig], MakeSpec],
) -> None:
    whole = tell(make_with(XML), script("xml"), limits=limits(max_steps=6))
    assert whole.result.exit_reason.value == "max_turns"
    assert whole.result.verdict is Outcome.RESOLVED
    (captured,) = whole.of(PatchCaptured)
    assert captured.native_reason == "abs_step_limit"
    assert "return 2" in captured.patch
    assert len(whole.of(ModelCallStarted)) == 6


def test_the_command_line_runs_it(tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    lab = [sys.executable, "-m", "lab.engine", "--data-folder", str(tmp_path / "data")]
    asked = ["--task", "parse-duration", "--harness", "r2e", "--model", "scripted/solver"]
    done = subprocess.run(
        [*lab, *asked, "--sandbox", "process", "--out", str(out)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "verdict: resolved" in done.stdout
    checked = subprocess.run(
        [*lab, "--rebuild-inputs", str(out)], capture_output=True, text=True, timeout=300
    )
    assert checked.returncode == 0, checked.stdout

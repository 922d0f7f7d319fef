"""An attempt is continued from wherever its log ends, to the same end, and nothing is done twice."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.errors import ExitReason
from lab.engine.events import (
    AttemptContinued,
    AttemptEnded,
    ModelCallStarted,
    SandboxStarted,
    ToolCallStarted,
    VerificationFinished,
    WorkspaceChanged,
)
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.resume import where_it_stands
from lab.engine.sandboxes.base import SandboxProvider
from lab.engine.tasks.loader import load_task, practice_folder
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome
from tests.engine.conftest import MakeTask
from tests.engine.continuing import MakeSpec, Told, cuts, require_same, tell
from tests.engine.harnesses.driving import bash, call, calls
from tests.fakes.openai_server import FakeOpenAI, plain, says

HIDDEN = "from thing import f\n\n\ndef test_f():\n    assert f() == 2\n"
# Nothing in it depends on the time: what is run again prints the same.
COMMIT = "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z git commit -qam"
STATE = (
    r"find . -path ./.git -prune -o -printf '%y %m %p %l\n' | sort; "
    "git status --porcelain; git log --format=%H%s"
)
BUSY = plain({"error": {"message": "busy"}}, status=503, headers={"retry-after-ms": "20"})

SCRIPT = [
    [calls(bash("mkdir -p deep/er && echo one > deep/er/one && ln -s er deep/link; chmod 600 README"))],
    [
        calls(
            bash("sed -i s/1/3/ thing.py && echo kept > ignored.log"),
            call("Read", {"file_path": "thing.py"}),
            call("Edit", {"file_path": "thing.py", "old_string": "3", "new_string": "2"}),
            bash(f"{COMMIT} mended; {STATE}"),
        )
    ],
    [BUSY, calls(bash("cat nothing; exit 3"), call("Nonsense", "{not json"), call("Bash", "{broken"))],
    [
        calls(
            bash("rm -r deep && mkdir deep && echo two > deep/two; cat ignored.log; printf 'a\\0b' > binary")
        )
    ],
    [calls(bash(STATE), call("Glob", {"pattern": "**/*"}))],
    [BUSY, says("done")],
]


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        {"thing.py": "def f():\n    return 1\n", "README": "read me\n", ".gitignore": "*.log\n"},
        command=("python", "-m", "pytest", "test_thing.py"),
        test_files={"test_thing.py": HIDDEN},
        fail_to_pass=("test_thing.py::test_f",),
    )


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume-data")


@pytest.fixture
def make(data_folder: Path, task: TaskSpec) -> MakeSpec:
    def make_spec(server: FakeOpenAI) -> AttemptSpec:
        harness = load_preset("leaf-compatible")
        return AttemptSpec(
            task=task,
            harness=harness,
            model=ModelConfig(
                name="fake", model_id="fake", base_url=server.base_url, price=Price(basis="unknown")
            ),
            limits=harness.limits,
            provider=registry.provider("process"),
            data_folder=data_folder,
            label="run-7-1",
            retry_seconds=20.0,
        )

    return make_spec


@pytest.fixture
def whole(make: MakeSpec) -> Told:
    told = tell(make, SCRIPT)
    assert told.result.verdict is Outcome.RESOLVED, told.result
    return told


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "sandboxes").glob("*"))


def test_from_every_prefix_of_its_log_an_attempt_comes_to_the_same_end(
    make: MakeSpec, whole: Told, data_folder: Path
) -> None:
    for cut in cuts(whole):
        told = tell(make, SCRIPT, before=whole, cut=cut)
        require_same(told, whole, cut=cut)
    assert leftovers(data_folder) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_attempt_whose_workers_die_again_and_again_comes_to_the_same_end(
    make: MakeSpec, whole: Told, seed: int
) -> None:
    chance = random.Random(seed)
    told, cut = whole, 0
    for _ in range(4):
        places = [place for place in cuts(told) if place > cut]
        cut = chance.choice(places[: max(1, len(places) // 2)])
        told = tell(make, SCRIPT, before=told, cut=cut)
    require_same(told, whole, cut=cut)
    continued = told.of(AttemptContinued)
    assert [event.continuation for event in continued] == list(range(1, len(continued) + 1))


def test_from_a_sample_of_prefixes_it_is_the_same_in_every_kind_of_sandbox(
    make: MakeSpec, provider: SandboxProvider
) -> None:
    whole = tell(make, SCRIPT, provider=provider)
    places = list(cuts(whole))
    for cut in random.Random(4).sample(places, 8):
        require_same(tell(make, SCRIPT, before=whole, cut=cut, provider=provider), whole, cut=cut)


@pytest.mark.parametrize("model_id", ["scripted/solver", "scripted/struggler"])
def test_a_scripted_model_goes_on_in_the_middle_of_a_practice_task(make: MakeSpec, model_id: str) -> None:
    model = ModelConfig(
        name=model_id, model_id=model_id, base_url="", scripted=True, price=Price(basis="scripted")
    )
    fields = {"model": model, "task": load_task(practice_folder() / "parse-duration"), "chunk_seconds": 0.0}
    whole = tell(make, [[says("never")]], **fields)
    for cut in random.Random(5).sample(list(cuts(whole)), 6):
        told = tell(make, [[says("never")]], before=whole, cut=cut, **fields)
        # Its tests tell how long they took, so the conversations differ.
        assert told.result == whole.result
        assert told.patch == whole.patch


def test_what_was_in_flight_is_marked_and_asked_or_run_again(make: MakeSpec, whole: Told) -> None:
    request = next(at for at, event in enumerate(whole.events, 1) if isinstance(event, ModelCallStarted))
    told = tell(make, SCRIPT, before=whole, cut=request, continued_because="worker 3 died")
    assert told.kinds[request : request + 4] == [
        "model_call_interrupted",
        "attempt_continued",
        "sandbox_started",
        "model_call_started",
    ]
    first, second = told.of(ModelCallStarted)[:2]
    assert (first.step, first.request, first.again) == (1, 1, False)
    assert (second.step, second.request, second.again) == (1, 2, True)
    assert [event.rebuilt for event in told.of(SandboxStarted)] == [False, True, False]
    (continued,) = told.of(AttemptContinued)
    assert (continued.orderly, continued.reason) == (False, "worker 3 died")

    command = next(
        at
        for at, event in enumerate(whole.events, 1)
        if isinstance(event, ToolCallStarted) and (event.step, event.index) == (2, 3)
    )
    told = tell(make, SCRIPT, before=whole, cut=command, continued_orderly=True)
    assert told.kinds[command : command + 2] == ["tool_call_interrupted", "attempt_continued"]
    assert [(event.step, event.index) for event in told.of(ToolCallStarted) if event.again] == [(2, 3)]
    assert told.of(AttemptContinued)[0].orderly


def test_what_its_first_sandbox_used_is_not_told_as_all_that_was_used(make: MakeSpec, whole: Told) -> None:
    (ended,) = whole.of(AttemptEnded)
    assert ended.cpu_seconds is not None
    (ended,) = tell(make, SCRIPT, before=whole, cut=12).of(AttemptEnded)
    assert (ended.cpu_seconds, ended.peak_memory_bytes, ended.measured_by) == (None, None, "")
    assert ended.agent_seconds is not None


def test_an_attempt_that_has_ended_stays_as_it_is(make: MakeSpec, whole: Told) -> None:
    told = tell(make, SCRIPT, before=whole, cut=len(whole.records))
    assert told.result == whole.result
    assert told.records == whole.records


class TestInexact:
    def cut(self, whole: Told) -> int:
        """After the second step's last change."""
        return max(at for at, event in enumerate(whole.events, 1) if getattr(event, "step", 0) == 2)

    def ended(self, told: Told, cut: int) -> str:
        assert told.kinds[cut] == "attempt_continued"
        assert told.kinds[-1] == "attempt_ended"
        assert "model_call_started" not in told.kinds[cut:]
        assert told.result.exit_reason is ExitReason.INFRASTRUCTURE_ERROR
        assert told.result.verdict is None
        return told.result.error

    def changes(self, told: Told) -> list[WorkspaceChanged]:
        return told.of(WorkspaceChanged)

    def test_a_missing_archive_names_the_files_that_would_differ(self, make: MakeSpec, whole: Told) -> None:
        archive = self.changes(whole)[1].archive
        assert archive is not None
        blobs = {sha256: data for sha256, data in whole.blobs.items() if sha256 != archive}
        cut = self.cut(whole)

        def read_blob(sha256: str) -> bytes:
            if sha256 not in blobs:
                raise FileNotFoundError(2, "No such file or directory")
            return blobs[sha256]

        error = self.ended(tell(make, SCRIPT, before=whole, cut=cut, reading=read_blob), cut)
        assert "thing.py" in error
        assert "ignored.log" in error
        assert "No such file" in error
        assert "deep/er/one" not in error

    def test_a_damaged_archive_names_them_too(self, make: MakeSpec, whole: Told) -> None:
        archive = self.changes(whole)[0].archive
        assert archive is not None
        damaged = dataclasses.replace(whole, blobs={**whole.blobs, archive: whole.blobs[archive] + b"x"})
        cut = self.cut(whole)
        error = self.ended(tell(make, SCRIPT, before=damaged, cut=cut), cut)
        assert "deep/er/one" in error
        assert "not what was stored" in error

    def test_a_change_that_could_not_be_kept_names_them_too(self, make: MakeSpec, whole: Told) -> None:
        records = [
            record.model_copy(update={"event": record.event.model_copy(update={"problem": "too large"})})
            if isinstance(record.event, WorkspaceChanged) and record.event.step == 1
            else record
            for record in whole.records
        ]
        cut = self.cut(whole)
        told = tell(make, SCRIPT, before=dataclasses.replace(whole, records=records), cut=cut)
        error = self.ended(told, cut)
        assert "step 1" in error
        assert "deep/er/one" in error
        assert "too large" in error
        assert told.result.retryable

    def test_a_conversation_that_is_not_what_was_sent_is_not_gone_on_with(
        self, make: MakeSpec, whole: Told
    ) -> None:
        records = [
            record.model_copy(update={"event": record.event.model_copy(update={"message": {"role": "user"}})})
            if record.event.kind == "tool_call_finished"
            else record
            for record in whole.records
        ]
        cut = self.cut(whole)
        told = tell(make, SCRIPT, before=dataclasses.replace(whole, records=records), cut=cut)
        assert "the input of step 2" in self.ended(told, cut)

    def test_another_repository_is_another_task(self, make: MakeSpec, whole: Told, task: TaskSpec) -> None:
        cut = self.cut(whole)
        told = tell(
            make, SCRIPT, before=whole, cut=cut, task=task.model_copy(update={"repository_digest": "other"})
        )
        assert "repository" in self.ended(told, cut)
        assert not told.result.retryable


def test_a_patch_that_was_captured_needs_no_sandbox_of_the_agent_again(make: MakeSpec, whole: Told) -> None:
    cut = whole.kinds.index("patch_captured") + 1
    told = tell(make, SCRIPT, before=whole, cut=cut, reading=lambda sha256: b"")
    assert told.kinds[cut:] == [
        "attempt_continued",
        "verification_started",
        "sandbox_started",
        "verification_finished",
        "attempt_ended",
    ]
    (graded,) = told.of(VerificationFinished)
    assert graded.outcome == "resolved"


def test_a_captured_patch_is_graded_whatever_became_of_the_conversation(make: MakeSpec, whole: Told) -> None:
    records = [
        record.model_copy(update={"event": record.event.model_copy(update={"message": {"role": "user"}})})
        if record.event.kind == "tool_call_finished"
        else record
        for record in whole.records
    ]
    purged = dataclasses.replace(whole, records=records)
    told = tell(make, SCRIPT, before=purged, cut=whole.kinds.index("patch_captured") + 1)
    assert told.result == whole.result


def test_a_harness_that_could_not_open_its_conversation_ends_so_after_a_crash_too(make: MakeSpec) -> None:
    harness = load_preset("leaf-compatible").model_copy(update={"task_prompt": "{{ task.nothing }}"})
    whole = tell(make, SCRIPT, harness=harness)
    assert whole.kinds == ["attempt_started", "attempt_ended"]
    told = tell(make, SCRIPT, before=whole, cut=1, harness=harness)
    assert told.kinds == ["attempt_started", "attempt_continued", "attempt_ended"]
    assert told.result == whole.result


def test_only_deaths_since_the_last_step_that_got_further_are_fruitless(make: MakeSpec, whole: Told) -> None:
    cut = whole.kinds.index("tool_call_started") + 1
    told = whole
    for number in range(1, 4):
        told = tell(make, SCRIPT, before=told, cut=cut)
        cut = told.kinds.index("sandbox_started", cut) + 1
        standing = where_it_stands(told.records[:cut])
        assert (standing.continuations, standing.fruitless) == (number, number)
    further = tell(make, SCRIPT, before=told, cut=cut, continued_orderly=True)
    standing = where_it_stands(further.records[: further.kinds.index("attempt_ended")])
    assert (standing.continuations, standing.fruitless) == (4, 0)

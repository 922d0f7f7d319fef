"""The reader of R2E-Gym's trajectories."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.detection import probe
from lab.engine.formats.r2e_gym import R2EGym
from lab.engine.formats.trajectory import Message, Problem, Trajectory, Turn
from lab.engine.verify.base import Outcome
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

READER = R2EGym()


def action(name: str, **values: str) -> str:
    rows = "".join(f"  <parameter={key}>{value}</parameter>\n" for key, value in values.items())
    return f"<function={name}>\n{rows}</function>"


def step(number: int, thought: str, action: str, observation: str, **changes: Any) -> dict[str, Any]:
    return {
        "step_idx": number,
        "thought": thought,
        "action": action,
        "observation": observation,
        "done": False,
        "info": {},
        "token_usage_prompt": 100 + number,
        "token_usage_completion": 10,
        "token_usage_total": 110 + number,
        "llm_exec_time": 1.5,
        "env_exec_time": 0.25,
        "total_step_time": 1.75,
        "total_time_traj": 2.0 * (number + 1),
        "step_count": number + 1,
        **changes,
    }


STEPS = [
    step(0, "I look.", action("search", search_term="x", path="/testbed"), "Found 1."),
    step(1, "", "Let me think.", "You forgot to use a function call."),
    step(2, "Done.", action("finish", command="submit"), "<<< Finished >>>", done=True),
]


def run(**changes: Any) -> dict[str, Any]:
    return {
        "trajectory_steps": STEPS,
        "problem_statement": "[ISSUE]\nIt is broken.\n[/ISSUE]",
        "docker_image": "images/project:0123abcd",
        "exp_name": "first",
        "env_args": {"ds": {}},
        "agent_args": {
            "system_prompt": "You mend.",
            "instance_prompt": "Please:\n{problem_statement}\nGo.",
            "llm_name": "some/model",
            "llm_base_url": "http://localhost:8000/v1",
            "use_demo": False,
        },
        "ds": {"repo_name": "project", "expected_output_json": "{}"},
        "max_steps": 40,
        "max_steps_absolute": 50,
        "max_token_limit": 32768,
        "max_llm_time": 120,
        "max_exec_time": 90,
        "max_total_time": 1200.0,
        "exit_reason": "agent",
        "output_patch": "diff --git a/x b/x\n",
        "reward": 1,
        "test_output": "1 passed",
        "custom_test_outputs": {"more": "fine"},
        "regression_test_output": None,
        **changes,
    }


def read(folder: Path, value: Any) -> Trajectory:
    return only(found_by(READER, lines_of(folder, [value])))


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    found = read(tmp_path, run())
    assert [type(item) for item in found.items] == [Turn, Turn, Message, Turn]
    first, unread, last = found.turns
    (searched,) = first.calls
    assert (searched.name, searched.arguments) == ("search", {"search_term": "x", "path": "/testbed"})
    assert (searched.id, searched.synthesised_id, searched.observation) == ("call_1_1", True, "Found 1.")
    assert (first.seconds, searched.seconds) == (1.5, 0.25)
    assert first.message == {"role": "assistant", "content": f"I look.\n\n{STEPS[0]['action']}"}
    assert (first.usage.input_total, first.usage.output_total) == (100, 10)
    assert first.kept == {
        "step_idx": 0,
        "info": {},
        "total_step_time": 1.75,
        "total_time_traj": 2.0,
        "step_count": 1,
    }
    assert unread.calls == ()
    assert [item.reason for item in found.items if isinstance(item, Message)] == ["no_call"]
    assert last.calls[0].submitted
    assert (found.exit_reason, found.patch) == (ExitReason.AGENT, "diff --git a/x b/x\n")
    assert (found.statement, found.instance_id) == ("It is broken.", "images/project:0123abcd")
    assert found.opening[1]["content"] == "Please:\n[ISSUE]\nIt is broken.\n[/ISSUE]\nGo."
    assert (found.model.name, found.model.base_url) == ("some/model", "http://localhost:8000/v1")
    assert found.limits == {"max_steps": 50, "max_context_tokens": 32768, "max_total_time_sec": 1200}
    assert found.totals.seconds == 6.0
    (grading,) = found.gradings
    assert (grading.rule, grading.outcome, grading.log) == ("r2e-gym", Outcome.RESOLVED, "1 passed")
    assert grading.kept == {"custom_test_outputs": {"more": "fine"}}
    assert {"max_steps": 40, "exp_name": "first"}.items() <= found.kept.items()
    fields = {(note.kind, note.field) for note in found.notes}
    assert {("guessed", "docker_image"), ("guessed", "trajectory_steps[].action")} <= fields


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("max_step_limit", ExitReason.AGENT),
        ("agent_max_step_limit", ExitReason.AGENT),
        ("abs_step_limit", ExitReason.MAX_TURNS),
        ("token_limit", ExitReason.MAX_CONTEXT_LEN),
        ("traj_time_limit", ExitReason.MAX_TIME),
        ("out_of_coffee", None),
    ],
)
def test_exit_reasons_are_told_in_the_labs_words(
    tmp_path: Path, native: str, reason: ExitReason | None
) -> None:
    found = read(tmp_path, run(exit_reason=native))
    assert (found.exit_reason, found.native_reason) == (reason, native)
    assert ("exit_reason" in {note.field for note in found.notes}) == (reason is None)


def test_a_task_of_swe_bench_has_its_name_and_its_rule(tmp_path: Path) -> None:
    found = read(tmp_path, run(ds={"instance_id": "owner__project-1", "FAIL_TO_PASS": ["t"]}, reward=0))
    assert found.instance_id == "owner__project-1"
    assert [(one.rule, one.outcome) for one in found.gradings] == [("swe-bench", Outcome.UNRESOLVED)]


def test_counts_that_are_none_are_unknown(tmp_path: Path) -> None:
    broken = {**STEPS[0], "token_usage_prompt": -1, "token_usage_completion": None, "token_usage_total": None}
    (turn,) = read(tmp_path, run(trajectory_steps=[broken])).turns
    assert (turn.usage.input_total, turn.usage.output_total) == (None, None)
    assert turn.kept["token_usage_prompt"] == -1


def test_a_broken_line_is_a_problem_and_the_others_are_read(tmp_path: Path) -> None:
    document = lines_of(tmp_path, [run(), '{"trajectory_steps": [', run(seed=2), {"trajectory_steps": 7}])
    assert READER.recognises(probe(document))
    found = found_by(READER, document)
    assert [one.origin.place for one in found if isinstance(one, Trajectory)] == ["line 1", "line 3"]
    assert [one.place for one in found if isinstance(one, Problem)] == ["line 2", "line 4"]


def test_one_run_alone_in_a_file_is_recognised(tmp_path: Path) -> None:
    assert READER.recognises(probe(document_of(tmp_path, run())))
    assert not READER.recognises(probe(document_of(tmp_path, {"trajectory": [], "exit_reason": "agent"})))


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<>"), max_size=30).map(str.strip)


@given(
    st.lists(st.tuples(WORDS, st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), WORDS), WORDS))
)
def test_calls_and_observations_are_read_as_they_were_written(
    steps: list[tuple[str, dict[str, str], str]],
) -> None:
    written = [
        step(number, thought, action("execute_bash", **values), observation)
        for number, (thought, values, observation) in enumerate(steps)
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), run(trajectory_steps=written))
    assert [(one.arguments, one.observation) for turn in found.turns for one in turn.calls] == [
        (values, observation) for _, values, observation in steps
    ]


@given(st.lists(mutated(run()), min_size=1, max_size=2))
def test_broken_runs_give_what_is_left_of_them(runs: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(READER, lines_of(Path(folder), runs))


def test_what_tests_printed_without_a_reward_is_kept_with_the_task_which_is_not_for_everybody(
    tmp_path: Path,
) -> None:
    found = read(tmp_path, run(reward=None))
    assert (found.gradings, found.task_kept["test_output"]) == ((), "1 passed")
    assert not {"test_output", "custom_test_outputs"} & found.kept.keys()

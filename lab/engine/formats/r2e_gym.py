"""R2E-Gym's trajectories: one run a line, with thought, action and observation of each step.

The conversation itself is not in the file: its messages are put together from the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, Probe
from lab.engine.formats.json_values import Value, found_in
from lab.engine.formats.leftovers import unread, without_credentials
from lab.engine.formats.reading import count, items, mapping, number, seconds, text, without
from lab.engine.formats.rewards import reward_grading
from lab.engine.formats.trajectory import (
    Call,
    Found,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    NoteKind,
    Origin,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.harnesses.xml_calls import first_block
from lab.engine.key_shapes import masked
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

FORMAT = "r2e-gym"
_EXITS = {
    "agent": ExitReason.AGENT,
    # The agent finished at or after the number of steps that it was told it had.
    "max_step_limit": ExitReason.AGENT,
    "agent_max_step_limit": ExitReason.AGENT,
    "abs_step_limit": ExitReason.MAX_TURNS,
    "token_limit": ExitReason.MAX_CONTEXT_LEN,
    "traj_time_limit": ExitReason.MAX_TIME,
    "llm_query_error": ExitReason.LLM_QUERY_ERROR,
}
_LIMITS = {
    "max_steps_absolute": "max_steps",
    "max_token_limit": "max_context_tokens",
    "max_total_time": "max_total_time_sec",
}
_NUMBER = (int, float)
_FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("problem_statement", "docker_image", "exit_reason", "output_patch"), str),
    **dict.fromkeys(("agent_args", "ds"), dict),
    **dict.fromkeys(("reward", *_LIMITS), _NUMBER),
    "trajectory_steps": list,
}
_STEP: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("thought", "action", "observation"), str),
    **dict.fromkeys(("llm_exec_time", "env_exec_time"), _NUMBER),
    "done": bool,
}
_TOKENS = {
    "token_usage_prompt": "prompt_tokens",
    "token_usage_completion": "completion_tokens",
    "token_usage_total": "total_tokens",
}
_GRADED = ("test_output", "custom_test_outputs", "regression_test_output")


class R2EGym:
    """Reads runs from the lines of a file."""

    name = FORMAT
    title = "R2E-Gym: trajectories, one a line"

    def recognises(self, probe: Probe) -> bool:
        return any(_is_run(one) for one in (probe.root, *probe.objects))

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON.
        """
        return found_in(documents, _is_run, _trajectory, otherwise="has no list `trajectory_steps`")


def _is_run(value: Any) -> bool:
    return isinstance(mapping(value).get("trajectory_steps"), list)


def _trajectory(document: Document, value: Value) -> Trajectory:
    return _Reading(mapping(value.value)).trajectory(
        Origin(format=FORMAT, file=document.path, place=value.place, sha256=value.sha256)
    )


class _Reading:
    """Takes one run apart."""

    def __init__(self, root: JSONObject) -> None:
        self._root = root
        self._arguments = mapping(root.get("agent_args"))
        self._task = mapping(root.get("ds"))
        self._notes: dict[str, Note] = {}

    def trajectory(self, origin: Origin) -> Trajectory:
        root = self._root
        found: list[Item] = []
        for step, raw in enumerate(items(root["trajectory_steps"]), start=1):
            if isinstance(raw, dict):
                found += self._step(raw, step)
            else:
                self._note("lost", f"trajectory_steps[{step - 1}]", "is no object")
        reason = text(root.get("exit_reason"))
        if reason and reason not in _EXITS:
            self._note("lost", "exit_reason", f"the lab has no word for {reason[:200]}")
        graded = self._graded_parts()
        rule = "swe-bench" if "FAIL_TO_PASS" in self._task else FORMAT
        grading = reward_grading(root.get("reward"), rule=rule, log=text(graded.get("test_output")))
        if grading is not None:
            grading.kept.update(unread(graded, {"test_output": str}))
        patch = root.get("output_patch")
        return Trajectory(
            origin=origin,
            harness=self._harness(),
            model=self._model(),
            instance_id=self._instance(),
            statement=self._statement(),
            # What tests printed is not for everybody either.
            task_kept={**({"ds": self._task} if self._task else {}), **({} if grading else graded)},
            opening=self._opening(),
            items=tuple(found),
            exit_reason=_EXITS.get(reason),
            native_reason=reason,
            patch=patch if isinstance(patch, str) else None,
            totals=self._totals(),
            gradings=(grading,) if grading else (),
            limits=self._limits(),
            notes=tuple(self._notes.values()),
            kept=without(unread(root, _FIELDS), *_GRADED),
        )

    def _note(self, kind: NoteKind, field: str, detail: str) -> None:
        self._notes.setdefault(field, Note(kind=kind, field=field, detail=detail))

    def _graded_parts(self) -> JSONObject:
        return {name: self._root[name] for name in _GRADED if self._root.get(name) is not None}

    # Who worked on what.

    def _instance(self) -> str:
        if named := text(self._task.get("instance_id")):
            return named
        image = text(self._root.get("docker_image")) or text(self._task.get("docker_image"))
        if image:
            self._note("guessed", "docker_image", "stands for the task's name, which is not recorded")
        return image

    def _statement(self) -> str:
        """The text within the tags, where it has any."""
        stated = text(self._root.get("problem_statement")) or text(self._task.get("problem_statement"))
        _, opened, rest = stated.partition("[ISSUE]")
        return rest.rpartition("[/ISSUE]")[0].strip() if opened and "[/ISSUE]" in rest else stated

    def _harness(self) -> HarnessUsed:
        config = without(self._arguments, "llm_name", "llm_base_url")
        return HarnessUsed(name="R2E-Gym", family="r2e", config=masked(without_credentials(config)))

    def _model(self) -> ModelUsed:
        return ModelUsed(
            name=text(self._arguments.get("llm_name")),
            base_url=masked(text(self._arguments.get("llm_base_url"))),
        )

    def _opening(self) -> tuple[JSONObject, ...]:
        """The prompts of the configuration with the task put in, which is how they began."""
        system, instance = (
            text(self._arguments.get("system_prompt")),
            text(self._arguments.get("instance_prompt")),
        )
        if not instance:
            self._note("missing", "messages", "the prompts are not recorded")
            return ()
        self._note("guessed", "messages", "prompts are those of agent_args, without the count of steps left")
        task = instance.replace("{problem_statement}", text(self._root.get("problem_statement")))
        before = ({"role": "system", "content": system},) if system else ()
        return (*before, {"role": "user", "content": task})

    def _limits(self) -> JSONObject:
        found = {lab: number(self._root.get(own)) for own, lab in _LIMITS.items()}
        return {
            name: int(limit) if limit.is_integer() else limit
            for name, limit in found.items()
            if limit is not None and limit > 0
        }

    def _totals(self) -> Totals:
        times = (mapping(step).get("total_time_traj") for step in items(self._root["trajectory_steps"]))
        known = [one for one in map(seconds, times) if one is not None]
        return Totals(seconds=known[-1] if known else None)

    # Steps.

    def _step(self, raw: JSONObject, step: int) -> list[Item]:
        thought, action = text(raw.get("thought")), text(raw.get("action"))
        self._note("guessed", "trajectory_steps[].action", "a reply is put together from thought and action")
        usage = _usage(raw)
        kept = unread(raw, {**_STEP, **(dict.fromkeys(_TOKENS, _NUMBER) if usage.raw else {})})
        content = f"{thought}\n\n{action}" if thought and action else thought or action
        calls = self._calls(raw, action, step)
        turn = Turn(
            message={"role": "assistant", "content": content},
            calls=calls,
            usage=usage,
            seconds=seconds(raw.get("llm_exec_time")),
            kept=kept,
        )
        observation = raw.get("observation")
        if calls or not isinstance(observation, str) or not observation:
            return [turn]
        # What it is told that made no call.
        return [turn, Message(message={"role": "user", "content": observation}, reason="no_call")]

    def _calls(self, raw: JSONObject, action: str, step: int) -> tuple[Call, ...]:
        block = first_block(action)
        if block is None or not block.name:
            return ()
        observation = raw.get("observation")
        seen = observation if isinstance(observation, str) else None
        return (
            Call(
                id=f"call_{step}_1",
                name=block.name,
                arguments=dict(block.values),
                raw_arguments=block.raw,
                observation=seen,
                message={} if seen is None else {"role": "user", "content": seen},
                submitted=raw.get("done") is True and block.name in ("finish", "submit"),
                seconds=seconds(raw.get("env_exec_time")),
                synthesised_id=True,
            ),
        )


def _usage(raw: JSONObject) -> Usage:
    counts = {name: count(raw.get(own)) for own, name in _TOKENS.items()}
    known = {name: value for name, value in counts.items() if value is not None}
    return read_usage(known) if known else Usage()

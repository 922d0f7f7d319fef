"""Recorded runs of mini-swe-agent, converted back into requests.

The same replies, outputs and return codes give the same messages in the same order, byte for byte.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.conversation import check_inputs
from lab.engine.harnesses.import_mini import mini_harness
from lab.engine.harnesses.mini import MARKER
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject
from tests.engine.harnesses.driving import Driven, drive
from tests.engine.harnesses.recorded import Recorded, RecordedSandbox
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, stream, usage_chunk

ARCHIVE = "trajectories/mini-swe-agent/swe-bench-verified-500.tar.zst"
RUNS = 4
# How the recorded runs worded an observation, apart from the template that made it.
SHORT = re.compile(r"<returncode>(-?\d+)</returncode>\n<output>\n(.*)</output>", re.DOTALL)
LONG = re.compile(
    r"<returncode>(-?\d+)</returncode>\n<warning>.*?</warning><output_head>\n(.{5000})\n</output_head>\n"
    r"<elided_chars>\n(\d+) characters elided\n</elided_chars>\n<output_tail>\n(.{5000})\n</output_tail>",
    re.DOTALL,
)
STOPPED = re.compile(
    r"The last command <command>.*?The output of the command was:\n <output>\n(.*)\n</output>\n", re.DOTALL
)


class Run(NamedTuple):
    """A recorded run: its harness, the task's statement, and its messages with role and content alone."""

    name: str
    harness: HarnessConfig
    statement: str
    messages: list[JSONObject]

    @property
    def replies(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "assistant"]

    @property
    def recordings(self) -> list[Recorded]:
        """What each command wrote, in order, told from the observations."""
        observed = [message["content"] for message in self.messages[3::2]]
        known = [recorded for recorded in map(recording, observed[:-1]) if recorded is not None]
        return [*known, Recorded(f"{MARKER}\n{observed[-1]}")]


def recording(observation: str) -> Recorded | None:
    """The output and return code behind an observation; None for one that answers an unreadable reply.

    Of a long output the middle is unknown, but not its length.
    """
    if found := SHORT.fullmatch(observation):
        return Recorded(found[2], int(found[1]))
    if found := LONG.fullmatch(observation):
        return Recorded(found[2] + "·" * int(found[3]) + found[4], int(found[1]))
    if found := STOPPED.match(observation):
        return Recorded(found[1], None)
    return None


def recorded_run(name: str, trajectory: JSONObject) -> Run:
    config = trajectory["info"]["config"]
    raw = {section: config[section] for section in ("agent", "model", "environment")}
    source = {"kind": "mini", "mini_version": trajectory["info"]["mini_version"]}
    harness = mini_harness(raw, name="recorded", source=source, called=name)
    messages = [{"role": one["role"], "content": one["content"]} for one in trajectory["messages"]]
    before, after = config["agent"]["instance_template"].split("{{task}}")
    statement = messages[1]["content"].removeprefix(before).removesuffix(after.rstrip("\n"))
    return Run(name, harness, statement, messages)


def archived(data: str) -> Iterator[Run]:
    """The runs of the archive, as it has them in order."""
    command = ["zstd", "-dcq", str(Path(data, ARCHIVE))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking:
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(".traj.json") else None
                if file is not None:
                    yield recorded_run(Path(member.name).parent.name, json.load(file))
        unpacking.kill()


def replayed(run: Run) -> tuple[Driven, RecordedSandbox]:
    """The run's replies and outputs once more, through this harness."""
    sandbox = RecordedSandbox(run.recordings)
    with FakeOpenAI(*map(reply, run.replies)) as server:
        driven = drive(
            server,
            sandbox,
            config=run.harness,
            facts=PromptFacts(run.statement, "/testbed"),
            limits=Limits(max_steps=None, max_context_tokens=None, max_total_time_sec=None),
        )
    return driven, sandbox


def reply(text: str) -> Answer:
    used = usage_chunk(prompt_tokens=10, completion_tokens=5, total_tokens=15)
    return stream(delta(content=text), delta(finish="stop"), used)


def difference(run: Run) -> str:
    """Where a run that is replayed asks or ends otherwise than the recorded one, "" for nowhere."""
    driven, sandbox = replayed(run)
    if driven.ending is None:
        return f"raised {driven.raised}"
    asked: list[Any] = [request.body["messages"] for request in driven.server.calls]
    for number, messages in enumerate(asked):
        expected = run.messages[: 2 + 2 * number]
        if messages != expected:
            at = next(
                (
                    place
                    for place, pair in enumerate(zip(messages, expected, strict=False))
                    if pair[0] != pair[1]
                ),
                -1,
            )
            return f"request {number + 1} differs at message {at}"
    if len(asked) != len(run.replies):
        return f"{len(asked)} requests instead of {len(run.replies)}"
    if (driven.ending.native_reason, driven.ending.final_message) != (
        "Submitted",
        run.messages[-1]["content"],
    ):
        return f"ended with {driven.ending.native_reason} and another submission"
    if len(sandbox.commands) != len(run.recordings):
        return f"{len(sandbox.commands)} commands instead of {len(run.recordings)}"
    return "" if not check_inputs(driven.records).differing else "a request cannot be rebuilt"


def test_recorded_runs_are_asked_and_answered_as_they_were() -> None:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, ARCHIVE).is_file():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {ARCHIVE}")
    found = {run.name: difference(run) for run in islice(archived(data), RUNS)}
    assert len(found) == RUNS
    assert set(found.values()) == {""}, found

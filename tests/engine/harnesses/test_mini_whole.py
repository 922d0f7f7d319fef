"""Whole attempts with mini-swe-agent's harness: one goes on wherever its log ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.events import (
    AttemptContinued,
    HarnessMessage,
    ModelCallFinished,
)
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.verify.base import Outcome
from tests.engine.conftest import MakeTask
from tests.engine.continuing import Told, cuts, require_same, tell
from tests.engine.harnesses.driving import call, calls
from tests.engine.harnesses.mini_replies import (
    MINI,
    SUBMITS,
    bash,
    gives,
)
from tests.fakes.openai_server import Answer, FakeOpenAI, Request, says

HIDDEN = "from thing import f\n\n\ndef test_f():\n    assert f() == 2\n"
ANSWERS = [
    gives("ls; cat thing.py", "native"),
    says("I wonder."),
    calls(call("bash", "{broken"), finish="tool_calls"),
    calls(bash("sed -i s/1/2/ thing.py"), bash("cat thing.py; ls nothing"), bash("head -c 20000 /dev/zero")),
    calls(bash("rm thing.py"), finish="length"),
    gives("exit 3", "native"),
    calls(bash("echo done > note"), bash(f"{SUBMITS}; cat note"), bash("rm note")),
]


class ByReplies(FakeOpenAI):
    """Answers by how many replies the conversation shows, kept ones and those that were only answered."""

    def take(self, request: Request) -> Answer:
        self.requests.append(request)
        place = 0
        for message in request.body["messages"][2:]:
            place += message["role"] in {"assistant", "user"}
        return ANSWERS[place]


@pytest.fixture
def make(make_task: MakeTask, tmp_path: Path) -> Callable[[FakeOpenAI], AttemptSpec]:
    task = make_task(
        {"thing.py": "def f():\n    return 1\n"},
        command=("python", "-m", "pytest", "test_thing.py"),
        test_files={"test_thing.py": HIDDEN},
        fail_to_pass=("test_thing.py::test_f",),
    )

    def make_spec(server: FakeOpenAI) -> AttemptSpec:
        return AttemptSpec(
            task=task,
            harness=MINI,
            model=ModelConfig(
                name="fake", model_id="fake", base_url=server.base_url, price=Price(basis="unknown")
            ),
            limits=MINI.limits,
            provider=registry.provider("process"),
            data_folder=tmp_path,
            label="run-8-1",
        )

    return make_spec


def serving(script: object, asked: Counter[int]) -> FakeOpenAI:
    return ByReplies()


def test_from_a_sample_of_prefixes_and_around_each_unread_reply_an_attempt_comes_to_the_same_end(
    make: Callable[[FakeOpenAI], AttemptSpec],
) -> None:
    whole = tell(make, [], serving=serving)
    assert whole.result.verdict is Outcome.RESOLVED, whole.result
    assert len(whole.of(HarnessMessage)) == 3
    places = list(cuts(whole))
    left_out = [
        at
        for at, event in enumerate(whole.events, 1)
        if isinstance(event, HarnessMessage) or (isinstance(event, ModelCallFinished) and not event.message)
    ]
    for cut in sorted({*left_out, *random.Random(6).sample(places, 6), places[-1]}):
        told: Told = tell(make, [], serving=serving, before=whole, cut=cut)
        require_same(told, whole, cut=cut)
        assert len(told.of(AttemptContinued)) == 1
        assert len(told.of(HarnessMessage)) == 3
        assert told.events[-1].native_reason == "Submitted"  # type: ignore[union-attr]

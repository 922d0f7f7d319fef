"""Runs Inspect itself with its mock model, and keeps its logs.

    python inspect_ai_logs.py FOLDER [SAMPLES]

It runs in an environment of its own and knows nothing of the lab. With SAMPLES one long log is written: that
many samples of ten calls each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"INSPECT_DISPLAY": "none", "INSPECT_LOG_LEVEL": "critical"}

from inspect_ai import Task  # noqa: E402
from inspect_ai import eval as evaluate
from inspect_ai.agent import agent, as_tool, react  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.log import read_eval_log, write_eval_log  # noqa: E402
from inspect_ai.model import ContentReasoning, ContentText, ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import Score, includes, mean, model_graded_qa, scorer  # noqa: E402
from inspect_ai.solver import generate, system_message, use_tools  # noqa: E402
from inspect_ai.tool import tool  # noqa: E402

MOCK = "mockllm/model"


@tool
def look() -> Any:
    async def execute(path: str) -> str:
        """Looks at a file.

        Args:
            path: Which one.
        """
        if path == "missing":
            raise FileNotFoundError(path)
        return f"contents of {path} " + "x" * 200

    return execute


# Without usage the mock model counts with a tokenizer that it fetches.
COUNTED = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def said(text: str, **usage: int) -> ModelOutput:
    output = ModelOutput.from_content(MOCK, text)
    output.usage = ModelUsage(**(usage or COUNTED))
    return output


def called(function: str, arguments: dict[str, Any], identifier: str, **usage: Any) -> ModelOutput:
    output = ModelOutput.for_tool_call(
        MOCK, function, arguments, tool_call_id=identifier, content="Let me see."
    )
    output.usage = ModelUsage(**(usage or COUNTED))
    return output


def answers(*outputs: ModelOutput) -> Any:
    return get_model(MOCK, custom_outputs=list(outputs), memoize=False)


def tools(folder: Path, log_format: str) -> None:
    """Two calls, one of which fails, usage with a cache and money, two epochs."""
    thinking = called(
        "look", {"path": "a.txt"}, "call_a",
        input_tokens=100, output_tokens=20, total_tokens=170, input_tokens_cache_read=50,
        input_tokens_cache_write=0, reasoning_tokens=5, total_cost=0.25,
    )  # fmt: skip
    thinking.choices[0].message.content = [
        ContentReasoning(reasoning="Which file?", signature="sig"),
        ContentText(text="Let me see."),
    ]
    rounds = [
        thinking,
        called("look", {"path": "missing"}, "call_b", input_tokens=200, output_tokens=10, total_tokens=210),
        said("The answer is blue.", input_tokens=300, output_tokens=6, total_tokens=306),
    ]
    task = Task(
        name="colours",
        dataset=[Sample(id="sky-1", input="What colour is the sky? " + "Look well. " * 20, target="blue")],
        solver=[system_message("You are careful."), use_tools(look()), generate()],
        scorer=includes(),
    )
    run(task, answers(*rounds, *rounds), folder, log_format, epochs=2)


def limited(folder: Path, log_format: str) -> None:
    """A sample that a limit ends."""
    calls = [called("look", {"path": f"{at}"}, f"call_{at}") for at in range(10)]
    task = Task(
        name="endless", dataset=[Sample(input="Go on.", target="never")],
        solver=[use_tools(look()), generate()], scorer=includes(), message_limit=6,
    )  # fmt: skip
    run(task, answers(*calls), folder, log_format)


def failed(folder: Path, log_format: str) -> None:
    """A sample whose model breaks, and one that is right."""

    def answer(messages: Any, *rest: Any) -> ModelOutput:
        if "break" in messages[-1].text:
            raise RuntimeError("the server is gone")
        return said("fine")

    samples = [
        Sample(id="breaks", input="Please break.", target="fine"),
        Sample(id="works", input="Go.", target="fine"),
    ]
    task = Task(name="breaking", dataset=samples, solver=generate(), scorer=includes())
    model = get_model(MOCK, custom_outputs=answer, memoize=False)
    run(task, model, folder, log_format, fail_on_error=False)


@agent
def helper() -> Any:
    return react(name="helper", description="Helps.", prompt="You help.", tools=[look()])


@scorer(metrics=[mean()])
def length() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=0.25, explanation="a quarter", metadata={"words": 3})

    return score


def subagent(folder: Path, log_format: str) -> None:
    """An agent that asks another, and a scorer that asks a model."""
    model = answers(
        called("helper", {"input": "Find it."}, "call_help"),
        called("look", {"path": "inner"}, "call_inner"),
        called("submit", {"answer": "It is inside."}, "call_done"),
        called("submit", {"answer": "inside"}, "call_end"),
    )
    grader = answers(said("GRADE: C", input_tokens=9, output_tokens=3, total_tokens=12))
    task = Task(
        name="delegating", dataset=[Sample(id="where", input="Where is it?", target="inside")],
        solver=react(prompt="You lead.", tools=[as_tool(helper())]),
        scorer=[includes(), model_graded_qa(model=grader), length()],
    )  # fmt: skip
    run(task, model, folder, log_format)


def long(folder: Path, samples: int) -> None:
    def answer(messages: Any, *rest: Any) -> ModelOutput:
        turns = sum(message.role == "assistant" for message in messages)
        if turns == 10:
            return said("blue", input_tokens=10, output_tokens=2, total_tokens=12)
        return called(
            "look", {"path": "y" * 3000}, f"call_{turns}", input_tokens=1, output_tokens=1, total_tokens=2
        )

    dataset = [Sample(id=f"sample-{at}", input=f"Question {at}", target="blue") for at in range(samples)]
    task = Task(name="long", dataset=dataset, solver=[use_tools(look()), generate()], scorer=includes())
    run(task, get_model(MOCK, custom_outputs=answer, memoize=False), folder, "eval")


def run(task: Any, model: Any, folder: Path, log_format: str, **options: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = evaluate(
        task, model=model, log_dir=str(folder), log_format=log_format, score=True, max_samples=1, **options
    )[0]
    written = folder / f"{task.name}.{log_format}"
    Path(str(log.location).removeprefix("file://")).rename(written)
    if task.name == "breaking":
        write_eval_log(without_paths(read_eval_log(str(written))), str(written))


def without_paths(log: Any) -> Any:
    """Tracebacks name folders of this machine."""
    for sample in log.samples:
        for holder in (sample.error, *sample.events, *(getattr(one, "error", None) for one in sample.events)):
            for name in ("traceback", "traceback_ansi"):
                if getattr(holder, name, None):
                    setattr(holder, name, "Traceback (most recent call last):")
    return log


if __name__ == "__main__":
    into = Path(sys.argv[1])
    if len(sys.argv) > 2:
        long(into, int(sys.argv[2]))
    else:
        for make in (tools, limited, failed, subagent):
            make(into, "eval")
        tools(into, "json")

"""The peer's log: one Inspect sample of 150 messages (75 model answers, 75 tool outputs), made by Inspect.

Runs with an interpreter that has inspect-ai. Its model is Inspect's own mock. Prints the log's name, its
messages and Inspect's version.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import pathlib
import typing

MARK = "needle_in_the_log"


class _Tokens:
    """Stands for the tokenizer, whose file would be fetched from a network."""

    def encode(self, text: str, **_: typing.Any) -> range:
        return range(len(text) // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--turns", type=int, default=75)
    parser.add_argument("--bytes", type=int, default=2000)
    chosen = parser.parse_args()
    tiktoken = importlib.import_module("tiktoken")
    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: _Tokens()
    inspect = importlib.import_module("inspect_ai")
    models = importlib.import_module("inspect_ai.model")
    solvers = importlib.import_module("inspect_ai.solver")
    tools = importlib.import_module("inspect_ai.tool")
    datasets = importlib.import_module("inspect_ai.dataset")

    async def execute(command: str) -> str:
        """Run a command.

        Args:
            command: The command.
        """
        return "tests/test_module.py::test_case PASSED in 12 ms\n" * (chosen.bytes // 48)

    # Inspect looks at annotations, which must be objects here and not text.
    execute.__annotations__ = {"command": str, "return": str}

    def bash() -> typing.Any:
        return execute

    bash.__annotations__ = {"return": tools.Tool}

    def loop() -> typing.Any:
        async def solve(state: typing.Any, generate: typing.Any) -> typing.Any:
            for _ in range(chosen.turns):
                state = await generate(state, tool_calls="single")
            return state

        return solve

    answers = (
        models.ModelOutput.for_tool_call(
            "mockllm/model",
            "bash",
            {"command": f"cat {MARK}_{number}.py"},
            content="I look at the next file.",
        )
        for number in itertools.count()
    )
    tool = tools.tool(bash)
    task = inspect.Task(
        dataset=[datasets.Sample(input="Fix the bug.", id=1)],
        solver=[solvers.use_tools(tool()), solvers.solver(loop)()],
    )
    model = models.get_model("mockllm/model", custom_outputs=answers)
    (log,) = inspect.eval(task, model=model, log_dir=str(chosen.folder), display="none", score=False)
    messages = len(log.samples[0].messages) if log.samples else 0
    name = pathlib.Path(log.location.removeprefix("file://")).name
    print(json.dumps({"log": name, "messages": messages, "version": inspect.__version__}))


if __name__ == "__main__":
    main()

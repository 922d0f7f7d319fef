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


def run(folder: pathlib.Path, turns: int, size: int) -> typing.Any:
    """Let Inspect run one sample whose model calls a tool `turns` times; its log."""
    tiktoken = importlib.import_module("tiktoken")
    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: _Tokens()
    inspect = importlib.import_module("inspect_ai")
    models = importlib.import_module("inspect_ai.model")
    solvers = importlib.import_module("inspect_ai.solver")
    datasets = importlib.import_module("inspect_ai.dataset")

    def loop() -> typing.Any:
        async def solve(state: typing.Any, generate: typing.Any) -> typing.Any:
            for _ in range(turns):
                state = await generate(state, tool_calls="single")
            return state

        return solve

    def answer(number: int) -> typing.Any:
        command = {"command": f"cat {MARK}_{number}.py"}
        return models.ModelOutput.for_tool_call("mockllm/model", "bash", command, content="I look at a file.")

    task = inspect.Task(
        dataset=[datasets.Sample(input="Fix the bug.", id=1)],
        solver=[solvers.use_tools(printing_tool(size)), solvers.solver(loop)()],
    )
    model = models.get_model("mockllm/model", custom_outputs=map(answer, itertools.count()))
    (log,) = inspect.eval(task, model=model, log_dir=str(folder), display="none", score=False)
    return log


def printing_tool(size: int) -> typing.Any:
    """A tool named bash that runs nothing and prints `size` bytes."""
    tools = importlib.import_module("inspect_ai.tool")

    async def execute(command: str) -> str:
        """Run a command.

        Args:
            command: The command.
        """
        return "tests/test_module.py::test_case PASSED in 12 ms\n" * (size // 48)

    def bash() -> typing.Any:
        return execute

    # Inspect looks at annotations, which must be objects here and not text.
    execute.__annotations__ = {"command": str, "return": str}
    bash.__annotations__ = {"return": tools.Tool}
    return tools.tool(bash)()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--turns", type=int, default=75)
    parser.add_argument("--bytes", type=int, default=2000)
    chosen = parser.parse_args()
    log = run(chosen.folder, chosen.turns, chosen.bytes)
    messages = len(log.samples[0].messages) if log.samples else 0
    name = pathlib.Path(log.location.removeprefix("file://")).name
    version = importlib.import_module("inspect_ai").__version__
    print(json.dumps({"log": name, "messages": messages, "version": version}))


if __name__ == "__main__":
    main()

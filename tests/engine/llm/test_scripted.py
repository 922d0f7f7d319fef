"""The scripted models: one plan, whatever tools a harness offers, and the same answers each time."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import ToolDefinition
from lab.engine.harnesses.xml_calls import documentation, first_block
from lab.engine.llm.base import JSONObject, ModelConfig, Price, Reply
from lab.engine.llm.client import ModelClient
from lab.engine.llm.endpoint import list_models
from lab.engine.llm.scripted import NO_PLAN, SCRIPTED_MODELS, ScriptedServer, parse_plans
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal

SOLVER, STRUGGLER = SCRIPTED_MODELS


def tool(name: str, required: tuple[str, ...], *optional: str, **choices: list[str]) -> JSONObject:
    properties: JSONObject = {key: {"type": "string"} for key in (*required, *optional)}
    for key, values in choices.items():
        properties[key] = {"type": "string", "enum": values}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


LEAF = [
    tool("Read", ("file_path",), "offset", "limit"),
    tool("Write", ("file_path", "content")),
    tool("Edit", ("file_path", "old_string", "new_string"), "replace_all"),
    tool("Glob", ("pattern",), "path"),
    tool("Bash", ("command",), "description", "timeout"),
]
SHELL = [tool("bash", ("command",))]
R2E = [
    tool(
        "file_editor", ("path",), "file_text", "old_str", "new_str", command=["view", "create", "str_replace"]
    ),
    tool("execute_bash", ("cmd",)),
    tool("finish", (), "result", command=["submit"]),
]


def plans(*steps: JSONObject, model: str = SOLVER) -> dict[str, list[JSONObject]]:
    return {model: [{"steps": list(steps)}]}


def ask(
    server: ScriptedServer,
    *,
    turn: int = 0,
    tools: list[JSONObject] | None = LEAF,
    model: str = SOLVER,
    **body: Any,
) -> Reply:
    """The scripted model's answer after `turn` earlier answers."""
    messages: list[JSONObject] = [{"role": "system", "content": "x"}, {"role": "user", "content": "fix it"}]
    messages += [{"role": "assistant", "content": "…"}, {"role": "user", "content": "go on"}] * turn
    config = ModelConfig(name=model, model_id=model, base_url=server.base_url, price=Price(basis="scripted"))
    sink = ListSink()
    client = ModelClient(
        config, api_key="", emit=sink.emit, draft=sink.draft, stop=StopSignal(), retry_seconds=0
    )
    offered = {} if tools is None else {"tools": tools}
    request = {"model": model, "messages": messages, **offered, **body}
    with client:
        return client.ask(step=1, body=request, message_count=len(messages)).reply


def serve(*steps: JSONObject, seed: int = 1, model: str = SOLVER) -> ScriptedServer:
    return ScriptedServer(plans(*steps, model=model), seed=seed, chunk_seconds=0)


def calls(reply: Reply) -> list[tuple[str, JSONObject]]:
    return [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]


EDIT = {"edit": {"path": "a.py", "old": "x = 1\n", "new": "x = 2\n"}}


class TestLeafTools:
    @pytest.mark.parametrize(
        ("step", "expected"),
        [
            ({"read": {"path": "a.py"}}, ("Read", {"file_path": "a.py"})),
            (
                {"read": {"path": "a.py", "offset": 3, "limit": 9}},
                ("Read", {"file_path": "a.py", "offset": 3, "limit": 9}),
            ),
            ({"write": {"path": "a.py", "content": "x"}}, ("Write", {"file_path": "a.py", "content": "x"})),
            (EDIT, ("Edit", {"file_path": "a.py", "old_string": "x = 1\n", "new_string": "x = 2\n"})),
            ({"search": {"glob": "**/*.py"}}, ("Glob", {"pattern": "**/*.py"})),
            ({"run": {"command": "ls", "timeout": 5}}, ("Bash", {"command": "ls", "timeout": 5})),
        ],
    )
    def test_each_action_becomes_the_tool_made_for_it(
        self, step: JSONObject, expected: tuple[str, JSONObject]
    ) -> None:
        with serve(step) as server:
            reply = ask(server)
        assert calls(reply) == [expected]
        assert reply.finish_reason == "tool_calls"

    def test_a_text_is_searched_with_the_shell(self) -> None:
        with serve({"search": {"pattern": 'say "hi"', "path": "src"}}) as server:
            [(name, arguments)] = calls(ask(server))
        assert name == "Bash"
        assert arguments["command"] == "grep -rnI --exclude-dir=.git -e 'say \"hi\"' src"

    def test_words_reasoning_and_several_calls_share_a_turn(self) -> None:
        step = {"say": "Both.", "reasoning": "I need both.", "parallel": [{"run": {"command": "a"}}, EDIT]}
        with serve(step) as server:
            reply = ask(server)
        assert (reply.content, reply.reasoning, reply.reasoning_field) == (
            "Both.",
            "I need both.",
            "reasoning_content",
        )
        assert [name for name, _ in calls(reply)] == ["Bash", "Edit"]
        assert len({call.id for call in reply.tool_calls}) == 2

    def test_malformed_arguments_go_out_raw(self) -> None:
        with serve({"malformed": {"tool": "edit", "raw": '{"file_path": "a.py'}}) as server:
            [call] = ask(server).tool_calls
        assert (call.name, call.arguments) == ("Edit", '{"file_path": "a.py')

    def test_finishing_is_an_answer_without_calls(self) -> None:
        with serve({"finish": {"message": "Done."}}) as server:
            reply = ask(server)
        assert (reply.content, reply.tool_calls, reply.finish_reason) == ("Done.", (), "stop")


class TestOtherTools:
    def test_a_finish_tool_is_called_where_there_is_one(self) -> None:
        with serve({"finish": {"message": "Done."}}) as server:
            assert calls(ask(server, tools=R2E)) == [("finish", {"result": "Done.", "command": "submit"})]

    def test_an_editor_replaces_and_a_cmd_parameter_is_a_shell(self) -> None:
        with serve({"parallel": [EDIT, {"run": {"command": "ls"}}, {"read": {"path": "a"}}]}) as server:
            editing, running, reading = calls(ask(server, tools=R2E))
        assert editing == (
            "file_editor",
            {"command": "str_replace", "path": "a.py", "old_str": "x = 1\n", "new_str": "x = 2\n"},
        )
        assert running == ("execute_bash", {"cmd": "ls"})
        assert reading == ("execute_bash", {"cmd": "cat a"})

    def test_without_tools_the_answer_is_one_fenced_block(self) -> None:
        steps = [{"say": "Look.", "parallel": [{"run": {"command": "ls"}}, {"read": {"path": "a"}}]}]
        with serve(*steps) as server:
            reply = ask(server, tools=None)
        assert reply.content == "Look.\n\n```bash\nls\ncat a\n```"
        assert reply.tool_calls == ()


class TestCallsInText:
    """Where a request offers no tools, they are learnt from the documentation in the prompt."""

    PROMPT = documentation([ToolDefinition(executor="x", **tool["function"]) for tool in R2E])

    def said(self, server: ScriptedServer, turn: int = 0) -> str:
        body: JSONObject = {"model": SOLVER, "messages": [{"role": "system", "content": self.PROMPT}]}
        body["messages"] += [{"role": "assistant", "content": "…"}] * turn
        answer = server.answer(body)["choices"][0]
        assert answer["finish_reason"] == "stop"
        assert "tool_calls" not in answer["message"]
        content: str = answer["message"]["content"]
        return content

    def test_a_call_stands_behind_what_is_said(self) -> None:
        with serve({"say": "I look.", "run": {"command": "ls\ncat a"}}) as server:
            said = self.said(server)
        assert said == "I look.\n\n<function=execute_bash>\n<parameter=cmd>ls\ncat a</parameter>\n</function>"
        block = first_block(said)
        assert block is not None
        assert (block.name, block.values, block.thought) == (
            "execute_bash",
            {"cmd": "ls\ncat a"},
            "I look.",
        )

    def test_a_text_that_would_lose_its_white_space_is_edited_by_the_shell(self) -> None:
        whole = {"edit": {"path": "a.py", "old": "x = 1", "new": "x = 2"}}
        with serve(whole, EDIT) as server:
            first, second = (first_block(self.said(server, turn)) for turn in (0, 1))
        assert first is not None
        assert second is not None
        assert (first.name, first.values["command"]) == ("file_editor", "str_replace")
        assert second.name == "execute_bash"

    def test_several_actions_of_a_turn_are_as_many_turns(self) -> None:
        both = {"say": "Both.", "parallel": [{"run": {"command": "a"}}, {"run": {"command": "b"}}]}
        with serve(both, {"finish": {"message": "Done."}}) as server:
            said = [self.said(server, turn) for turn in (0, 1, 2)]
        assert [text.startswith("Both.") for text in said] == [True, False, False]
        blocks = [block for block in map(first_block, said) if block]
        assert [block.values for block in blocks] == [
            {"cmd": "a"},
            {"cmd": "b"},
            {"result": "Done.", "command": "submit"},
        ]

    def test_a_malformed_call_is_a_block_that_never_closes(self) -> None:
        with serve({"malformed": {"tool": "run", "raw": '{"cmd": '}}) as server:
            said = self.said(server)
        assert said.startswith("<function=execute_bash>")
        assert first_block(said) is None


class TestOneCallATurn:
    def test_where_no_parallel_calls_are_asked_for_there_is_one_a_turn(self) -> None:
        both = {"parallel": [{"run": {"command": "a"}}, {"run": {"command": "b"}}]}
        with serve(both) as server:
            answers = [ask(server, tools=SHELL, turn=turn, parallel_tool_calls=False) for turn in (0, 1)]
        assert [calls(answer) for answer in answers] == [
            [("bash", {"command": "a"})],
            [("bash", {"command": "b"})],
        ]

    def test_the_place_in_the_plan_is_kept_where_a_harness_drops_turns(self) -> None:
        steps = [{"run": {"command": name}} for name in "abcd"]
        with serve(*steps) as server:
            third = ask(server, tools=SHELL, turn=2)
            made = {"id": third.tool_calls[0].id, "type": "function", "function": {"name": "bash"}}
            # Two turns before it are gone, one after it made no call.
            messages = [
                {"role": "user", "content": "fix it"},
                {"role": "assistant", "content": "", "tool_calls": [made]},
                {"role": "tool", "tool_call_id": made["id"], "content": "done"},
            ]
            body = {"model": SOLVER, "tools": SHELL, "messages": messages}
            (call,) = server.answer(body)["choices"][0]["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"]) == {"command": "d"}
            messages.append({"role": "assistant", "content": "no call"})
            assert "tool_calls" not in server.answer(body)["choices"][0]["message"]


class TestShellTranslation:
    """The commands do in a real shell what the tools would do."""

    def run(self, folder: Path, *steps: JSONObject) -> subprocess.CompletedProcess[str]:
        with serve(*steps) as server:
            for turn in range(len(steps)):
                [(_, arguments)] = calls(ask(server, turn=turn, tools=SHELL))
                done = subprocess.run(
                    ["/bin/bash", "-c", arguments["command"]], cwd=folder, capture_output=True, text=True
                )
        return done

    @pytest.mark.parametrize(
        "content",
        ["", "plain\n", "no line end", "a\n\n", "EOF\n$HOME `id` \\n %s 'x' \"y\"\nEOF_\n", "ünï — 👋\n"],
    )
    def test_a_file_is_written_as_it_stands(self, tmp_path: Path, content: str) -> None:
        assert self.run(tmp_path, {"write": {"path": "d e/x'y.txt", "content": content}}).returncode == 0
        assert (tmp_path / "d e/x'y.txt").read_text() == content

    def test_a_text_over_several_lines_with_everything_special_is_replaced(self, tmp_path: Path) -> None:
        old = "if x == '\\n' and \"&\":  # $HOME\n\treturn `a` \\1\n"
        new = "if y != '\\t' & %s:\n\treturn \\0 & 'ü'\n"
        target = tmp_path / "a b.py"
        target.write_text(f"before\n{old}after")
        target.chmod(0o755)
        done = self.run(tmp_path, {"edit": {"path": "a b.py", "old": old, "new": new}})
        assert (done.returncode, done.stderr) == (0, "")
        assert target.read_text() == f"before\n{new}after"
        assert target.stat().st_mode & 0o777 == 0o755
        assert [path.name for path in tmp_path.iterdir()] == ["a b.py"]

    @pytest.mark.parametrize("text", ["nothing of it", "twice x = 1\nx = 1\n"])
    def test_a_text_that_is_not_there_exactly_once_changes_nothing(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.py").write_text(text)
        done = self.run(tmp_path, EDIT)
        assert done.returncode != 0
        assert "exactly once" in done.stderr
        assert (tmp_path / "a.py").read_text() == text

    def test_lines_are_read_and_files_found(self, tmp_path: Path) -> None:
        (tmp_path / "src/deep").mkdir(parents=True)
        (tmp_path / ".git").mkdir()
        for name in ("top.py", "src/a.py", "src/deep/b.py", "src/c.txt", ".git/d.py"):
            (tmp_path / name).write_text("1\n2\n3\n4\nneedle(\n")
        read = self.run(tmp_path, {"read": {"path": "top.py", "offset": 2, "limit": 2}})
        assert read.stdout == "2\n3\n"
        assert self.run(tmp_path, {"read": {"path": "top.py", "offset": 4}}).stdout == "4\nneedle(\n"
        found = self.run(tmp_path, {"search": {"glob": "**/*.py"}})
        assert found.stdout.split() == ["./src/a.py", "./src/deep/b.py", "./top.py"]
        inside = self.run(tmp_path, {"search": {"glob": "src/**/*.py"}})
        assert inside.stdout.split() == ["./src/a.py", "./src/deep/b.py"]
        grep = self.run(tmp_path, {"search": {"pattern": "needle(", "path": "src"}})
        assert sorted(grep.stdout.split()) == [
            "src/a.py:5:needle(",
            "src/c.txt:5:needle(",
            "src/deep/b.py:5:needle(",
        ]


class TestWhichAnswer:
    def test_the_seed_picks_the_plan_and_the_answers_so_far_pick_the_step(self) -> None:
        two = {
            SOLVER: [
                {"steps": [{"run": {"command": "a1"}}, {"finish": {"message": "a2"}}]},
                {"steps": [{"run": {"command": "b1"}}, {"finish": {"message": "b2"}}]},
            ]
        }
        seen = []
        for seed in (1, 2, 3):
            with ScriptedServer(two, seed=seed, chunk_seconds=0) as server:
                seen.append((calls(ask(server))[0][1]["command"], ask(server, turn=1).content))
        assert seen == [("a1", "a2"), ("b1", "b2"), ("a1", "a2")]

    def test_a_request_that_is_sent_again_gets_the_same_answer(self) -> None:
        with serve({"say": "Hm.", "run": {"command": "ls"}}) as server:
            first, second = ask(server), ask(server)
        volatile = {"seconds", "first_token_seconds"}
        assert first.model_dump(exclude=volatile) == second.model_dump(exclude=volatile)

    @pytest.mark.parametrize("model", SCRIPTED_MODELS)
    def test_on_a_task_without_a_plan_the_model_says_so_and_stops(self, model: str) -> None:
        with ScriptedServer({}, seed=1, chunk_seconds=0) as server:
            reply = ask(server, model=model)
        assert (reply.content, reply.tool_calls, reply.finish_reason) == (NO_PLAN, (), "stop")

    def test_after_its_last_step_the_model_stops(self) -> None:
        with serve({"run": {"command": "ls"}}) as server:
            reply = ask(server, turn=4)
        assert "ends here" in reply.content
        assert reply.tool_calls == ()


class TestOnTheWire:
    def test_usage_is_plausible_and_the_earlier_turns_prefix_is_cached(self) -> None:
        with serve(*[{"say": "Look.", "reasoning": "hm " * 20, "run": {"command": "ls"}}] * 3) as server:
            first, second, third = (ask(server, turn=turn).usage for turn in range(3))
        assert (first.cache_read, first.notes) == (0, ())
        for usage in (first, second, third):
            assert usage.output_total is not None
            assert usage.reasoning is not None
            assert 0 < usage.reasoning < usage.output_total
        assert second.input_total is not None
        assert third.cache_read is not None
        assert 0 < third.cache_read < (third.input_total or 0)
        assert second.input_total < (third.input_total or 0)

    def test_a_turn_over_the_requests_cap_is_cut_without_its_calls(self) -> None:
        with serve({"say": "word " * 100, "run": {"command": "ls"}}) as server:
            reply = ask(server, max_completion_tokens=10)
        assert (reply.finish_reason, reply.usage.output_total, reply.tool_calls) == ("length", 10, ())
        assert 0 < len(reply.content) <= 40

    def test_without_streaming_the_same_answer_comes_at_once(self) -> None:
        step = {"say": "Both.", "run": {"command": "ls"}}
        with serve(step) as server:
            body = {"model": SOLVER, "messages": [], "tools": SHELL}
            request = urllib.request.Request(
                f"{server.base_url}/chat/completions", data=json.dumps(body).encode()
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
        message = answer["choices"][0]["message"]
        assert message["content"] == "Both."
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}

    def test_the_text_arrives_in_pieces_with_a_pause_between_them(self) -> None:
        with ScriptedServer(
            plans({"finish": {"message": "word " * 60}}), seed=1, chunk_seconds=0.01
        ) as server:
            started = time.monotonic()
            reply = ask(server)
            assert time.monotonic() - started > 0.15
        assert reply.first_token_seconds is not None
        assert reply.first_token_seconds < reply.seconds

    def test_the_models_are_listed_with_their_context_window(self) -> None:
        with serve({"finish": {"message": "x"}}) as server:
            assert [tuple(model) for model in list_models(server.base_url, "")] == [
                (name, 131_072, "scripted") for name in SCRIPTED_MODELS
            ]


class TestPlans:
    @pytest.mark.parametrize(
        ("raw", "place"),
        [
            ([], "plans"),
            ({SOLVER: []}, SOLVER),
            ({SOLVER: [{"steps": [{"run": {"comand": "x"}}]}]}, "steps.0.run"),
            ({SOLVER: [{"steps": [{"say": "only words"}]}]}, "steps.0"),
            ({SOLVER: [{"steps": [{"read": {"path": "a"}, "run": {"command": "b"}}]}]}, "steps.0"),
            ({SOLVER: [{"steps": [{"read": {"path": "a", "limit": "ten"}}]}]}, "read.limit"),
        ],
    )
    def test_a_broken_plan_names_its_source_and_the_place(self, raw: Any, place: str) -> None:
        with pytest.raises(InvalidValueError) as caught:
            parse_plans(raw, "tasks/one/plans.yaml")
        assert caught.value.field.startswith("tasks/one/plans.yaml: ")
        assert place in caught.value.field

    def test_a_good_plan_is_handed_on_unchanged(self) -> None:
        raw = plans(EDIT)
        assert parse_plans(raw, "x") is raw

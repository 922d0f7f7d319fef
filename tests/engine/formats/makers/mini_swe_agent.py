"""Runs mini-swe-agent itself, with models that need no server, and keeps its trajectories.

    python mini_swe_agent.py FOLDER

It runs in an environment of its own and knows nothing of the lab. Each run is written as NAME.traj.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
    "MSWEA_GLOBAL_CONFIG_DIR": tempfile.mkdtemp(),
}

from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.environments.local import LocalEnvironment  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel  # noqa: E402
from minisweagent.models.test_models import (  # noqa: E402
    DeterministicModel,
    DeterministicResponseAPIToolcallModel,
    DeterministicToolcallModel,
    make_output,
    make_response_api_output,
    make_toolcall_output,
)

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
PATCH = "diff --git a/a.txt b/a.txt"
AGENT = {
    "system_template": "You are a careful engineer.",
    "instance_template": "The task:\n{{task}}\n\nWork in steps.",
    "step_limit": 5,
}


def call(identifier: str, command: str) -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    return {"id": identifier, "type": "function", "function": {"name": "bash", "arguments": arguments}}


def native() -> DeterministicToolcallModel:
    """Two calls in one reply, a command that fails, a patch that is submitted."""
    looked = [("call-a", "echo one"), ("call-b", "exit 3")]
    submitted = f"{SUBMIT}; echo '{PATCH}'"
    return DeterministicToolcallModel(
        outputs=[
            make_toolcall_output(
                "Two at once.",
                [call(*one) for one in looked],
                [{"command": command, "tool_call_id": name} for name, command in looked],
            ),
            make_toolcall_output(
                None, [call("call-c", submitted)], [{"command": submitted, "tool_call_id": "call-c"}]
            ),
        ]
    )


def text() -> DeterministicModel:
    """Commands that the program has read from the text, one of which is stopped by its time-out."""
    return DeterministicModel(
        outputs=[
            make_output("Wait.\n\n```mswea_bash_command\nsleep 5\n```", [{"command": "sleep 5"}], 0.25),
            make_output(f"Done.\n\n```mswea_bash_command\n{SUBMIT}\n```", [{"command": SUBMIT}], 0.5),
        ]
    )


def responses() -> DeterministicResponseAPIToolcallModel:
    """Items of the Responses API."""
    return DeterministicResponseAPIToolcallModel(
        outputs=[
            make_response_api_output("Look.", [{"command": "echo two", "tool_call_id": "call-d"}]),
            make_response_api_output(None, [{"command": SUBMIT, "tool_call_id": "call-e"}]),
        ]
    )


def unread() -> LitellmModel:
    """Replies without a call, three in a row."""
    return mocked(LitellmModel, "I would rather talk.")


def limited() -> LitellmTextbasedModel:
    """The same command until the steps are used up."""
    return mocked(LitellmTextbasedModel, "Again.\n\n```mswea_bash_command\necho again\n```")


def overflowing() -> LitellmModel:
    """The endpoint refuses a conversation that is too long."""
    return mocked(LitellmModel, "litellm.ContextWindowExceededError")


def mocked(kind: type[LitellmModel], answer: str) -> LitellmModel:
    """A model whose answers LiteLLM makes up, with usage as it comes from a server."""
    return kind(model_name="openai/gpt-4o-mini", model_kwargs={"mock_response": answer, "temperature": 0.0})


RUNS = {
    "native": (native, {}),
    "text": (text, {}),
    "responses": (responses, {}),
    "unread": (unread, {}),
    "limited": (limited, {"step_limit": 2}),
    "overflowing": (overflowing, {}),
}


def main(folder: Path) -> None:
    for name, (make, settings) in RUNS.items():
        with tempfile.TemporaryDirectory() as workspace:
            environment = LocalEnvironment(cwd=workspace, timeout=1)
            agent = DefaultAgent(make(), environment, **{**AGENT, **settings})
            with contextlib.suppress(Exception):
                agent.run("Make it one.")
            extra = {"instance_id": "owner__project-1"} if name == "native" else {}
            agent.save(folder / f"{name}.traj.json", extra)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

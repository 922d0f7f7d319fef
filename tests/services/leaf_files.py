"""Files as Leaf writes them: whole trajectories, and partial ones that grow step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JSONObject = dict[str, Any]


def trajectory(
    instance: str = "owner__project-1",
    *,
    seed: int | None = 1,
    steps: int = 2,
    partial: bool = False,
    says: str = "I look.",
    text: str = "one\n",
    **fields: Any,
) -> JSONObject:
    """A run of `steps` commands; the finished one says so and has a patch and a reward."""
    messages: list[JSONObject] = [
        {"role": "system", "content": "You are an engineer."},
        {"role": "user", "content": f"Mend {instance}."},
    ]
    for step in range(1, steps + 1):
        function = {"name": "Bash", "arguments": json.dumps({"command": f"cat {step}"})}
        calls = [{"id": f"call-{step}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": f"{says} {step}", "tool_calls": calls})
        observation = f"Exit code: 0\nSTDOUT:\n{text}{step}\nSTDERR:\n"
        messages.append({"role": "tool", "tool_call_id": f"call-{step}", "content": observation})
    document: JSONObject = {
        "trajectory_format": "leaf-function-calling",
        "trajectory_id": f"{instance}-{seed}-{says}",
        "instance_id": instance,
        "messages": messages,
        "tools": [],
        "partial": partial,
    }
    if seed is not None:
        document["seed"] = seed
    if not partial:
        messages.append({"role": "assistant", "content": "Done."})
        document |= {"exit_reason": "agent", "output_patch": "", "n_steps": steps + 1, "reward": 1.0}
    return document | fields


def write(path: Path, document: JSONObject) -> Path:
    """Write as Leaf does: beside its place, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    beside.write_text(json.dumps(document))
    beside.replace(path)
    return path

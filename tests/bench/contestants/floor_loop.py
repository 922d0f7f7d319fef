"""The floor of an agent loop: one kept HTTP connection, one `bash -lc` a step, only the messages kept."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from typing import Any

import httpx2


def run(base_url: str, steps: int, environment: dict[str, str], folder: str) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s" * 2000},
        {"role": "user", "content": "u" * 2000},
    ]
    headers = {"Authorization": f"Bearer bench-key-of-{os.getpid()}"}
    with httpx2.Client(timeout=60, headers=headers) as client:
        for _ in range(steps):
            message = _ask(client, base_url, messages)
            call = message["tool_calls"][0]
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(
                ["/bin/bash", "-lc", command],
                env=environment,
                cwd=folder,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
            )
            messages.append(message)
            text = f"Exit code: {done.returncode}\nSTDOUT:\n{done.stdout}\nSTDERR:\n{done.stderr}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        _ask(client, base_url, messages)


def _ask(client: httpx2.Client, base_url: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    answer = client.post(f"{base_url}/chat/completions", json={"model": "floor", "messages": messages})
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return message


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--environment", type=json.loads, required=True, help="the command's, as JSON")
    parser.add_argument("--folder", required=True)
    chosen = parser.parse_args()
    run(chosen.base_url, chosen.steps, chosen.environment, chosen.folder)


if __name__ == "__main__":
    main()

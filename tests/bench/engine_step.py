"""Overhead of a step, engine alone: no database, no viewer. Prints one JSON object.

The floor does the same work by hand: one streamed HTTP call with the whole conversation and one `bash -lc` in
the same environment, in one interleaved run with the engine. Overhead is wall time a step minus the floor's.
`flat` compares the last ten steps with the first ten; `cpu` is this process's own, children excluded.

    python tests/bench/engine_step.py [--rounds 3] [--steps 150] [--bytes 2048] [--sandbox process]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.engine import registry
from lab.engine.events import ModelCallStarted
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.runner import AttemptSpec, run_attempt
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task, practice_folder

PROMPT = load_preset("leaf-compatible").system_prompt


def answer(count: int, steps: int, command: str) -> bytes:
    base = {"id": "b", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    call = {"index": 0, "id": f"call_{count}", "type": "function"}
    if count >= steps:
        deltas: list[dict[str, Any]] = [{"content": "done"}]
    else:
        deltas = [
            {"role": "assistant", "content": ""},
            *({"content": f"word {number} "} for number in range(8)),
            {"tool_calls": [{**call, "function": {"name": "Bash", "arguments": ""}}]},
            {
                "tool_calls": [
                    {"index": 0, "function": {"arguments": json.dumps({"command": command})}},
                ]
            },
        ]
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    finish = "stop" if count >= steps else "tool_calls"
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    # The ceiling is not what is measured: the counted context stays small.
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}
    chunks.append({**base, "choices": [], "usage": usage})
    return (
        b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    )


async def serve(steps: int, command: str) -> None:
    """Answers at once; the number of assistant messages in the request decides what."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                body = await reader.readexactly(length)
                count = body.count(b'"role":"assistant"') + body.count(b'"role": "assistant"')
                data = answer(count, steps, command)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
                    % len(data)
                )
                writer.write(data)
                await writer.drain()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=64 * 1024 * 1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def endpoint(steps: int, command: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--steps", str(steps), "--command", command],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def floor(base_url: str, home: str) -> dict[str, Any]:
    """The loop by hand."""
    tools = [tool.on_the_wire() for tool in load_preset("leaf-compatible").tools]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": "u" * 2000},
    ]
    environment = {"PATH": "/usr/bin:/bin", "HOME": home}
    times, before, started = [], own_cpu(), time.perf_counter()
    with httpx2.Client(timeout=60) as client:
        while True:
            times.append(time.perf_counter())
            body = {"model": "bench", "messages": messages, "tools": tools, "stream": True}
            arguments, call_id = "", ""
            with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
                for line in response.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    for choice in json.loads(line[6:])["choices"]:
                        for part in choice["delta"].get("tool_calls", []):
                            call_id = part.get("id") or call_id
                            arguments += part["function"]["arguments"]
            if not arguments:
                break
            done = subprocess.run(
                ["/bin/bash", "-lc", json.loads(arguments)["command"]], capture_output=True, env=environment
            )
            function = {"name": "Bash", "arguments": arguments}
            messages += [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": call_id, "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": call_id, "content": done.stdout.decode()},
            ]
    return {"times": times, "cpu": own_cpu() - before, "wall": time.perf_counter() - started}


def engine(base_url: str, folder: Path, sandbox: str, steps: int) -> dict[str, Any]:
    harness = load_preset("leaf-compatible")
    marks: list[float] = []

    class Marking(ListSink):
        def append(self, event: Any) -> Any:
            if isinstance(event, ModelCallStarted):
                marks.append(time.perf_counter())
            return super().append(event)

    spec = AttemptSpec(
        task=load_task(practice_folder() / "parse-duration"),
        harness=harness,
        model=ModelConfig(name="bench", model_id="bench", base_url=base_url, price=Price(basis="unknown")),
        limits=harness.limits.model_copy(update={"max_steps": steps + 1, "max_context_tokens": None}),
        provider=registry.provider(sandbox),
        data_folder=folder,
        label="bench",
        # A key makes the redactor work, as it does with a real endpoint.
        api_key="sk-bench-0123456789abcdef",
    )
    before, started = own_cpu(), time.perf_counter()
    run_attempt(spec, Marking(), StopSignal())
    return {"times": marks, "cpu": own_cpu() - before, "wall": time.perf_counter() - started}


def per_step(times: list[float]) -> list[float]:
    return [(after - before) * 1000 for before, after in zip(times, times[1:], strict=False)]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    steps, size = arguments.steps, arguments.bytes
    command = f"head -c {size} /dev/zero | tr '\\0' x" if size else "true"
    floors: list[dict[str, Any]] = []
    engines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, endpoint(steps, command) as base_url:
        home = Path(folder) / "home"
        home.mkdir()
        engine(base_url, Path(folder), arguments.sandbox, steps)
        for _ in range(arguments.rounds):
            floors.append(floor(base_url, str(home)))
            engines.append(engine(base_url, Path(folder), arguments.sandbox, steps))
    floor_ms = statistics.median(statistics.mean(per_step(one["times"])) for one in floors)
    engine_ms = statistics.median(statistics.mean(per_step(one["times"])) for one in engines)

    def overhead(part: slice) -> float:
        ours = statistics.mean(value for one in engines for value in per_step(one["times"])[part])
        theirs = statistics.mean(value for one in floors for value in per_step(one["times"])[part])
        return ours - theirs

    first, last = overhead(slice(0, 10)), overhead(slice(-10, None))
    return {
        "steps": steps,
        "bytes": size,
        "sandbox": arguments.sandbox,
        "floor_ms_step": round(floor_ms, 2),
        "engine_ms_step": round(engine_ms, 2),
        "overhead_ms_step": round(engine_ms - floor_ms, 2),
        "first_ten_overhead_ms": round(first, 2),
        "last_ten_overhead_ms": round(last, 2),
        "flat": round(last / first, 2) if first > 0 else None,
        "cpu_ms_step": round(statistics.median(one["cpu"] for one in engines) / steps * 1000, 2),
        "floor_cpu_ms_step": round(statistics.median(one["cpu"] for one in floors) / steps * 1000, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--bytes", type=int, default=2048)
    parser.add_argument("--sandbox", default="process")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--command", default="true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.steps, arguments.command))
    else:
        sys.stdout.write(json.dumps(measure(arguments)) + "\n")


if __name__ == "__main__":
    main()

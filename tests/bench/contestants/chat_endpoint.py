"""A chat-completions server that notes when each request came and what its sender used.

It answers at once, or after `--delay` seconds. With `--apart`, several loops share one path, and how far each
is stands in its conversation.

The path of the base URL names the loop that is measured (`/lab-3/v1`); each of its requests is one step. The
key of a request ends in the sender's process id, so that processor time and memory are read from outside, in
the same way for everybody. `GET /<loop>/figures` gives what was noted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL = "gpt-4o-mini"
_THOUGHT = "Let me look at the next file and then decide what to change."
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Loop:
    """What one loop did: arrival of each request in seconds, processor seconds and memory at both ends."""

    arrivals: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_kilobytes: int = 0
    body_bytes: int = 0


class Endpoint:
    """`steps` answers call a tool, the next one ends the loop; each comes after `delay` seconds."""

    def __init__(self, steps: int, command: str, delay: float, apart: bool) -> None:
        self._steps = steps
        self._apart = apart
        self._command = command
        self._delay = delay
        self._loops: dict[str, Loop] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = request.split(" ")
        name, _, rest = path.strip("/").partition("/")
        if method == "POST":
            await self._answer(writer, name, body, pid_in(headers.get("authorization", "")))
        elif rest == "figures":
            _send_json(writer, self._figures(name))
        else:
            _send_json(writer, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _answer(self, writer: asyncio.StreamWriter, name: str, body: bytes, pid: int | None) -> None:
        loop = self._loops.setdefault(name, Loop())
        loop.arrivals.append(time.perf_counter())
        number = len(loop.arrivals)
        if pid is not None and number in (1, self._steps + 1):
            loop.cpu.append(_cpu_seconds(pid))
            loop.peak_kilobytes = _peak_kilobytes(pid)
            loop.body_bytes = len(body)
        if self._delay:
            await asyncio.sleep(self._delay)
        if self._apart:
            number = 1 + sum(one["role"] == "assistant" for one in json.loads(body)["messages"])
        message, finish = self._message(name, number)
        usage = {
            "prompt_tokens": 900 + 200 * number,
            "completion_tokens": 40,
            "total_tokens": 940 + 200 * number,
        }
        if b'"stream":true' in body or b'"stream": true' in body:
            _send_stream(writer, number, message, finish, usage)
        else:
            choice = {"index": 0, "message": message, "finish_reason": finish}
            _send_json(writer, _envelope(number, "chat.completion") | {"choices": [choice], "usage": usage})

    def _message(self, name: str, number: int) -> tuple[dict[str, Any], str]:
        tool, command = ("Bash" if name.startswith("lab") else "bash"), self._command
        if number > self._steps:
            if not name.startswith("mini"):
                return {"role": "assistant", "content": "Nothing is left to do."}, "stop"
            command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps({"command": command})},
        }
        return {"role": "assistant", "content": _THOUGHT, "tool_calls": [call]}, "tool_calls"

    def _figures(self, name: str) -> dict[str, Any]:
        loop = self._loops.get(name, Loop())
        return {
            "arrivals": loop.arrivals,
            "cpu_seconds": loop.cpu[-1] - loop.cpu[0] if len(loop.cpu) == 2 else None,
            "peak_kilobytes": loop.peak_kilobytes,
            "last_body_bytes": loop.body_bytes,
        }


def pid_in(authorization: str) -> int | None:
    digits = authorization.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else None


def _cpu_seconds(pid: int) -> float:
    """Processor time of the process itself, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _envelope(number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_700_000_000, "model": MODEL}


def _send_json(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


def _send_stream(
    writer: asyncio.StreamWriter, number: int, message: dict[str, Any], finish: str, usage: dict[str, int]
) -> None:
    """A word or eight characters of arguments a chunk, each written for itself, as servers do."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    envelope = _envelope(number, "chat.completion.chunk")
    for delta, reason in _deltas(message, finish):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        _send_event(writer, json.dumps(envelope | {"choices": [choice]}))
    _send_event(writer, json.dumps(envelope | {"choices": [], "usage": usage}))
    _send_event(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")


def _deltas(message: dict[str, Any], finish: str) -> list[tuple[dict[str, Any], str | None]]:
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word + " "}, None) for word in message["content"].split(" ")]
    for call in message.get("tool_calls", []):
        text = call["function"]["arguments"]
        function = {"name": call["function"]["name"], "arguments": ""}
        deltas.append(({"tool_calls": [call | {"index": 0, "function": function}]}, None))
        for start in range(0, len(text), 8):
            piece = {"index": 0, "function": {"arguments": text[start : start + 8]}}
            deltas.append(({"tool_calls": [piece]}, None))
    return [*deltas, ({}, finish)]


def _send_event(writer: asyncio.StreamWriter, text: str) -> None:
    data = f"data: {text}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds from a request to its answer")
    parser.add_argument("--apart", action="store_true", help="loops that share a path count by themselves")
    chosen = parser.parse_args()
    endpoint = Endpoint(chosen.steps, chosen.command, chosen.delay, chosen.apart)
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, limit=2**22, backlog=512)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

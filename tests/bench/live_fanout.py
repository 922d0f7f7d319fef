"""From an event's commit to its receipt: 20 viewers at 50 events/s, beside raw websockets in the same run.

    python -m tests.bench.live_fanout [--viewers 20] [--rate 50] [--seconds 10]

Rounds take turns: a raw `websockets` broadcast server (the floor), the lab, the lab with one viewer that
never reads (L4). Latency is from the commit (for the floor: from the send) to the receipt, in milliseconds.
`lost` counts events that some viewer had not 10 s after the last, `disordered` those that came before an
earlier one. Prints one JSON object with the ratios. Targets: p50 at most 2.5 times raw plus the watcher's
20 ms, p99 at most 3 times raw plus 20 ms, nothing lost, a stalled viewer changes p99 by less than 10 %.

On the built-in database, or on an empty one that DATABASE_URL names, and with the doorbell of LAB_REDIS_URL:

    python -m tests.servers sh -c 'DATABASE_URL=$LAB_TEST_DATABASE_URL python -m tests.bench.live_fanout'

PostgreSQL rings the watcher, which then has no 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

# The watcher's look at SQLite.
ALLOWANCE_MS = 0.0 if os.environ.get("DATABASE_URL", "").startswith("postgres") else 20.0
PAYLOAD = "x" * 2_000


@dataclass
class Measured:
    """What all viewers of one round saw."""

    latencies: list[float] = field(default_factory=list)
    lost: int = 0
    disordered: int = 0

    def figures(self) -> dict[str, float | int]:
        ordered = sorted(self.latencies)
        return {
            "received": len(ordered),
            "p50": round(statistics.median(ordered), 2),
            "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 2),
            "lost": self.lost,
            "disordered": self.disordered,
        }


async def raw_server(port: int) -> None:
    """The floor: every message of /pub goes to all others."""
    viewers: set[ServerConnection] = set()

    async def handle(viewer: ServerConnection) -> None:
        if viewer.request is not None and viewer.request.path == "/pub":
            with contextlib.suppress(ConnectionClosed):
                async for message in viewer:
                    broadcast(viewers, message)
            return
        viewers.add(viewer)
        try:
            await viewer.wait_closed()
        finally:
            viewers.discard(viewer)

    async with serve(handle, "127.0.0.1", port, compression=None):
        await asyncio.Future()


async def raw_round(port: int, *, viewers: int, rate: float, seconds: float) -> Measured:
    """One round over the raw server."""
    measured = Measured()
    address = f"ws://127.0.0.1:{port}"
    sockets = [await connect(f"{address}/sub", compression=None) for _ in range(viewers)]
    publisher = await connect(f"{address}/pub", compression=None)
    expected = int(rate * seconds)
    counts = [0] * viewers

    async def read(index: int, viewer: ClientConnection) -> None:
        async for message in viewer:
            measured.latencies.append((time.perf_counter() - float(str(message)[:20])) * 1e3)
            counts[index] += 1

    readers = [asyncio.create_task(read(index, viewer)) for index, viewer in enumerate(sockets)]
    started = time.perf_counter()
    for number in range(expected):
        await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
        await publisher.send(f"{time.perf_counter():020.9f}{PAYLOAD}")
    await _wait_for(lambda: sum(counts) >= expected * viewers)
    measured.lost = expected * viewers - sum(counts)
    await _close(readers, [*sockets, publisher])
    return measured


async def lab_round(lab: Lab, *, viewers: int, rate: float, seconds: float, stalled: int) -> Measured:
    """One round over the lab: a process of its own appends to the log, viewers hear of it by sockets."""
    measured = Measured()
    run_id, first = lab.new_run()
    address = f"ws://127.0.0.1:{lab.port}/ws/runs/{run_id}/?after={first}"
    received: list[dict[int, float]] = [{} for _ in range(viewers)]
    positions = [first] * viewers

    async def read(index: int, viewer: ClientConnection) -> None:
        async for text in viewer:
            now = time.perf_counter()
            message = json.loads(text)
            if "steps" not in message:
                continue
            measured.disordered += message["after"] != positions[index]
            for seq in range(positions[index] + 1, message["seq"] + 1):
                received[index][seq] = now
            positions[index] = message["seq"]

    opened = [await _watch(address, lab, max_queue=4096) for _ in range(viewers)]
    # One message in its buffer and no reading: TCP's window closes, as with a browser that hangs.
    idle = [await _watch(address, lab, max_queue=1) for _ in range(stalled)]
    readers = [asyncio.create_task(read(index, viewer)) for index, viewer in enumerate(opened)]
    await asyncio.sleep(1.0)
    committed = await lab.publish(run_id, rate=rate, seconds=seconds)
    last = max(committed)
    await _wait_for(lambda: min(positions) >= last)
    for seen in received:
        measured.latencies += [(seen[seq] - at) * 1e3 for seq, at in committed.items() if seq in seen]
        measured.lost += sum(1 for seq in committed if seq not in seen)
    await _close(readers, [*opened, *idle])
    return measured


async def _watch(address: str, lab: Lab, *, max_queue: int) -> ClientConnection:
    return await connect(
        address,
        compression=None,
        additional_headers={"Cookie": lab.cookie},
        origin=Origin(f"http://127.0.0.1:{lab.port}"),
        max_size=None,
        max_queue=max_queue,
    )


async def _wait_for(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline and not condition():
        await asyncio.sleep(0.05)


async def _close(readers: list[asyncio.Task[None]], sockets: list[ClientConnection]) -> None:
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for opened in sockets:
        opened.transport.abort()


class Lab:
    """A lab's web process on a data folder of its own, and a process that writes like a worker."""

    def __init__(self, folder: Path) -> None:
        os.environ.update(LAB_DATA_DIR=str(folder), DJANGO_SETTINGS_MODULE="lab.settings")
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        import django

        django.setup()
        from django.conf import settings
        from django.core.management import call_command

        settings.ALLOWED_HOSTS.append("testserver")
        call_command("migrate", verbosity=0)
        from tests import builders
        from tests.live.lab_server import LabServer, session_cookie

        self.cookie = session_cookie(builders.person())
        self._server = LabServer()
        self._server.start()
        self.port = self._server.port

    def new_run(self) -> tuple[int, int]:
        """A run that has started; returns its number and its last event's."""
        from tests import builders

        run = builders.run()
        return run.pk, builders.start(run)

    async def publish(self, run_id: int, *, rate: float, seconds: float) -> dict[int, float]:
        """Append events at `rate`; number of each event -> when its commit returned."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.live_fanout", "--publish", str(run_id),
            "--rate", str(rate), "--seconds", str(seconds), stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        return {int(seq): at for seq, at in json.loads(out).items()}

    def close(self) -> None:
        self._server.kill()


def publish(run_id: int, *, rate: float, seconds: float) -> None:
    """The writing process: 2 KB tool calls, one event a commit, as a worker flushes a quiet run."""
    import django

    django.setup()
    from lab.models import Run
    from tests import builders

    run = Run.objects.get(pk=run_id)
    events = [
        event
        for step in range(1, int(rate * seconds) // 4 + 1)
        for event in builders.bash_step(step, "cat notes", PAYLOAD)
    ]
    committed: dict[int, float] = {}
    started = time.perf_counter()
    for number, event in enumerate(events):
        time.sleep(max(0.0, started + number / rate - time.perf_counter()))
        committed[builders.append(run, event)] = time.perf_counter()
    print(json.dumps(committed))


async def measure(*, viewers: int, rate: float, seconds: float, rounds: int) -> dict[str, object]:
    """All rounds, in turns."""
    port = _free_port()
    floor = asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.live_fanout", "--raw", str(port)
    )
    raw_process = await floor
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        lab = Lab(Path(folder))
        kinds: dict[str, list[Measured]] = {"raw": [], "lab": [], "lab_one_stalled": []}
        try:
            for _ in range(rounds):
                kinds["raw"].append(await raw_round(port, viewers=viewers, rate=rate, seconds=seconds))
                for name, stalled in (("lab", 0), ("lab_one_stalled", 1)):
                    kinds[name].append(
                        await lab_round(lab, viewers=viewers, rate=rate, seconds=seconds, stalled=stalled)
                    )
        finally:
            lab.close()
            raw_process.kill()
            await raw_process.wait()
    return _summary({name: _together(parts) for name, parts in kinds.items()})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _together(parts: list[Measured]) -> dict[str, float | int]:
    whole = Measured()
    for part in parts:
        whole.latencies += part.latencies
        whole.lost += part.lost
        whole.disordered += part.disordered
    return whole.figures()


def _summary(figures: dict[str, dict[str, float | int]]) -> dict[str, object]:
    raw, lab, stalled = figures["raw"], figures["lab"], figures["lab_one_stalled"]
    return {
        "allowance_ms": ALLOWANCE_MS,
        **figures,
        "L1_p50_minus_watcher_over_raw": round((lab["p50"] - ALLOWANCE_MS) / raw["p50"], 2),
        "L1_p99_minus_watcher_over_raw": round((lab["p99"] - ALLOWANCE_MS) / raw["p99"], 2),
        "L2_lost_or_disordered": sum(
            figures[name][key] for name in figures for key in ("lost", "disordered")
        ),
        "L4_stalled_p99_over_p99": round(stalled["p99"] / lab["p99"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--raw", type=int, help="serve the floor on this port")
    parser.add_argument("--publish", type=int, help="write events to this run")
    asked = parser.parse_args()
    if asked.raw:
        asyncio.run(raw_server(asked.raw))
    elif asked.publish:
        publish(asked.publish, rate=asked.rate, seconds=asked.seconds)
    else:
        result = asyncio.run(
            measure(viewers=asked.viewers, rate=asked.rate, seconds=asked.seconds, rounds=asked.rounds)
        )
        print(json.dumps({"bench": "live_fanout", **result}, indent=1))


if __name__ == "__main__":
    main()

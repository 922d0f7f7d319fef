"""What the live grid of 1,500 runs costs the web process: 20 viewers while eight runs go on.

    python -m tests.bench.grid_fanout [--viewers 20] [--rate 10] [--seconds 20]

A process of its own appends events at `rate` a second, spread over eight runs, as workers do. Processor time
of the web process is read from /proc before and after; `idle_percent` is the same with viewers but without
events. Latency is from an event's commit to the first cell that a viewer gets after it. Prints one JSON
object. Target: at most 5 % of a core more than idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

RUNNING = 8


def processor_seconds(pid: int) -> float:
    """What a process has used so far, in user and kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(experiment: int, *, viewers: int, rate: float, seconds: float) -> dict[str, object]:
    """One round: idle first, then with events."""
    from lab.services import grids
    from tests import builders
    from tests.live.lab_server import LabServer, session_cookie

    cookie = session_cookie(builders.person())
    server = LabServer()
    server.start()
    address = f"ws://{server.host}/ws/experiments/{experiment}/grid/?mark={grids.newest_mark()}"
    arrived: list[list[tuple[float, int, int]]] = [[] for _ in range(viewers)]

    async def read(index: int, viewer: ClientConnection) -> None:
        async for text in viewer:
            message = json.loads(text)
            if message.get("cells"):
                arrived[index].append((time.perf_counter(), message["cells"].count('id="cell-'), len(text)))

    try:
        sockets = [
            await connect(
                address,
                compression=None,
                additional_headers={"Cookie": cookie},
                origin=Origin(f"http://{server.host}"),
                max_size=None,
            )
            for _ in range(viewers)
        ]
        readers = [asyncio.create_task(read(index, viewer)) for index, viewer in enumerate(sockets)]
        await asyncio.sleep(6)
        idle = await _share(server.pid, seconds / 2)
        for seen in arrived:
            seen.clear()
        publisher = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.grid_fanout", "--publish", str(experiment),
            "--rate", str(rate), "--seconds", str(seconds + 3), stdout=subprocess.PIPE,
        )  # fmt: skip
        await asyncio.sleep(3)
        busy = await _share(server.pid, seconds)
        out, _ = await publisher.communicate()
        await asyncio.sleep(2)
        for reader in readers:
            reader.cancel()
        for viewer in sockets:
            viewer.transport.abort()
    finally:
        server.kill()
    return _summary(json.loads(out), arrived, idle=idle, busy=busy)


async def _share(pid: int, seconds: float) -> float:
    """Per cent of a core that a process uses over so many seconds."""
    used, began = processor_seconds(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (processor_seconds(pid) - used) / (time.perf_counter() - began)


def _summary(
    committed: list[float], arrived: list[list[tuple[float, int, int]]], *, idle: float, busy: float
) -> dict[str, object]:
    latencies = [
        1e3 * (next(at for at, _, _ in seen if at >= commit) - commit)
        for seen in arrived
        for commit in committed
        if seen and seen[-1][0] >= commit
    ]
    one = arrived[0]
    return {
        "viewers": len(arrived),
        "events": len(committed),
        "messages_each": len(one),
        "cells_each": sum(cells for _, cells, _ in one),
        "bytes_each": sum(size for _, _, size in one),
        "latency_ms_p50": round(statistics.median(latencies), 1),
        "latency_ms_p95": round(sorted(latencies)[int(0.95 * (len(latencies) - 1))], 1),
        "idle_percent": round(idle, 2),
        "busy_percent": round(busy, 2),
        "live_percent_of_a_core": round(busy - idle, 2),
    }


def publish(experiment: int, *, rate: float, seconds: float) -> None:
    """The writing process: events of steps, one a commit, each for the next of eight runs."""
    import django

    django.setup()
    from lab.models import Run
    from tests import builders

    open_runs = Run.objects.filter(experiment=experiment).exclude(status=Run.Status.ENDED)
    runs = list(open_runs.exclude(status=Run.Status.QUEUED))
    committed: list[float] = []
    started = time.perf_counter()
    step = 1
    while time.perf_counter() - started < seconds:
        step += 1
        for events in zip(*[builders.bash_step(step, "make", "ok") for _ in runs], strict=True):
            for run, event in zip(runs, events, strict=True):
                time.sleep(max(0.0, started + len(committed) / rate - time.perf_counter()))
                builders.append(run, event)
                committed.append(time.perf_counter())
                if time.perf_counter() - started >= seconds:
                    print(json.dumps(committed))
                    return


def prepare() -> int:
    """An experiment of 1,500 runs of which eight go on and 300 wait."""
    from lab.models import Experiment, Run
    from tests import builders
    from tests.bench import big_lab

    filled = big_lab.fill(steps=8, arms=2, tasks=250, seeds=3)
    Experiment.objects.filter(pk=filled.experiment).update(state=Experiment.State.ACTIVE, ended_at=None)
    waiting = filled.runs[-300:]
    Run.objects.filter(pk__in=waiting).update(status=Run.Status.QUEUED, exit_reason="", ended_at=None)
    for run in Run.objects.filter(pk__in=waiting[:RUNNING]):
        run.attempts.filter(n=2).delete()
        builders.start(run, attempt=2)
    return filled.experiment


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--publish", type=int, help="write events to the runs of this experiment")
    asked = parser.parse_args()
    if asked.publish:
        publish(asked.publish, rate=asked.rate, seconds=asked.seconds)
        return
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        from tests.bench import big_lab

        big_lab.prepare(Path(folder))
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        experiment = prepare()
        result = asyncio.run(
            measure(experiment, viewers=asked.viewers, rate=asked.rate, seconds=asked.seconds)
        )
        print(json.dumps({"bench": "grid_fanout", **result}, indent=1))


if __name__ == "__main__":
    main()

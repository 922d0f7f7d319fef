"""What a sandbox in Docker costs, against what the SDK alone costs: one JSON, taken in one interleaved run.

S1: the contract's exec of `true`, over an exec through the SDK; target at most 0.05, with eight at once 0.03.
    The floor is a bare shell in the peer's container that is told `/bin/true` over the same kind of
    connection: one fork and exec, without time-out, guard, folder, environment or a look at what is left.
S2: reading and writing 2 KB, over get_archive and put_archive; target at most 0.05.
S3: a sandbox that is ready, over create and start through the SDK; target at most 1.15. In a container that
    was prepared: in milliseconds, target at most 20.
S4: from stop to everything removed, in milliseconds; target at most 300, with eight at once 1,000.
S6: 100 MB of output: growth of this process's memory (at most 16 MB), the rate over that of the SDK's stream.

Product and peer take turns in blocks, with a pause: a daemon is busy with an exec even after it has answered.

    python -m tests.bench.docker_sandbox --image lab-test/debian
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.engine.sandboxes import docker_client, docker_pool
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.docker import DockerProvider, DockerSandbox
from tests.engine.sandboxes.prepared import prepare_for

AT_ONCE = 8
DATA = os.urandom(2048)
FLOOD_BYTES = 100_000_000
FLOOD = ["head", "-c", str(FLOOD_BYTES), "/dev/zero"]
LABEL = "trajectory-lab-bench"
BLOCK = 5
PAUSE_SECONDS = 0.3


class Peer:
    """The same through the SDK: one container, one call for each thing done in it."""

    def __init__(self, image: str) -> None:
        self._client = docker_client.connected()
        self._image = image
        self.container: Any = None

    def create_and_start(self) -> None:
        self.container = self._client.containers.create(
            self._image,
            ["sh", "-c", "while :; do sleep 1000; done"],
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=2 * 1024**3,
            pids_limit=512,
            labels={LABEL: "1"},
        )
        self.container.start()

    def run_true(self) -> None:
        assert self.container.exec_run(["true"]).exit_code == 0

    def write(self) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo("file")
            entry.size = len(DATA)
            archive.addfile(entry, io.BytesIO(DATA))
        assert self.container.put_archive("/tmp", packed.getvalue())

    def read(self) -> None:
        chunks, _ = self.container.get_archive("/tmp/file")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            content = archive.extractfile("file")
            assert content is not None
            assert content.read() == DATA

    def flood(self) -> None:
        chunks = self.container.exec_run(FLOOD, stream=True).output
        assert sum(len(chunk) for chunk in chunks) == FLOOD_BYTES

    def remove(self) -> None:
        self.container.remove(force=True)


class BareShell:
    """A shell in a container that is told a command on a line, and nothing else."""

    _START = "[ -x /bin/bash ] && exec /bin/bash --norc --noprofile; exec /bin/sh"

    def __init__(self, identifier: str) -> None:
        client = docker_client.connected()
        self._socket = docker_client.execute(client, identifier, ["/bin/sh", "-c", self._START], "0")

    def run_true(self) -> None:
        self._socket.sendall(b"/bin/true; echo done\n")
        said = b""
        while b"done" not in said:
            said += self._socket.recv(4096)

    def close(self) -> None:
        self._socket.close()


def milliseconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def together(actions: Sequence[Callable[[], object]]) -> list[float]:
    """Do all at once; what each took, in milliseconds."""
    taken: list[float] = []
    gate = threading.Barrier(len(actions))

    def one(action: Callable[[], object]) -> None:
        gate.wait()
        taken.append(milliseconds(action))

    threads = [threading.Thread(target=one, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(actions)
    return taken


def figure(product: Sequence[float], peer: Sequence[float]) -> dict[str, float]:
    ours, theirs = statistics.median(product), statistics.median(peer)
    return {
        "ratio": round(ours / theirs, 3),
        "ratio_of_minima": round(min(product) / min(peer), 3),
        "product_ms": round(ours, 2),
        "peer_ms": round(theirs, 2),
    }


def memory_high_water() -> int:
    """This process's peak memory since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status names no VmHWM")


class Bench:
    def __init__(self, image: str, scratch: Path, rounds: int) -> None:
        self._spec = SandboxSpec(label="bench", scratch=scratch / "sandboxes", image=image)
        self._provider = DockerProvider()
        self._image = image
        self._rounds = rounds

    def start(self) -> DockerSandbox:
        return self._provider.start(self._spec)

    def starting(self) -> dict[str, object]:
        product, peer, stops, removals = [], [], [], []
        for _ in range(max(self._rounds // 4, 3)):
            other = Peer(self._image)
            peer.append(milliseconds(other.create_and_start))
            removals.append(milliseconds(other.remove))
            started: list[DockerSandbox] = []
            product.append(milliseconds(lambda into=started: into.append(self.start())))
            started[0].exec(["sh", "-c", "sleep 1000 & sleep 1000 & true"], timeout=60)
            stops.append(milliseconds(started[0].stop))
        figures = {"S3 ready": figure(product, peer), "S4 stop": figure(stops, removals)}
        return {**figures, "S3 ready, prepared": self._prepared()}

    def _prepared(self) -> dict[str, float]:
        """How long sandboxes take for which a container was prepared, and their first command."""
        provider, kept = DockerProvider(prepared_containers=1), docker_pool.pool()
        ready, commands = [], []
        try:
            prepare_for(provider, self._spec)
            for _ in range(max(self._rounds // 2, 5)):
                while not kept.is_settled():
                    time.sleep(0.01)
                time.sleep(PAUSE_SECONDS)
                (waiting,) = kept.waiting()
                started: list[DockerSandbox] = []
                ready.append(milliseconds(lambda into=started: into.append(provider.start(self._spec))))
                assert started[0].facts.identifier == waiting
                commands.append(milliseconds(lambda one=started[0]: one.exec(["true"], timeout=30)))
                started[0].stop()
        finally:
            kept.clear()
        return {
            "product_ms": round(statistics.median(ready), 2),
            "product_least_ms": round(min(ready), 2),
            "first_command_ms": round(statistics.median(commands), 2),
        }

    def in_one(self) -> dict[str, object]:
        peer, sandbox = Peer(self._image), self.start()
        peer.create_and_start()
        bare = BareShell(peer.container.id)
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "S1 exec": (lambda: sandbox.exec(["true"], timeout=30), peer.run_true),
            "S1 floor": (bare.run_true, peer.run_true),
            "S2 write 2 KB": (lambda: sandbox.write("file", DATA), peer.write),
            "S2 read 2 KB": (lambda: sandbox.read("file"), peer.read),
        }
        try:
            figures: dict[str, object] = {}
            for name, (ours, theirs) in pairs.items():
                product: list[float] = []
                others: list[float] = []
                for _ in range(max(self._rounds // BLOCK, 2)):
                    time.sleep(PAUSE_SECONDS)
                    product += [milliseconds(ours) for _ in range(BLOCK)]
                    others += [milliseconds(theirs) for _ in range(BLOCK)]
                figures[name] = figure(product, others)
            figures["S6 flood"] = self._flood(sandbox, peer)
            return figures
        finally:
            bare.close()
            peer.remove()
            sandbox.stop()

    def _flood(self, sandbox: DockerSandbox, peer: Peer) -> dict[str, float]:
        growth, product, others = [], [], []
        for _ in range(3):
            others.append(milliseconds(peer.flood))
            Path("/proc/self/clear_refs").write_text("5")
            before = memory_high_water()
            product.append(milliseconds(lambda: sandbox.exec(FLOOD, timeout=120)))
            growth.append(memory_high_water() - before)
        return {
            "memory_growth_megabytes": round(max(growth) / 1e6, 1),
            "rate_over_sdk_stream": round(statistics.median(others) / statistics.median(product), 2),
            "megabytes_per_second": round(FLOOD_BYTES / statistics.median(product) / 1000),
        }

    def at_once(self) -> dict[str, object]:
        peers, sandboxes = [Peer(self._image) for _ in range(AT_ONCE)], [self.start() for _ in range(AT_ONCE)]
        try:
            for peer in peers:
                peer.create_and_start()
            bare = [BareShell(peer.container.id) for peer in peers]
            ours: list[float] = []
            theirs: list[float] = []
            floor: list[float] = []
            for _ in range(max(self._rounds // 4, 3)):
                time.sleep(PAUSE_SECONDS)
                ours += together([lambda one=one: one.exec(["true"], timeout=60) for one in sandboxes])
                floor += together([one.run_true for one in bare])
                theirs += together([peer.run_true for peer in peers])
            figures: dict[str, object] = {
                f"S1 exec, {AT_ONCE} at once": figure(ours, theirs),
                f"S1 floor, {AT_ONCE} at once": figure(floor, theirs),
            }
            for one in bare:
                one.close()
            removals = together([peer.remove for peer in peers])
            figures[f"S4 stop, {AT_ONCE} at once"] = figure(
                together([sandbox.stop for sandbox in sandboxes]), removals
            )
            return figures
        finally:
            for sandbox in sandboxes:
                sandbox.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default="lab-test/debian")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments.image, Path(scratch), arguments.rounds)
        figures = {**bench.in_one(), **bench.starting(), **bench.at_once()}
    print(json.dumps({"rounds": arguments.rounds, "load": os.getloadavg()[0], **figures}, indent=2))


if __name__ == "__main__":
    main()

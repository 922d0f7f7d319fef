"""What a sandbox reaches of the network. The same for every kind that promises it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from lab.engine.sandboxes.base import Sandbox, SandboxLimits
from tests.engine.sandboxes.conftest import Start, shell

# The address at which clouds tell a machine's credentials, and one outside of every network.
METADATA, ELSEWHERE = "169.254.169.254", "192.0.2.1"
BRIDGE = "172.17.0.1"


@pytest.fixture
def listening() -> Iterator[int]:
    """The port of a server on every address of this machine."""
    with socket.create_server(("", 0)) as server:
        over = threading.Event()
        server.settimeout(0.2)

        def answer() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                connection.sendall(b"hello from the machine\n")
                connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield int(server.getsockname()[1])
        over.set()
        thread.join()


def addresses_of_this_machine() -> list[str]:
    """All it has, the ends of bridges to containers too."""
    found = {"127.0.0.1"}
    for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), None):
        if family == socket.AF_INET:
            found.add(str(address[0]))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the kernel says from which address it would be.
        probe.connect((ELSEWHERE, 9))
        found.add(probe.getsockname()[0])
    return sorted(found)


def said(sandbox: Sandbox, host: str, port: int) -> str:
    """What a server there says, asked with what every sandbox of the suite has: bash, or busybox."""
    script = (
        "if command -v nc >/dev/null; then nc -w 3 $0 $1 </dev/null; "
        'else timeout 3 bash -c "exec 3<>/dev/tcp/$0/$1 && cat <&3"; fi 2>/dev/null'
    )
    return sandbox.exec(["sh", "-c", script, host, str(port)], timeout=60).stdout.text()


@pytest.mark.promises("no network")
def test_without_the_network_nothing_of_the_machine_or_beyond_is_reached(
    sandbox: Sandbox, listening: int
) -> None:
    for address in (*addresses_of_this_machine(), BRIDGE, "localhost"):
        assert said(sandbox, address, listening) == ""
    assert said(sandbox, METADATA, 80) == ""
    assert len(shell(sandbox, "cat /proc/net/route").splitlines()) <= 1
    assert sandbox.exec(["getent", "hosts", "example.org"], timeout=60).exit_code != 0


@pytest.mark.promises("no network", "bash")
def test_its_own_loopback_works_and_two_sandboxes_do_not_share_it(start: Start) -> None:
    one, two = start(), start()
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 4321)); print('up', flush=True)\n"
        "while True: c, _ = s.accept(); c.sendall(b'own'); c.close()"
    )
    one.write("serve.py", serve.encode())
    shell(one, "(python3 serve.py >up 2>&1 &); until grep -q up up; do sleep 0.05; done")
    assert said(one, "127.0.0.1", 4321) == "own"
    assert said(two, "127.0.0.1", 4321) == ""


def test_with_the_network_the_machine_is_reached(start: Start, listening: int) -> None:
    sandbox = start(limits=SandboxLimits(network=True))
    assert sandbox.facts.network
    # Docker's bridge, where it has one, is this machine too.
    outer = [one for one in (*addresses_of_this_machine(), BRIDGE) if not one.startswith("127.")]
    assert "hello from the machine\n" in [
        said(sandbox, address, listening) for address in (*outer, "127.0.0.1")
    ]


@pytest.mark.promises("its own loopback")
def test_with_the_network_too_the_loopback_of_the_machine_is_not_reached(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(network=True))
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert said(sandbox, "127.0.0.1", server.getsockname()[1]) == ""

"""Whole labs of tests run two at a time: how their files are shared out, and what keeps two labs apart.

They wait more than they compute: for leases to run out, for containers, for Chromium.
"""

from __future__ import annotations

import os
import random
import socket

from xdist.scheduler import LoadFileScheduling

# Below the ports that a system hands out by itself, so that no connection of anybody's takes one that was
# found free before the lab that is to listen there has started.
_FIRST_PORT = 20_000
_FIRST_USER = 61_000
_A_LANE = 1_000
_MOST_LANES = 8
_SHARES_ONE_LAB = "tests/browser"
# Each container brings a network interface of this machine up and down, and Chromium drops what it is loading
# when one changes (ERR_NETWORK_CHANGED): these never run beside it.
_CHANGES_THE_NETWORK = ("tests/e2e/test_docker", "tests/e2e/test_release_fixes")


def lane() -> int:
    """The number of this process among those that share out the tests, 0 where it is alone."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _MOST_LANES


def free_port() -> int:
    """A port nobody listens on just now, and no other lane looks at.

    Raises:
        OSError: none of a thousand is free.
    """
    first = _FIRST_PORT + lane() * _A_LANE
    for port in random.sample(range(first, first + _A_LANE), _A_LANE):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise OSError(f"no port from {first} to {first + _A_LANE - 1} is free")


def users() -> range:
    """Numbers of users that only this lane's labs run commands as."""
    first = _FIRST_USER + lane() * _A_LANE
    return range(first, first + _A_LANE)


def scope_of(test: str) -> str:
    """What stays together with a test: its file; or all that share or disturb one Chromium."""
    if test.startswith((f"{_SHARES_ONE_LAB}/", *_CHANGES_THE_NETWORK)):
        return _SHARES_ONE_LAB
    return test.partition("::")[0]


class Lanes(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Shares out by `scope_of`, in the order in which tests were found."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

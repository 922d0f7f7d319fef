"""Labs that tests start two at a time: none of their tests is left out, and two of them never meet."""

from __future__ import annotations

import re
import socket

import pytest

from tests import lanes
from tests.house.tree import own_python, read


def in_lane(number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[set[int], set[int]]:
    """Some ports and all users of a lane."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
    return {lanes.free_port() for _ in range(20)}, set(lanes.users())


def test_two_lanes_have_no_port_and_no_user_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    (ports, users), (other_ports, other_users) = (in_lane(number, monkeypatch) for number in (0, 1))
    assert not ports & other_ports
    assert not users & other_users
    assert 65534 not in users | other_users


def test_a_port_that_somebody_listens_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_A_LANE", 2)
    # Far from the lanes that a suite uses.
    monkeypatch.setattr(lanes, "_FIRST_PORT", 29_500)
    free = lanes.free_port()
    with socket.create_server(("127.0.0.1", free)):
        assert lanes.free_port() == 29_500 + 29_501 - free


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        ("tests/e2e/test_up.py::test_a[x::y]", "tests/e2e/test_up.py"),
        ("tests/browser/test_keys.py::test_a", "tests/browser"),
        ("tests/browser/test_lists.py::test_b", "tests/browser"),
        ("tests/e2e/test_docker_prepared.py::test_c", "tests/browser"),
    ],
)
def test_a_file_stays_together_and_so_does_all_that_shares_or_disturbs_one_chromium(
    test: str, scope: str
) -> None:
    assert lanes.scope_of(test) == scope


def test_what_starts_whole_labs_is_where_make_test_looks_for_it() -> None:
    marked = re.compile(r"mark\.(browser|e2e)\b")
    elsewhere = [
        name
        for name in own_python()
        if name.startswith("tests/")
        and not name.startswith(("tests/browser/", "tests/e2e/"))
        and marked.search(read(name))
    ]
    assert elsewhere == []

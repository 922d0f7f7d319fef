"""The README's example of the API, sent to a real web process as it stands there."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from collections.abc import Iterator

import pytest

from lab.models import Role
from lab.services import tokens
from tests import builders
from tests.house.tree import read
from tests.live.lab_server import LabServer, running_lab


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


@pytest.mark.django_db(transaction=True)
def test_the_example_reads_a_runs_log(lab: LabServer) -> None:
    run = builders.run()
    last = builders.believable(run)
    (example,) = re.findall(r"^curl .*$", read("README.md"), re.M)
    token = tokens.make(by=builders.person(Role.VIEWER), name="example", role="viewer").secret
    example = example.replace("$TOKEN", token).replace("127.0.0.1:8000", lab.host)
    # Of curl's options, what is read here.
    program, option, header, address = shlex.split(example.replace("/runs/1/", f"/runs/{run.pk}/"))
    assert (program, option) == ("curl", "--header")
    name, _, value = header.partition(": ")
    request = urllib.request.Request(address, headers={name: value})
    with urllib.request.urlopen(request, timeout=150) as answer:
        told = json.load(answer)
    assert [record["seq"] for record in told["events"]] == list(range(1, last + 1))
    assert told["last_seq"] == last

from __future__ import annotations

import os
import time
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from lab.engine.llm.base import Cost
from lab.services import heartbeats, lab, log, queue
from tests.services import events as ev
from tests.services.builders import launched


@pytest.fixture(autouse=True)
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


def test_a_worker_is_alive_while_it_reports(db: None, tmp_path: Path) -> None:
    assert not lab.workers_alive()
    heartbeats.beat(name="runs@here-1")
    assert lab.workers_alive()
    assert lab.state().silent_for == ""
    long_ago = time.time() - 100
    os.utime(tmp_path / "heartbeats" / "runs@here-1", (long_ago, long_ago))
    assert not lab.workers_alive()
    assert lab.state().silent_for == "100 s"
    heartbeats.remove_old(older_than=50)
    assert (lab.state().workers_alive, lab.state().silent_for) == (False, "")


def test_money_spent_is_unknown_or_at_least_when_a_part_of_it_is_unknown(alice: User) -> None:
    launched(alice)
    claim = queue.claim_next(worker="w")
    assert claim is not None
    assert lab.state().spent_today == "$0.00, no call yet"

    def append(event: object) -> str:
        log.append(run_id=claim.run.pk, attempt=1, lease_token=claim.lease_token, events=[event])
        return lab.state().spent_today

    assert append(ev.call_failed(1)).startswith("unknown")
    assert append(ev.call_finished(1, cost=Cost(amount=Decimal("1.25"), basis="table"))) == (
        "at least $1.25 (1 call unknown)"
    )


def test_the_data_folder_counts_what_the_database_keeps_beside_itself(
    db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = tmp_path / "lab.sqlite3"
    for ending, size in (("", 2000), ("-wal", 70_000), ("-shm", 5000), ("-else", 900_000)):
        Path(f"{database}{ending}").write_bytes(b"x" * size)
    with monkeypatch.context() as patched:
        patched.setitem(django_settings.DATABASES["default"], "NAME", str(database))
        assert lab.state().data_folder.startswith("77 kB used")

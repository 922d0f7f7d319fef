"""Imports are filled and asked for by people; whose reader is gone is taken over, some times."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from lab.models import Import
from lab.services import interchange
from lab.services.errors import FieldErrors

pytestmark = pytest.mark.django_db


def given_names(row: Import) -> list[str]:
    return [source["name"] for source in row.sources]


def test_files_are_kept_whole_in_the_order_in_which_they_came(alice: User) -> None:
    row = interchange.start(by=alice, name="old")
    assert interchange.add_file(by=alice, imported=row, name="runs/a.json", chunks=[b"{", b"}"]) == 2
    interchange.add_file(by=alice, imported=row, name="runs/a.json", chunks=[b"[]"])
    row = interchange.submit(by=alice, imported=row)
    assert row.state == Import.State.QUEUED
    assert given_names(row) == ["runs/a.json", "runs/a.json"]
    contents = [(interchange.given_folder(row) / source["file"]).read_bytes() for source in row.sources]
    assert contents == [b"{}", b"[]"]
    assert interchange.folder_of(row).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["../a.json", "/etc/passwd", "a/../../b", "C:\\x", ""])
def test_a_name_that_leaves_the_folder_is_refused(alice: User, name: str) -> None:
    row = interchange.start(by=alice)
    with pytest.raises(FieldErrors, match="rename it and give it again"):
        interchange.add_file(by=alice, imported=row, name=name, chunks=[b"{}"])
    assert list(interchange.given_folder(row).iterdir()) == []


def test_a_file_that_breaks_off_or_does_not_fit_leaves_nothing(alice: User) -> None:
    row = interchange.start(by=alice)

    def breaking(error: Exception) -> Iterator[bytes]:
        yield b"{"
        raise error

    full, gone = OSError(28, "No space left on device"), RuntimeError("the browser went away")
    with pytest.raises(FieldErrors, match=r"is full: make room and try again. a.json was not kept"):
        interchange.add_file(by=alice, imported=row, name="a.json", chunks=breaking(full))
    with pytest.raises(RuntimeError, match="the browser went away"):
        interchange.add_file(by=alice, imported=row, name="a.json", chunks=breaking(gone))
    assert list(interchange.given_folder(row).iterdir()) == []
    row.refresh_from_db()
    assert row.sources == []


def test_nothing_given_cannot_be_asked_for(alice: User) -> None:
    row = interchange.start(by=alice)
    with pytest.raises(FieldErrors, match="choose at least one file or folder"):
        interchange.submit(by=alice, imported=row)


def test_the_same_form_sent_twice_is_one_import(alice: User) -> None:
    first = interchange.start(by=alice, idempotency_key="k")
    assert interchange.start(by=alice, idempotency_key="k") == first
    assert interchange.start(by=alice) != first


def test_a_cancelled_import_has_no_files_and_takes_none(alice: User) -> None:
    row = interchange.start(by=alice)
    interchange.add_file(by=alice, imported=row, name="a.json", chunks=[b"{}"])
    interchange.cancel(by=alice, imported=row)
    row.refresh_from_db()
    assert row.state == Import.State.CANCELLED
    assert not interchange.folder_of(row).exists()
    with pytest.raises(FieldErrors, match="was cancelled; start a new one"):
        interchange.submit(by=alice, imported=row)
    with pytest.raises(FieldErrors, match="takes no more"):
        interchange.add_file(by=alice, imported=row, name="a.json", chunks=[b"{}"])


def queued(by: User) -> Import:
    row = interchange.start(by=by)
    interchange.add_file(by=by, imported=row, name="a.json", chunks=[b"{}"])
    return interchange.submit(by=by, imported=row)


def test_workers_read_one_import_at_a_time_in_the_order_of_asking(alice: User) -> None:
    first, second = queued(alice), queued(alice)
    assert interchange.claim_next(worker="w/1/1") == first
    assert interchange.claim_next(worker="w/2/2") is None
    Import.objects.filter(pk=first.pk).update(state=Import.State.ENDED)
    assert interchange.claim_next(worker="w/2/2") == second


def test_what_a_reader_left_is_queued_again_and_its_old_reader_shut_out(alice: User) -> None:
    queued(alice)
    mine = interchange.claim_next(worker="w/1/1")
    assert mine is not None
    assert interchange.settle_abandoned(is_dead=lambda worker: False) == []
    assert interchange.settle_abandoned(is_dead=lambda worker: worker == "w/1/1") == [mine.pk]
    assert not interchange.held_by(mine).exists()
    again = interchange.claim_next(worker="w/2/2")
    assert again is not None
    assert again.lease_token > mine.lease_token


def test_a_lease_that_ran_out_is_enough(alice: User) -> None:
    queued(alice)
    mine = interchange.claim_next(worker="w/1/1")
    assert mine is not None
    Import.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    assert interchange.settle_abandoned(is_dead=lambda worker: False) == [mine.pk]


def test_an_import_that_kills_its_readers_has_failed_and_names_the_file(alice: User) -> None:
    queued(alice)
    for _ in range(interchange.MOST_READERS):
        assert interchange.claim_next(worker="w/1/1") is not None
        Import.objects.update(found={"reading": "runs/huge.json"})
        interchange.settle_abandoned(is_dead=lambda worker: True)
    row = Import.objects.get()
    assert row.state == Import.State.FAILED
    assert "3 workers died while they read it, the last one at runs/huge.json; leave it out" in row.error
    assert interchange.again(by=alice, imported=row).state == Import.State.QUEUED


def test_one_that_cannot_be_read_again_says_so(alice: User) -> None:
    row = queued(alice)
    with pytest.raises(FieldErrors, match="is queued and cannot be read again"):
        interchange.again(by=alice, imported=row)
    Import.objects.update(state=Import.State.FAILED)
    shutil.rmtree(interchange.folder_of(row))
    with pytest.raises(FieldErrors, match="give its files again"):
        interchange.again(by=alice, imported=row)


def test_a_cancel_that_its_reader_did_not_live_to_hear_is_done(alice: User) -> None:
    row = queued(alice)
    interchange.claim_next(worker="w/1/1")
    interchange.cancel(by=alice, imported=row)
    assert Import.objects.get().state == Import.State.READING
    interchange.settle_abandoned(is_dead=lambda worker: True)
    assert Import.objects.get().state == Import.State.CANCELLED


def test_files_that_nobody_asks_to_be_read_are_removed_after_a_day(alice: User) -> None:
    row, fresh = interchange.start(by=alice), interchange.start(by=alice)
    interchange.add_file(by=alice, imported=row, name="a.json", chunks=[b"{}"])
    Import.objects.filter(pk=row.pk).update(created_at=timezone.now() - dt.timedelta(hours=25))
    assert interchange.forget_old() == 1
    assert not interchange.folder_of(row).exists()
    assert Import.objects.get(pk=fresh.pk).state == Import.State.RECEIVING

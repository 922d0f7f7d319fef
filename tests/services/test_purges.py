"""A leaked secret is taken out of everything stored, and what is left says so."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from lab.engine.events import MessageSent, WorkspaceChanged
from lab.engine.llm.base import canonical_sha256
from lab.live import messages
from lab.models import Attempt, Blob, Control, Draft, Event, Purge, Role, Run, Verification
from lab.models import TestResult as GradedTest
from lab.services import blobs, log, purges, trajectories
from lab.services.blobs import BodyPurgedError
from tests import builders

pytestmark = pytest.mark.django_db(transaction=True)
# In no shape of a known provider, and with characters that JSON and addresses write otherwise.
LEAKED = 'correct"horse/battery+stäple-0123456789'


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            header = tarfile.TarInfo(f"files/{name.replace('__', '/')}")
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def leaky(*, secret: str = LEAKED) -> Run:
    """An ended run with the secret in short texts, long ones, cut ones, archives, results and other rows."""
    run = builders.run()
    builders.start(run)
    long = "x" * 380 + f" {secret} " + "line\n" * 2000 + secret
    git = zlib.compress(b"blob 40\0" + secret.encode())
    kept = blobs.put(data=archive(**{".git__objects__ab__" + "c" * 38: git}))
    opening = log.read_records(run_id=run.pk)[0].event
    body = {**opening.parameters, "messages": list(opening.messages)}  # type: ignore[union-attr]
    asked = builders.asked(1, max_tokens=None).model_copy(update={"body_sha256": canonical_sha256(body)})
    answer = builders.answered(1, ("Bash", json.dumps({"command": secret})), content=f"I use {secret}")
    later = {**body, "messages": [*body["messages"], answer.message]}
    again = builders.asked(2, max_tokens=None).model_copy(update={"body_sha256": canonical_sha256(later)})
    events = [
        asked,
        answer,
        again,
        builders.answered(2, ("Bash", "{}")),
        builders.called(
            2, "Bash", {"command": f"echo {secret}", secret: "name"}, raw=json.dumps({"c": secret})
        ),
        builders.printed(2, long, stderr=f"cut at {secret[:20]}", seen=600),
        WorkspaceChanged(step=2, index=1, call_id="call-2-1", changes=[], archive=kept),
        MessageSent(person="alice", message={"role": "user", "content": f"use {secret}"}),
        *builders.final_step(3, "Done."),
        *builders.ending(steps=3),
    ]
    builders.append(run, *events)
    verification = Verification.objects.get(run=run)
    GradedTest.objects.filter(verification=verification).update(log=f"printed {secret}")
    Control.objects.create(
        run=run, kind=Control.Kind.MESSAGE, value={"text": secret}, asked_by=builders.person()
    )
    Draft.objects.create(
        run=run, after_seq=1, step=1, version=1, content=secret, reasoning="", calls="", characters=1
    )
    run.refresh_from_db()
    return run


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "leaked"
    path.write_text(f"{LEAKED}\n")
    return path


def purge(secret_file: Path, **options: Any) -> dict[str, Any]:
    out = io.StringIO()
    arguments = {
        "file": str(secret_file),
        "reason": "the mail server's",
        "person": "alice",
        "json": True,
    } | options
    # It exits with 1 when something is left to do for a person, which the findings name.
    with contextlib.suppress(SystemExit):
        call_command("purge_secret", stdout=out, **arguments)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def stored_bytes() -> Iterator[tuple[str, bytes]]:
    """The database's files as they lie on the disk, and every stored body."""
    database = Path(str(connection.settings_dict["NAME"]))
    for ending in ("", "-wal"):
        path = database.with_name(database.name + ending)
        if path.exists():
            yield path.name, path.read_bytes()
    for sha256 in Blob.objects.values_list("pk", flat=True):
        if blobs.path_of(sha256).exists():
            yield sha256, blobs.blob_bytes(sha256=sha256)


def left() -> list[str]:
    secret = purges.Secret(LEAKED)
    parts = {form[:20].encode() for form in secret.forms} | {form[-12:].encode() for form in secret.forms}
    return [f"{name}: {part!r}" for name, data in stored_bytes() for part in parts if part in data]


def test_no_byte_of_it_is_left_in_the_database_or_in_a_body(secret_file: Path) -> None:
    run = leaky()
    assert left()
    found = purge(secret_file)
    assert left() == []
    assert found["runs"] == [run.pk]
    assert found["bodies"] >= 3
    assert found["no_old_copies"]
    assert {"lab_event", "lab_test_result", "lab_control", "lab_draft"} <= found["rows"].keys()
    record = Purge.objects.get()
    assert (record.secret_sha256, record.person, record.reason) == (
        found["secret_sha256"], "alice", "the mail server's",
    )  # fmt: skip
    assert LEAKED not in json.dumps(record.found, ensure_ascii=False)


def test_the_log_stays_readable_and_complete_and_says_what_happened(
    secret_file: Path, client: Client
) -> None:
    run = leaky()
    last = run.last_seq
    purge(secret_file)
    records = log.read_records(run_id=run.pk)
    assert [record.seq for record in records] == list(range(1, last + 2))
    assert records[-1].event.kind == "secret_purged"
    client.force_login(builders.person(Role.OPERATOR))
    page = client.get(f"/runs/{run.pk}/").content.decode()
    assert "purged a leaked secret from this log: the mail server&#x27;s" in page
    assert "[a leaked secret was purged here on " in page
    assert "by alice: the mail server&#x27;s]" in page
    body = client.get(
        f"/runs/{run.pk}/events/{_seq(run, 'tool_call_finished')}/body?part=stdout"
    ).content.decode()
    assert "[purged on " in body
    with pytest.raises(BodyPurgedError, match="purged on .* by alice: the mail server's"):
        blobs.blob_bytes(sha256=Blob.objects.filter(purge__isnull=False).first().pk)  # type: ignore[union-attr]


def _seq(run: Run, kind: str) -> int:
    return Event.objects.filter(run=run, kind=kind).values_list("seq", flat=True)[0]


def test_calls_that_were_sent_it_are_reported_as_purged_and_the_others_as_equal(secret_file: Path) -> None:
    run = leaky()
    purge(secret_file)
    out = io.StringIO()
    call_command("rebuild_inputs", run.pk, json=True, stdout=out)
    told = json.loads(out.getvalue())
    assert told["equal"] == 1
    assert [one["step"] for one in told["purged"]] == [2, 3]
    assert told["differing"] == []


def test_an_attempt_that_was_purged_cannot_go_on_from_its_log(secret_file: Path) -> None:
    run = leaky()
    assert log.read_history(run_id=run.pk, attempt=1)
    purge(secret_file)
    with pytest.raises(BodyPurgedError, match="purged on"):
        log.read_history(run_id=run.pk, attempt=1)


def test_a_dry_run_counts_and_changes_nothing(secret_file: Path) -> None:
    run = leaky()
    before = list(stored_bytes())
    would = purge(secret_file, dry_run=True, reason="")
    assert list(stored_bytes()) == before
    assert not Purge.objects.exists()
    did = purge(secret_file)
    assert (would["runs"], would["bodies"], would["events"]) == ([run.pk], did["bodies"], did["events"])
    assert would["rows"]["lab_event"] >= 3


def test_other_runs_and_what_only_begins_alike_stay_as_they_are(secret_file: Path) -> None:
    leaky()
    other = leaky(secret="correct-and-harmless-words-of-another")
    whole = log.read_records(run_id=other.pk)
    purge(secret_file)
    assert log.read_records(run_id=other.pk) == whole


def test_a_page_in_memory_is_rendered_anew_and_one_that_is_open_is_told_to_load_itself(
    secret_file: Path,
) -> None:
    run = leaky()
    assert "correct" in "".join(fragment.html for fragment in trajectories.window(run_id=run.pk).fragments)
    reader = trajectories.LogReader(run_id=run.pk, after=run.last_seq)
    purge(secret_file)
    assert "horse/battery" not in "".join(
        fragment.html for fragment in trajectories.window(run_id=run.pk).fragments
    )
    batch = reader.read()
    assert batch is not None
    assert json.loads(messages.steps(batch).text)["reload"] is True


def test_what_was_rendered_while_it_was_looked_for_is_not_shown_again_when_logs_tell_of_it(
    secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = leaky()
    shown: list[str] = []

    def watched(name: str) -> None:
        step = getattr(purges, name)

        def stepping(*arguments: Any) -> Any:
            done = step(*arguments)
            shown.append("".join(fragment.html for fragment in trajectories.window(run_id=run.pk).fragments))
            return done

        monkeypatch.setattr(purges, name, stepping)

    watched("_remove_bodies")
    watched("_tell_logs")
    purge(secret_file)
    before, told = shown
    assert "horse/battery" in before
    assert "horse/battery" not in told


def test_a_run_that_a_worker_holds_is_named_and_its_log_left_to_the_worker(secret_file: Path) -> None:
    run = leaky()
    far = timezone.now() + dt.timedelta(hours=1)
    Attempt.objects.filter(run=run).update(ended_at=None, lease_until=far)
    found = purge(secret_file)
    assert found["going_on"] == [run.pk]
    run_now = Run.objects.get(pk=run.pk)
    assert run_now.last_seq == run.last_seq
    assert left() == []


def test_a_purge_that_was_killed_anywhere_is_finished_by_asking_again(secret_file: Path) -> None:
    run = leaky()
    survived = 0
    for writes in range(1, 200):
        if _killed_after(writes, secret_file):
            survived = writes
            continue
        break
    assert survived >= 8
    assert left() == []
    # One that was killed when all was done but its last word is followed by one that finds nothing.
    first, *others = Purge.objects.order_by("pk")
    assert first.found["finished"]
    assert set(first.found["runs"]) == {run.pk}
    assert all(other.found["bodies"] == 0 for other in others)
    told = Event.objects.filter(run=run, kind="secret_purged")
    assert told.count() == 1
    changed = told.get().payload["events"]
    assert {
        _seq(run, "tool_call_started"),
        _seq(run, "tool_call_finished"),
        _seq(run, "message_sent"),
    } <= set(changed)


def _killed_after(writes: int, secret_file: Path) -> bool:
    """Whether a process that purges was killed by its `writes`-th change of the database; each goes on from
    what the one before left."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        left_to_do = 1 + (writes % 4)

        def dying(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            nonlocal left_to_do
            result = execute(sql, params, many, context)
            if sql.startswith(("UPDATE", "INSERT", "VACUUM")):
                left_to_do -= 1
                if left_to_do == 0:
                    os._exit(9)
            return result

        try:
            with connection.execute_wrapper(dying):
                purge(secret_file)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("value", ["", "short", "   1234567  "])
def test_a_value_too_short_to_be_told_from_text_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "leaked").write_text(value)
    with pytest.raises(CommandError, match="too short"):
        call_command("purge_secret", file=str(tmp_path / "leaked"), reason="x")


def test_a_reason_is_needed_and_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--reason"):
        call_command("purge_secret", file=str(tmp_path / "leaked"))
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("purge_secret", file=str(tmp_path / "leaked"), reason="x")


def test_another_file_of_the_data_folder_that_holds_it_is_named(secret_file: Path) -> None:
    leaky()
    path = Path(settings.LAB_DATA_DIR) / "notes.txt"
    path.write_text(LEAKED)
    try:
        assert purge(secret_file)["files"] == [str(path)]
    finally:
        path.unlink()


def test_a_value_that_stands_nowhere_leaves_only_the_record_of_the_search(secret_file: Path) -> None:
    found = purge(secret_file)
    assert (found["rows"], found["bodies"], found["runs"]) == ({}, 0, [])
    assert Purge.objects.get().found["finished"]

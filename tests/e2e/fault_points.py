"""Puts the points of `faults` into the lab's own functions by their names; the product does not know."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings

from tests.e2e.faults import FaultFolder, Process, kind_of_this_process

_RUN = re.compile(r"run-(\d+)-attempt-\d+")
# A worker that is killed on purpose many times in a row is not a worker that cannot start.
_RESTART_SECONDS = 0.5
_WITHIN_A_COMMAND_SECONDS = 0.3


class FaultPoints(AppConfig):
    name = "tests.e2e"
    label = "faults"

    def ready(self) -> None:
        kind = kind_of_this_process()
        process = Process(kind, FaultFolder(Path(settings.LAB_DATA_DIR)))
        if kind != "other":
            process.folder.register(kind)
        if kind == "up":
            from lab.management import supervision

            supervision.LONGEST_PAUSE_SECONDS = _RESTART_SECONDS
        if kind != "other":
            _put_into_the_log(process)
            _put_into_the_queue(process)
            _put_into_sandboxes(process)
            if settings.LAB_SANDBOX == "docker":
                _put_into_docker(process)
        if kind == "worker":
            _put_into_the_sink(process)


def _around(
    owner: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Call `before` with the arguments of `owner.name`, `after` with its result and the arguments.

    Raises:
        AttributeError: the product has no such function any more; name the new one.
    """
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = inner(*args, **kwargs)
        if after is not None:
            after(result, *args, **kwargs)
        return result

    setattr(owner, name, outer)


def _put_into_the_log(process: Process) -> None:
    from django.db.models.query import QuerySet

    from lab.models import Event
    from lab.services import log

    def come_to(side: str, run: int, kinds: list[tuple[str, int | None]]) -> None:
        for kind in dict.fromkeys(kind for kind, _ in kinds):
            process.come_to(f"{side} {kind}", run=run, steps=[step for name, step in kinds if name == kind])

    def inserted(_: Any, rows: QuerySet[Any], objects: Any, *args: Any, **kwargs: Any) -> None:
        if rows.model is Event and objects:
            come_to("storing", objects[0].run_id, [(row.kind, row.step) for row in objects])

    def appended(last: int, *, run_id: int, events: Any, **kwargs: Any) -> None:
        stored = [item[1] if isinstance(item, tuple) else item for item in events]
        token = kwargs.get("lease_token")
        process.folder.note_append(run=run_id, last=last, count=len(stored), token=token, by=process.role)
        come_to("stored", run_id, [(event.kind, getattr(event, "step", None)) for event in stored])

    _around(QuerySet, "bulk_create", after=inserted)
    _around(log, "append", after=appended)


def _put_into_the_queue(process: Process) -> None:
    from lab.services import messages, queue, settling

    def moving(point: str, wanted: str) -> Callable[..., None]:
        def moved(won: bool, *, run_id: int, to: str, **kwargs: Any) -> None:
            if won and to == wanted:
                process.come_to(point, run=run_id)

        return moved

    def claimed(claim: Any, **kwargs: Any) -> None:
        if claim is not None:
            process.come_to("claimed", run=claim.run.pk)

    def at(point: str) -> Callable[..., None]:
        return lambda *args, claim, **kwargs: process.come_to(point, run=claim.run.pk)

    _around(queue, "transition", after=moving("claiming", "preparing"))
    _around(settling, "transition", after=moving("taking back", "queued"))
    _around(queue, "claim_next", after=claimed)
    _around(queue, "renew", before=at("renewing"))
    _around(queue, "settle", before=at("settling"), after=at("settled"))
    _around(messages, "_send", before=lambda *args: process.come_to("ringing"))


def _run_of(text: str) -> int | None:
    found = _RUN.search(text)
    return int(found[1]) if found else None


def _put_into_sandboxes(process: Process) -> None:
    from lab.engine.sandboxes import bubblewrap, folders
    from lab.engine.sandboxes import process as plain

    def start(point: str) -> Callable[..., None]:
        def come(*args: Any) -> None:
            process.come_to(point, run=_run_of(args[-1].label))

        return come

    def launching(argv: Any, *, log: Path, **kwargs: Any) -> None:
        process.come_to("sandbox half made", run=_run_of(str(log)))

    for module, provider in (
        (bubblewrap, bubblewrap.BubblewrapProvider),
        (plain, plain.ProcessProvider),
    ):
        _around(module, "launch", before=launching)
        _around(provider, "start", before=start("making a sandbox"), after=start("sandbox made"))

    def removal(point: str) -> Callable[..., None]:
        return lambda *args: process.come_to(point, run=_run_of(str(getattr(args[-1], "top", args[-1]))))

    _around(folders.SandboxFolders, "remove", before=removal("removing a sandbox"))
    _around(folders, "remove_tree", before=removal("sandbox half removed"), after=removal("sandbox removed"))


def _put_into_docker(process: Process) -> None:
    from docker.api.container import ContainerApiMixin

    from lab.engine.sandboxes.docker import DockerProvider

    runs: dict[str, int | None] = {}
    around_commands: set[type] = set()

    def run_of_name(name: str) -> int | None:
        return runs.get(name)

    def creating(_: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        process.come_to("creating a container", run=_run_of(str(config.get("Labels"))))

    def created(made: Any, _: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        runs[made["Id"]] = _run_of(str(config.get("Labels")))
        process.folder.note_container(made["Id"])
        process.come_to("created a container", run=runs[made["Id"]])

    def at(point: str, after: bool = False) -> Callable[..., None]:
        return lambda *args, **kwargs: process.come_to(point, run=run_of_name(str(args[1 + after])))

    def started(sandbox: Any, provider: Any, spec: Any) -> None:
        if type(sandbox) not in around_commands:
            around_commands.add(type(sandbox))
            _around(type(sandbox), "exec", before=running)
        runs[sandbox.facts.identifier] = _run_of(spec.label)
        process.come_to("sandbox made", run=_run_of(spec.label))

    def running(sandbox: Any, argv: Any, **kwargs: Any) -> None:
        _in_the_middle(process, argv, runs.get(sandbox.facts.identifier))

    _around(ContainerApiMixin, "create_container_from_config", before=creating, after=created)
    for name, before, after in (
        ("start", "starting a container", "started a container"),
        ("remove_container", "removing a container", "removed a container"),
    ):
        _around(ContainerApiMixin, name, before=at(before), after=at(after, after=True))
    _around(
        DockerProvider,
        "start",
        before=lambda provider, spec: process.come_to("making a sandbox", run=_run_of(spec.label)),
        after=started,
    )


def _in_the_middle(process: Process, argv: Any, run: int | None) -> None:
    """Come to the point within a command that takes its time."""
    if "sleep" in " ".join(argv):
        threading.Timer(
            _WITHIN_A_COMMAND_SECONDS, process.come_to, ("running a command",), {"run": run}
        ).start()


def _put_into_the_sink(process: Process) -> None:
    from lab.engine.sandboxes.local import LocalSandbox
    from lab.services import blobs
    from lab.worker.sink import DatabaseSink

    # A child works on one run at a time.
    current: list[int] = [0]

    def archiving(sink: Any, data: bytes) -> None:
        current[0] = sink._run_id

    def streaming(sink: Any, *, step: int, **kwargs: Any) -> None:
        process.come_to("asking", run=sink._run_id, steps=[step])

    def archived(digest: str, sink: Any, data: bytes) -> None:
        process.come_to("archived", run=sink._run_id)

    def running(sandbox: Any, argv: Any, **kwargs: Any) -> None:
        _in_the_middle(process, argv, _run_of(sandbox.facts.identifier))

    _around(DatabaseSink, "draft", after=lambda _, sink, **kwargs: streaming(sink, **kwargs))
    _around(DatabaseSink, "put_blob", before=archiving, after=archived)
    _around(blobs, "put", before=lambda **kwargs: process.come_to("archiving", run=current[0]))
    _around(LocalSandbox, "exec", before=running)

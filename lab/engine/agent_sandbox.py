"""The sandbox an agent works in: its workspace made or made again, what changes in it, its patch."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from lab.engine.attempt import ReadBlob
from lab.engine.errors import InfrastructureError
from lab.engine.events import Event, WorkspaceChanged
from lab.engine.image_wait import Show, get_image, sandbox_started
from lab.engine.patches import CapturedPatch, capture_patch
from lab.engine.preparing import Base, prepare_workspace
from lab.engine.sandboxes.base import ResourceUsage, Sandbox, SandboxProvider, SandboxSpec
from lab.engine.sinks import Emit
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from lab.engine.workspace import WorkspaceTracker, restore

_NOT_RESTORED = (
    "the workspace was made again from the log; what commands left outside it (HOME, /tmp, running programs) "
    "is gone"
)
_NAMED = 50


class AgentSandbox:
    """Started from `spec`, stopped by `stop`, which may be called at any moment and more than once.

    `put_blob` keeps an archive of what changed and returns its SHA-256.
    """

    def __init__(
        self, task: TaskSpec, spec: SandboxSpec, *, emit: Emit, put_blob: Callable[[bytes], str]
    ) -> None:
        self._task, self._spec = task, spec
        self._emit, self._put_blob = emit, put_blob
        self._sandbox: Sandbox | None = None
        self._base = Base("")
        self.usage: ResourceUsage | None = None

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise InfrastructureError("the agent's sandbox was not started")
        return self._sandbox

    @property
    def was_started(self) -> bool:
        """Whether there is, or was, one."""
        return self._sandbox is not None or self.usage is not None

    def start(
        self,
        provider: SandboxProvider,
        archives: Sequence[bytes] | None = None,
        *,
        image: str = "",
        show: Show | None = None,
        stop: StopSignal | None = None,
    ) -> None:
        """Start the sandbox and prepare the workspace; `archives` are the changes put over it, oldest first.

        None is for an attempt that begins, a list, also an empty one, for one that is continued; `image` is
        the identifier of what its sandbox was made from before, "" where that is not known. `show` is told
        how far an image is that is not there, `stop` breaks off what is waited for.

        Raises:
            AttemptStoppedError: `stop` was set while an image came.
            SandboxLostError: it could not be started, or is gone.
            InfrastructureError: the workspace cannot be made; one that is not exact names what differs.
        """
        get_image(provider, self._spec, purpose="agent", emit=self._emit, show=show, stop=stop)
        started = time.monotonic()
        self._sandbox = sandbox = provider.start(self._spec)
        rebuilt = archives is not None
        self._emit(
            sandbox_started(
                sandbox.facts,
                seconds=time.monotonic() - started,
                rebuilt=rebuilt,
                more=(_NOT_RESTORED,) if rebuilt else (),
            )
        )
        _require_image(sandbox, image)
        self._base = prepare_workspace(sandbox, self._task, stop=stop)
        if archives:
            restore(sandbox, archives, task=self._task)
        self._tracker = WorkspaceTracker(sandbox, self._task, self._base)
        self._tracker.baseline(archives or ())

    def changed(self, *, step: int, index: int, call_id: str) -> list[Event]:
        """The event of what a tool call changed, its archive stored; empty when nothing changed.

        Raises: SandboxLostError, InfrastructureError: as `WorkspaceTracker.changes`.
        """
        delta = self._tracker.changes()
        if not delta.changes and delta.archive is None and not delta.problem:
            return []
        archive, problems = None, [delta.problem] if delta.problem else []
        if delta.archive is not None:
            archive = self._put_blob(delta.archive)
            if archive != hashlib.sha256(delta.archive).hexdigest():
                problems.append("a known secret in what changed was replaced by stars")
        return [
            WorkspaceChanged(
                step=step,
                index=index,
                call_id=call_id,
                changes=delta.changes,
                archive=archive,
                problem="; ".join(problems),
            )
        ]

    def patch(self) -> CapturedPatch:
        """What the agent changed. Raises: as `capture_patch`."""
        return capture_patch(self.sandbox, self._base, task=self._task)

    def stop(self) -> None:
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            self.usage = sandbox.stop()


def _require_image(sandbox: Sandbox, before: str) -> None:
    """Raises: InfrastructureError: the sandbox is made from another image than the attempt's first."""
    image = sandbox.facts.image
    if before and image is not None and image.identifier != before:
        raise InfrastructureError(
            f"the image {image.reference} is another one than the attempt began in ({image.identifier}, "
            f"before {before}); tag the former one again, or run the task again from the start",
            retryable=False,
        )


def stored_changes(changes: Sequence[WorkspaceChanged], read_blob: ReadBlob | None) -> list[bytes]:
    """The archives of these changes, oldest first.

    Raises:
        InfrastructureError: one is missing, damaged, or was not exact when it was stored; the text names the
            files that would differ.
    """
    archives, inexact = [], []
    for change in changes:
        problem = change.problem
        if change.archive is not None and not problem:
            try:
                archives.append(_read(change.archive, read_blob))
            except OSError as error:
                problem = f"its archive cannot be read: {error}"
        if problem:
            paths = [file.path for file in change.changes] or ["files in .git"]
            more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
            names = ", ".join(paths[:_NAMED]) + more
            inexact.append(f"step {change.step}: {names} ({problem})")
    if inexact:
        raise InfrastructureError(
            f"the workspace cannot be restored exactly; these files would differ: {'; '.join(inexact)}"
        )
    return archives


def _read(sha256: str, read_blob: ReadBlob | None) -> bytes:
    if read_blob is None:
        raise OSError("nobody gave the stored blobs")
    data = read_blob(sha256)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise OSError("it is not what was stored")
    return data

"""Waiting for the image of a sandbox: said in the log when it was not there, shown while it comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol

from lab.engine.errors import AttemptStoppedError, SandboxLostError
from lab.engine.events import ImageReady, ImageRequested, SandboxBounds, SandboxImage, SandboxStarted
from lab.engine.sandboxes.base import Image, SandboxFacts, SandboxProvider, SandboxSpec
from lab.engine.sinks import Emit
from lab.engine.stop import StopSignal

Purpose = Literal["agent", "verification"]
# Told in words what is done for the image. May raise, which breaks it off.
Show = Callable[[str], None]

# Between tries when a daemon or a registry is away: attempts that follow each other at once would all find it
# so, and a daemon takes seconds to be restarted.
_PAUSES_SECONDS = (1, 2, 4, 8)
# What came to nothing after longer than that, as with a daemon that hangs, is left to another attempt.
_PATIENCE_SECONDS = 20.0


class Draft(Protocol):
    """As a sink takes text that is still streaming."""

    def __call__(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None: ...


def shown_as_draft(draft: Draft) -> Show:
    """What is done for an image, as the streaming text of the step that has not begun."""

    def show(text: str) -> None:
        draft(step=0, content=text, reasoning="", calls="", characters=len(text))

    return show


def get_image(
    provider: SandboxProvider,
    spec: SandboxSpec,
    *,
    purpose: Purpose,
    emit: Emit,
    show: Show | None = None,
    stop: StopSignal | None = None,
) -> None:
    """Have the provider get what the sandboxes of `spec` are made from.

    Emits `image_requested` and `image_ready`, and shows how far it is, only when the image is not there. A
    daemon or registry that is away is asked again, for some fifteen seconds.

    Raises:
        AttemptStoppedError: `stop` broke it off.
        SandboxLostError: it cannot be had; retryable where a later attempt may have it.
        Whatever `show` raises.
    """
    started = time.monotonic()
    requested = False

    def progress(text: str, done: int | None, total: int | None) -> None:
        nonlocal requested
        if not requested:
            requested = True
            action: Literal["pull", "build"] = "build" if spec.build is not None else "pull"
            emit(ImageRequested(purpose=purpose, reference=spec.image or str(spec.build), action=action))
        if show is not None:
            show(said(text, done, total))

    stop = stop or StopSignal()
    pauses = iter(_PAUSES_SECONDS)
    while True:
        try:
            image = provider.prepare(spec, progress=progress, stop=stop)
            break
        except SandboxLostError as error:
            if not stop.is_set():
                may_come = error.retryable and time.monotonic() - started < _PATIENCE_SECONDS
                pause = next(pauses, 0) if may_come else 0
                if pause == 0:
                    raise
                _wait(pause, error, show, stop)
            if stop.reason is not None:
                raise AttemptStoppedError(stop.reason, detail="broken off while its image came") from None
    if requested and image is not None:
        seconds = time.monotonic() - started
        emit(ImageReady(purpose=purpose, image=_image(image), seconds=seconds))


def _wait(seconds: int, error: SandboxLostError, show: Show | None, stop: StopSignal) -> None:
    """Count down to the next try, so that whoever is shown it can break it off."""
    for left in range(seconds, 0, -1):
        if stop.is_set():
            return
        if show is not None:
            show(f"tried again in {left} s: {error}")
        stop.wait(1.0)


def said(text: str, done: int | None, total: int | None) -> str:
    """Progress in words, bytes in megabytes."""
    if done is None:
        return text
    of = f" of {total / 1e6:.1f}" if total is not None else ""
    return f"{text}: {done / 1e6:.1f}{of} MB"


def sandbox_started(
    facts: SandboxFacts,
    *,
    seconds: float,
    purpose: Purpose = "agent",
    rebuilt: bool = False,
    more: tuple[str, ...] = (),
) -> SandboxStarted:
    """The event of a sandbox that is up `seconds` after it was asked for; `more` are notes beside its own."""
    limits = facts.limits
    return SandboxStarted(
        purpose=purpose,
        rebuilt=rebuilt,
        sandbox=facts.kind,
        isolation=facts.isolation,
        identifier=facts.identifier,
        workspace=facts.workspace,
        network=facts.network,
        notes=[*facts.notes, *more],
        seconds=seconds,
        image=_image(facts.image) if facts.image is not None else None,
        limits=None
        if limits is None
        else SandboxBounds(
            memory_bytes=limits.memory_bytes,
            processes=limits.processes,
            cpu_cores=limits.cpu_cores,
            disk_bytes=limits.disk_bytes,
        ),
    )


def _image(image: Image) -> SandboxImage:
    return SandboxImage(**image._asdict())

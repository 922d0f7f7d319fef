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

    Emits `image_requested` and `image_ready`, and shows how far it is, only when the image is not there.

    Raises:
        AttemptStoppedError: `stop` broke it off.
        SandboxLostError: it cannot be had.
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

    try:
        image = provider.prepare(spec, progress=progress, stop=stop)
    except SandboxLostError:
        if stop is not None and stop.reason is not None:
            raise AttemptStoppedError(stop.reason, detail="broken off while its image came") from None
        raise
    if requested and image is not None:
        seconds = time.monotonic() - started
        emit(ImageReady(purpose=purpose, image=_image(image), seconds=seconds))


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

"""Gets the image of a sandbox onto the machine: there already, pulled, or built from a Dockerfile's folder.

What the lab has pulled or built stays within a budget of disk: what was used longest ago goes first. What
was there before is never touched.
"""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path

import docker
import requests
from docker.utils.build import exclude_paths

from lab.engine.errors import InfrastructureError, SandboxLostError
from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import Image, Progress, SandboxSpec
from lab.engine.sandboxes.docker_streams import (
    QUIET_SECONDS,
    BrokenOffError,
    LayerSum,
    SilentDaemonError,
    daemon_says,
)
from lab.engine.sandboxes.image_errors import (
    broken_off,
    build_failed,
    cannot_be_had,
    does_not_fit,
    explanation,
    no_answer,
)
from lab.engine.sandboxes.image_records import ImageRecords
from lab.engine.stop import StopSignal
from lab.engine.tasks.snapshot import EXECUTABLE, LINK, digest_of, snapshot_files

LABEL = "trajectory-lab.image"
_LOG_LINES = 40
_LINE_CHARACTERS = 500
_FROM = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?P<image>\S+)(?:[ \t]+AS[ \t]+(?P<stage>\S+))?", re.I | re.M
)
# What the builder says of the image that holds the steps so far.
_STEPS_SO_FAR = re.compile(r"^ ---> ([0-9a-f]{12,64})$", re.M)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# An image says 386 and runs on amd64 all the same.
_RUNS_TOO = frozenset({("amd64", "386"), ("arm64", "arm")})


def reference_of(spec: SandboxSpec) -> str:
    """The name of the image that sandboxes of `spec` are made from; "" when it names none.

    Raises:
        SandboxLostError: the folder to build from cannot be read.
    """
    if spec.build is None or spec.image:
        return spec.image
    name = re.sub(r"[^a-z0-9]+", "-", spec.build.name.lower()).strip("-") or "build"
    return f"trajectory-lab/{name}:{digest_of(snapshot_files(spec.build))[:16]}"


def ensure_image(
    client: docker.DockerClient,
    spec: SandboxSpec,
    *,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
    budget_bytes: int | None = None,
) -> Image:
    """The image of `spec` on the daemon's machine, pulled or built when it is not there.

    Asked for several times at once it is brought once. `progress` hears what is done as soon as something
    must be, of a pull the compressed bytes fetched and in all; `stop` breaks that off. `budget_bytes` is what
    images that this lab brought may take together, None: any.

    Raises:
        SandboxLostError: it cannot be had, is for another kind of machine, or does not fit; the text says
            which and what to do.
    """
    reference = reference_of(spec)
    if not reference:
        raise SandboxLostError(
            "sandboxes in Docker are made from an image, and none is named; give the task's [environment] "
            "image or build",
            retryable=False,
        )
    records = ImageRecords(spec.scratch.parent / "images")
    stop = stop or StopSignal()
    found = _look(client, reference)
    if found is None:
        tell = progress or _nobody
        tell(f"{'building' if spec.build else 'pulling'} {reference}", None, None)
        with records.alone(
            reference, stop, lambda: tell(f"waiting for {reference}, which another run gets", None, None)
        ) as held:
            if not held:
                raise broken_off(reference)
            found = _look(client, reference) or _bring(
                client, spec, reference, records, tell, stop, budget_bytes
            )
    records.used(reference)
    _require_platform(client, found, reference)
    return _image(found, reference)


def _nobody(text: str, done: int | None, total: int | None) -> None:
    return


def _look(client: docker.DockerClient, reference: str) -> JSONObject | None:
    try:
        found: JSONObject = client.api.inspect_image(reference)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.DockerException as error:
        raise cannot_be_had(reference, str(error)) from error
    except requests.RequestException as error:
        raise no_answer(reference, error) from error
    return found


def _image(found: JSONObject, reference: str) -> Image:
    digests = [str(one) for one in found.get("RepoDigests") or []]
    name = _without_tag(reference)
    own = [one for one in digests if one.partition("@")[0] in (name, f"docker.io/{name}", f"library/{name}")]
    return Image(reference, str(found["Id"]), (own or digests or [""])[0], found.get("Size"))


def _without_tag(reference: str) -> str:
    name = reference.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _require_platform(client: docker.DockerClient, found: JSONObject, reference: str) -> None:
    """Raises: SandboxLostError: the image is for another system or processor than the daemon's."""
    try:
        here = client.version()
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise no_answer(reference, error) from error
    wanted = (str(here.get("Os", "")), str(here.get("Arch", "")))
    given = (str(found.get("Os") or wanted[0]), str(found.get("Architecture") or wanted[1]))
    if given != wanted and (given[0] != wanted[0] or (wanted[1], given[1]) not in _RUNS_TOO):
        raise SandboxLostError(
            f"the image {reference} is for {'/'.join(given)}, and the Docker daemon's machine is "
            f"{'/'.join(wanted)}; name an image for that, or run the lab where this one belongs",
            retryable=False,
        )


def _bring(
    client: docker.DockerClient,
    spec: SandboxSpec,
    reference: str,
    records: ImageRecords,
    progress: Progress,
    stop: StopSignal,
    budget: int | None,
) -> JSONObject:
    try:
        if spec.build is not None:
            for base in _bases(spec.build):
                # Pulled by the lab itself, it counts as brought by it; the build would pull it unnoticed.
                below = SandboxSpec(label=spec.label, scratch=spec.scratch, image=base)
                ensure_image(client, below, progress=progress, stop=stop, budget_bytes=budget)
            _build(client, spec, reference, progress, stop)
        else:
            _pull(client, reference, progress, stop, budget)
        found = _look(client, reference)
        if found is None:
            raise cannot_be_had(reference, "the Docker daemon does not have it afterwards")
        records.brought(reference, str(found["Id"]))
        if budget is not None and (over := records.make_room(client, budget, kept=reference)):
            records.forget(client, reference)
            raise does_not_fit(reference, int(found["Size"]), budget, over)
    except BrokenOffError:
        raise broken_off(reference) from None
    except SilentDaemonError:
        raise SandboxLostError(
            f"the image {reference} cannot be had: the Docker daemon said nothing for {QUIET_SECONDS:.0f} s; "
            "look at its log and at the registry"
        ) from None
    except docker.errors.DockerException as error:
        raise cannot_be_had(reference, explanation(error)) from error
    except requests.RequestException as error:
        raise no_answer(reference, error) from error
    return found


def _pull(
    client: docker.DockerClient, reference: str, progress: Progress, stop: StopSignal, budget: int | None
) -> None:
    layers = LayerSum()

    def ask() -> Iterable[JSONObject]:
        lines: Iterable[JSONObject] = client.api.pull(reference, stream=True, decode=True)
        return lines

    for line in daemon_says(client.api, ask, stop):
        _raise_error(line, reference)
        if layers.hear(line):
            what = "unpacking" if layers.is_unpacking else "pulling"
            progress(f"{what} {reference}", layers.done, layers.total)
        if budget is not None and layers.known > budget:
            raise does_not_fit(reference, layers.known, budget, layers.known - budget, "at least ")


def _build(
    client: docker.DockerClient, spec: SandboxSpec, reference: str, progress: Progress, stop: StopSignal
) -> None:
    folder = spec.build or Path()
    log: list[str] = []
    so_far = ""
    layers = LayerSum()
    context = io.BytesIO(pack_context(folder))

    def ask() -> Iterable[JSONObject]:
        lines: Iterable[JSONObject] = client.api.build(
            fileobj=context,
            custom_context=True,
            tag=reference,
            rm=True,
            forcerm=True,
            decode=True,
            labels={LABEL: "built"},
            network_mode=None if spec.build_network else "none",
        )
        return lines

    try:
        for line in daemon_says(client.api, ask, stop):
            if message := _error_of(line):
                raise build_failed(reference, spec, message, log)
            if layers.hear(line):
                progress(f"pulling what {reference} is built on", layers.done, layers.total)
            said = _COLOUR.sub("", str(line.get("stream") or ""))
            so_far = next(reversed(_STEPS_SO_FAR.findall(said)), so_far)
            for text in said.splitlines():
                if text.strip():
                    log.append(text[:_LINE_CHARACTERS])
                    progress(f"building {reference}: {text.strip()[:_LINE_CHARACTERS]}", None, None)
            del log[:-_LOG_LINES]
    except docker.errors.APIError as error:
        raise build_failed(reference, spec, explanation(error), log) from error
    except (SandboxLostError, BrokenOffError):
        _remove_steps(client, so_far)
        raise


def _remove_steps(client: docker.DockerClient, identifier: str) -> None:
    """What a build that failed has left: without a name, no budget of disk would count it."""
    with contextlib.suppress(docker.errors.DockerException, requests.RequestException):
        if identifier and not client.api.inspect_image(identifier)["RepoTags"]:
            client.api.remove_image(identifier)


def _bases(folder: Path) -> list[str]:
    """The images that the folder's Dockerfile begins from, but its own stages and what is made of ARGs."""
    try:
        text = (folder / "Dockerfile").read_text(errors="replace")
    except OSError:
        # The build says what is wrong with it.
        return []
    found, stages = [], {"scratch"}
    for line in _FROM.finditer(text):
        image, stage = line["image"], line["stage"]
        if image not in stages and "$" not in image:
            found.append(image)
        stages.add(stage)
    return found


def pack_context(folder: Path) -> bytes:
    """The folder as the tar that a build is sent, without what its .dockerignore leaves out.

    Raises:
        SandboxLostError: the folder is gone or cannot be read.
    """
    try:
        files = snapshot_files(folder)
    except InfrastructureError as error:
        raise SandboxLostError(f"nothing can be built: {error}", retryable=False) from error
    ignored = next((file.content for file in files if file.path == ".dockerignore"), b"")
    patterns = [line.strip() for line in ignored.decode("utf-8", "replace").splitlines()]
    wanted = exclude_paths(str(folder), [line for line in patterns if line and not line.startswith("#")])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            if file.path in wanted:
                entry = tarfile.TarInfo(file.path)
                entry.mode = 0o755 if file.mode == EXECUTABLE else 0o644
                if file.mode == LINK:
                    entry.type, entry.linkname = (
                        tarfile.SYMTYPE,
                        file.content.decode("utf-8", "surrogateescape"),
                    )
                    archive.addfile(entry)
                else:
                    entry.size = len(file.content)
                    archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def _error_of(line: JSONObject) -> str:
    detail = line.get("errorDetail")
    said = detail.get("message") if isinstance(detail, dict) else None
    return str(said or line.get("error") or "")


def _raise_error(line: JSONObject, reference: str) -> None:
    if message := _error_of(line):
        raise cannot_be_had(reference, message)

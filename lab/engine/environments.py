"""What the sandboxes of a task start from, and the small Python environment of the practice tasks.

That environment is made without network: it holds pytest and what pytest needs, copied from the lab's own
installation, on the lab's own interpreter or, as an image, on the interpreter of the image below it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import py_compile
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

import lab
from lab.engine.errors import InfrastructureError, InvalidValueError
from lab.engine.sandboxes.base import SandboxLimits, SandboxSpec
from lab.engine.tasks.snapshot import digest_of, snapshot_files
from lab.engine.tasks.spec import (
    DEFAULT_WORKING_DIRECTORY,
    PRACTICE,
    Environment,
    TaskSpec,
    is_image_name,
)

# What the practice tasks' image is built on where nobody says otherwise.
PRACTICE_IMAGE = "python:3.13-bookworm"
# Kinds of sandboxes whose file system is made from an image.
IMAGE_KINDS = frozenset({"docker"})

_TOP_DISTRIBUTION = "pytest"
# Raised when what is put into the folder changes, so that a new one is made beside the old one.
_LAYOUT = "1"
# Loaded only to colour output; compiling its hundreds of modules would take most of the time.
_NEVER_COMPILED = frozenset({"pygments"})

# A folder as `python -m venv` makes it, which not every Python can. Login shells set PATH anew.
_DOCKERFILE = r"""FROM BASE
USER root
COPY packages /opt/practice/packages
RUN set -eu; \
    for tool in git find tar python3; do \
        command -v $tool > /dev/null || { echo "the image below has no $tool" >&2; exit 1; }; \
    done; \
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
        { echo "the image below has $(python3 --version); 3.11 or newer is needed" >&2; exit 1; }; \
    cd /opt/practice; \
    version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
    mkdir -p bin "lib/python$version"; \
    ln -s ../../packages "lib/python$version/site-packages"; \
    for name in python python3 "python$version"; do ln -s "$(command -v python3)" "bin/$name"; done; \
    home=$(dirname "$(command -v python3)"); \
    printf 'home = %s\ninclude-system-site-packages = false\n' "$home" > pyvenv.cfg; \
    for name in pytest py.test; do \
        printf '#!%s\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n' \
            /opt/practice/bin/python > "bin/$name"; \
        chmod 755 "bin/$name"; \
    done; \
    echo 'PATH=/opt/practice/bin:$PATH' > /etc/profile.d/practice.sh; \
    bin/python -m compileall -q -x pygments packages > /dev/null || :; \
    bin/python -c 'import pytest'
ENV PATH=/opt/practice/bin:$PATH
"""


class PracticeEnvironment(NamedTuple):
    """`bin` belongs first on PATH; `read_only_paths` must be readable inside a sandbox at the same place."""

    bin: Path
    read_only_paths: list[Path]


def practice_environment(data_folder: Path) -> PracticeEnvironment:
    """The environment under `data_folder`, made at the first call; safe with many processes at once.

    Raises:
        InvalidValueError: the folder cannot be written.
        InfrastructureError: pytest is not installed beside the lab.
    """
    distributions = _distributions()
    executable = Path(getattr(sys, "_base_executable", sys.executable)).absolute()
    final = _made_once(
        data_folder,
        f"practice-{_fingerprint(distributions, executable)}",
        lambda place: _make(place, distributions, executable),
    )
    return PracticeEnvironment(final / "bin", [final, *_interpreter_folders(executable)])


def sandbox_spec_for(
    task: TaskSpec,
    *,
    data_folder: Path,
    label: str,
    limits: SandboxLimits | None = None,
    kind: str = "",
    practice_image: str = PRACTICE_IMAGE,
) -> SandboxSpec:
    """What the sandboxes of a task start from, the agent's, a verification's and a check's alike.

    `kind` is that of the provider: "docker" is given an image. They are made under `<data_folder>/sandboxes`.
    What the task says of limits goes before `limits`; whether they reach the network, the task says alone.
    `practice_image` is what the image of practice tasks is built on.

    Raises:
        InvalidValueError: an environment the lab does not prepare, a task with an image in another kind of
            sandbox, or a data folder that cannot be written.
        InfrastructureError: pytest is not installed beside the lab, or the task's build folder has changed.
    """
    wanted = task.environment
    if kind in IMAGE_KINDS:
        return _with_image(task, data_folder, label, limits, practice_image)
    if wanted.brings_image:
        field = "image" if wanted.image else "build"
        raise InvalidValueError(
            f"environment.{field}",
            getattr(wanted, field),
            f"is for sandboxes in Docker alone, and this would be {kind or 'none'}; choose the sandbox "
            "docker (LAB_SANDBOX=docker)",
        )
    _require_practice(wanted)
    environment = practice_environment(data_folder)
    return SandboxSpec(
        label=label,
        scratch=data_folder / "sandboxes",
        workspace=wanted.working_directory or DEFAULT_WORKING_DIRECTORY,
        environment={"LANG": "C.UTF-8", **wanted.variables},
        read_only_paths=environment.read_only_paths,
        # Installed beside its interpreter, the lab would show its practice tasks' tests and gold patches.
        hidden_paths=[Path(lab.__file__).resolve().parent],
        path_prefix=[str(environment.bin)],
        limits=_limits(wanted, limits),
    )


def _with_image(
    task: TaskSpec, data_folder: Path, label: str, limits: SandboxLimits | None, practice_image: str
) -> SandboxSpec:
    wanted = task.environment
    image, build = wanted.image, task.build_folder
    if build is not None:
        if digest_of(snapshot_files(build)) != wanted.build_digest:
            raise InfrastructureError(
                f"environment.build: {str(build)!r} of task {task.id!r} changed since the task was loaded; "
                "restore it, or load the task set again so that the change gets a digest of its own",
                retryable=False,
            )
        name = re.sub(r"[^a-z0-9]+", "-", task.id.lower()).strip("-")
        image = f"trajectory-lab/{name}:{wanted.build_digest[:16]}"
    elif not image:
        _require_practice(wanted)
        image, build = practice_build(data_folder, practice_image)
    return SandboxSpec(
        label=label,
        scratch=data_folder / "sandboxes",
        workspace=wanted.working_directory or DEFAULT_WORKING_DIRECTORY,
        environment={"LANG": "C.UTF-8", **wanted.variables},
        limits=_limits(wanted, limits),
        image=image,
        build=build,
        build_network=wanted.build_network,
        user=wanted.user,
    )


def _require_practice(wanted: Environment) -> None:
    if wanted.name != PRACTICE:
        raise InvalidValueError(
            "environment.name", wanted.name, 'is not prepared by the lab; write "practice", or bring an image'
        )


def _limits(wanted: Environment, limits: SandboxLimits | None) -> SandboxLimits:
    asked: dict[str, Any] = {
        "memory_bytes": wanted.memory_mb and wanted.memory_mb * 1024**2,
        "disk_bytes": wanted.disk_mb and wanted.disk_mb * 1024**2,
        "cpu_cores": wanted.cpus,
        "processes": wanted.processes,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return replace(limits or SandboxLimits(), network=wanted.network, **given)


def practice_build(data_folder: Path, base: str) -> tuple[str, Path]:
    """The name of the practice tasks' image and the folder it is built from, made at the first call.

    `base` is an image with python3 (3.11 or newer), git and a POSIX shell. The build needs no network.

    Raises:
        InvalidValueError: `base` is no image's name, or the folder cannot be written.
        InfrastructureError: pytest is not installed beside the lab.
    """
    if not is_image_name(base):
        raise InvalidValueError(
            "LAB_PRACTICE_IMAGE", base, "is no name of an image; write one as in python:3.13-bookworm"
        )
    distributions = _distributions()
    dockerfile = _DOCKERFILE.replace("BASE", base)
    parts = [_LAYOUT, dockerfile, *(f"{one.name}=={one.version}" for one in distributions)]
    fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    final = _made_once(
        data_folder,
        f"practice-image-{fingerprint}",
        lambda place: _make_build(place, distributions, dockerfile),
    )
    return f"trajectory-lab/practice:{fingerprint}", final


def _make_build(final: Path, distributions: list[metadata.Distribution], dockerfile: str) -> None:
    with _moved_when_whole(final) as building:
        (building / "Dockerfile").write_text(dockerfile)
        packages = building / "packages"
        packages.mkdir()
        for distribution in distributions:
            _copy(distribution, packages, compiled=False)


def _distributions() -> list[metadata.Distribution]:
    """pytest and all it requires on this machine, sorted by name."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [_TOP_DISTRIBUTION]
    while waiting:
        name = waiting.pop()
        if name.lower() in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise InfrastructureError(
                f"The practice environment needs {name}, which is not installed beside the lab; "
                f"run `pip install {name}` in the lab's environment",
                retryable=False,
            ) from None
        found[name.lower()] = distribution
        for line in distribution.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return [found[name] for name in sorted(found)]


def _fingerprint(distributions: list[metadata.Distribution], executable: Path) -> str:
    parts = [_LAYOUT, sys.version, str(executable)]
    parts += [f"{one.name}=={one.version}" for one in distributions]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}-{digest[:12]}"


def _interpreter_folders(executable: Path) -> list[Path]:
    """Where the interpreter and its library lie, under every name used for them; /usr is there anyway."""
    candidates = {
        Path(sys.base_prefix),
        Path(sys.base_prefix).resolve(),
        Path(sys.base_exec_prefix).resolve(),
    }
    candidates |= {executable.parent.parent, executable.resolve().parent.parent}
    outside = sorted(path for path in candidates if not path.is_relative_to("/usr"))
    return [
        path
        for path in outside
        if path != Path("/") and not any(path != other and path.is_relative_to(other) for other in outside)
    ]


def _made_once(data_folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name among the environments, made when it is not there."""
    folder = data_folder.absolute() / "environments"
    final = folder / name
    if not final.is_dir():
        try:
            with _only_one(folder):
                if not final.is_dir():
                    make(final)
        except OSError as error:
            raise InvalidValueError(
                "LAB_DATA_DIR",
                str(data_folder),
                f"cannot hold the practice environment ({error.strerror}); name a folder the lab may write",
            ) from error
    return final


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a lock the kernel drops when its holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(final: Path, distributions: list[metadata.Distribution], executable: Path) -> None:
    with _moved_when_whole(final) as building:
        packages = (
            building / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        )
        packages.mkdir(parents=True)
        for distribution in distributions:
            _copy(distribution, packages, compiled=True)
        _write_commands(building, final, executable)


@contextmanager
def _moved_when_whole(final: Path) -> Iterator[Path]:
    """A folder beside the final place, moved there in one step, so that a half-made one is never used."""
    building = Path(tempfile.mkdtemp(prefix=".making-", dir=final.parent))
    try:
        building.chmod(0o755)
        yield building
        for path in building.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        building.replace(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _copy(distribution: metadata.Distribution, packages: Path, *, compiled: bool) -> None:
    """Copy a distribution's files with their times, by which compiled ones are known to be still good."""
    for file in distribution.files or []:
        if ".." in file.parts or file.is_absolute() or file.suffix == ".pyc":
            continue
        source, target = Path(str(distribution.locate_file(file))), packages / Path(*file.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if compiled and file.suffix == ".py":
            _provide_compiled(source, target, compile_it=file.parts[0] not in _NEVER_COMPILED)


def _provide_compiled(source: Path, target: Path, *, compile_it: bool) -> None:
    """The sandbox may not write here: without compiled files every test run would compile pytest again."""
    ready = Path(importlib.util.cache_from_source(str(source)))
    wanted = Path(importlib.util.cache_from_source(str(target)))
    if ready.is_file():
        wanted.parent.mkdir(exist_ok=True)
        shutil.copy2(ready, wanted)
    elif compile_it:
        py_compile.compile(str(target), doraise=False, quiet=2)


def _write_commands(building: Path, final: Path, executable: Path) -> None:
    folder = building / "bin"
    folder.mkdir()
    for name in ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        (folder / name).symlink_to(executable)
    version = ".".join(str(part) for part in sys.version_info[:3])
    (building / "pyvenv.cfg").write_text(
        f"home = {executable.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    # A shell line instead of an interpreter line: those may be neither long nor hold spaces.
    for name in ("pytest", "py.test"):
        (folder / name).write_text(
            "#!/bin/sh\n"
            f"'''exec' {_shell_word(final / 'bin' / 'python')} \"$0\" \"$@\"\n"
            "' '''\n"
            "import sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
        )


def _shell_word(path: Path) -> str:
    escaped = str(path)
    for character in '\\"$`':
        escaped = escaped.replace(character, f"\\{character}")
    return f'"{escaped}"'

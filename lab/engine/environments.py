"""The small Python environment in which practice tasks are worked on and graded, made without network.

It holds pytest and what pytest needs, copied from the lab's own installation, on the lab's own interpreter.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import py_compile
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

import lab
from lab.engine.errors import InfrastructureError, InvalidValueError
from lab.engine.sandboxes.base import SandboxLimits, SandboxSpec
from lab.engine.tasks.spec import TaskSpec

_TOP_DISTRIBUTION = "pytest"
# Raised when what is put into the folder changes, so that a new one is made beside the old one.
_LAYOUT = "1"
# Loaded only to colour output; compiling its hundreds of modules would take most of the time.
_NEVER_COMPILED = frozenset({"pygments"})


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
    folder = data_folder.absolute() / "environments"
    final = folder / f"practice-{_fingerprint(distributions, executable)}"
    if not final.is_dir():
        try:
            with _only_one(folder):
                if not final.is_dir():
                    _make(final, distributions, executable)
        except OSError as error:
            raise InvalidValueError(
                "LAB_DATA_DIR",
                str(data_folder),
                f"cannot hold the practice environment ({error.strerror}); name a folder the lab may write",
            ) from error
    return PracticeEnvironment(final / "bin", [final, *_interpreter_folders(executable)])


def sandbox_spec_for(
    task: TaskSpec, *, data_folder: Path, label: str, limits: SandboxLimits | None = None
) -> SandboxSpec:
    """What the sandboxes of a task start from, the agent's, a verification's and a check's alike.

    They are made under `<data_folder>/sandboxes`; whether they reach the network, the task says.

    Raises:
        InvalidValueError: an environment the lab does not prepare, or a data folder it cannot write.
        InfrastructureError: pytest is not installed beside the lab.
    """
    wanted = task.environment
    if wanted.name != "practice":
        raise InvalidValueError(
            "environment.name", wanted.name, 'is not prepared by the lab; write "practice"'
        )
    environment = practice_environment(data_folder)
    return SandboxSpec(
        label=label,
        scratch=data_folder / "sandboxes",
        environment={"LANG": "C.UTF-8", **wanted.variables},
        read_only_paths=environment.read_only_paths,
        # Installed beside its interpreter, the lab would show its practice tasks' tests and gold patches.
        hidden_paths=[Path(lab.__file__).resolve().parent],
        path_prefix=[str(environment.bin)],
        limits=replace(limits or SandboxLimits(), network=wanted.network),
    )


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


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a lock the kernel drops when its holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(final: Path, distributions: list[metadata.Distribution], executable: Path) -> None:
    """Build beside the final place and move there in one step, so that a half-made one is never used."""
    building = Path(tempfile.mkdtemp(prefix=".making-", dir=final.parent))
    try:
        building.chmod(0o755)
        packages = (
            building / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        )
        packages.mkdir(parents=True)
        for distribution in distributions:
            _copy(distribution, packages)
        _write_commands(building, final, executable)
        for path in building.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        building.replace(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _copy(distribution: metadata.Distribution, packages: Path) -> None:
    """Copy a distribution's files with their times, by which compiled ones are known to be still good."""
    for file in distribution.files or []:
        if ".." in file.parts or file.is_absolute() or file.suffix == ".pyc":
            continue
        source, target = Path(str(distribution.locate_file(file))), packages / Path(*file.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if file.suffix == ".py":
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

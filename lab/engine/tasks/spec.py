"""A task: an issue to resolve in a repository snapshot, with what verifies it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, ValidationInfo, field_validator, model_validator

from lab.engine.llm.base import Frozen, JSONObject, canonical_sha256

TestRunner = Literal["pytest", "unittest"]

PRACTICE = "practice"
DEFAULT_WORKING_DIRECTORY = "/workspace"

# Strict: a text or a truth value where a number stands is a slip of the pen.
_Seconds = Annotated[float, Field(strict=True, gt=0, le=10_000_000, allow_inf_nan=False)]
_Megabytes = Annotated[int, Field(strict=True, ge=16, le=16 * 1024**2)]
# The least that a scheduler's period of 100 ms can be cut to.
_Cores = Annotated[float, Field(strict=True, ge=0.01, le=1024, allow_inf_nan=False)]

# A name as registries take it: [host[:port]/]path[:tag][@sha256:…], all but host and tag in small letters.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_USER = re.compile(r"(?:[0-9]{1,10}|[A-Za-z_][\w.-]{0,31})(?::(?:[0-9]{1,10}|[A-Za-z_][\w.-]{0,31}))?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIGHEST_ID = 2**31 - 1
# The kernel takes no longer variable, and paths are given to programs in one with others.
_MOST_OF_A_VARIABLE = 100_000
_LONGEST_FOLDER = 1000
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
_SYSTEM_FOLDERS = frozenset({"/", "/bin", "/boot", "/etc", "/lib", "/lib64", "/run", "/sbin", "/usr", "/var"})
# Where a sandbox's own files lie: what commands read, the home folder.
_SANDBOX_FOLDERS = frozenset({"/tmp", "/home/agent"})  # noqa: S108 (inside the sandbox)
# Beside task.toml too: what is in them must not get into an image that an agent works in.
_NO_BUILD_FOLDERS = frozenset({"tests"})
# Every other field came later, and a task that leaves it alone keeps the digest it had.
_ALWAYS_IN_DIGEST = frozenset({"name", "variables", "network", "agent_timeout_sec", "verifier_timeout_sec"})


def is_image_name(text: str) -> bool:
    """Whether an image can have this name."""
    return len(text) <= 512 and _IMAGE.fullmatch(text) is not None


class Environment(Frozen):
    """What a task needs around its repository: what its sandboxes are made from, and what holds in them.

    One of three: `name`, an environment the lab prepares ("practice"); `image`, by its name; `build`, a
    folder beside task.toml with the Dockerfile that makes one, `build_digest` being what was in it when the
    task was read. A build reaches the network when `build_network` says so.

    `working_directory` is where the repository lies for the agent, "" is /workspace. With
    `repository_in_image` it is there already, and the workspace is that folder as the image has it. `user` is
    whom commands run as, "" is the image's own. `setup` are commands run there by `sh -c`, within
    `setup_timeout_sec` together, before the agent begins and before a verification; what they change belongs
    to what a patch is taken against. Limits that are None are the lab's own.

    `agent_timeout_sec` is what the task's authors allow; the wall time of a run is a limit of its arm.
    `verifier_timeout_sec` bounds the test command."""

    # A check of one field sees those before it.
    image: str = ""
    build: str = ""
    name: str = PRACTICE
    build_digest: str = ""
    build_network: StrictBool = False
    working_directory: str = ""
    repository_in_image: StrictBool = False
    user: str = ""
    variables: dict[str, str] = Field(default_factory=dict)
    setup: tuple[str, ...] = ()
    setup_timeout_sec: _Seconds = 600.0
    network: StrictBool = False
    memory_mb: _Megabytes | None = None
    cpus: _Cores | None = None
    processes: Annotated[int, Field(strict=True, ge=16, le=4_000_000)] | None = None
    disk_mb: _Megabytes | None = None
    agent_timeout_sec: _Seconds = 3600.0
    verifier_timeout_sec: _Seconds = 600.0

    @property
    def brings_image(self) -> bool:
        """Whether its sandboxes are made from an image of the task's own."""
        return bool(self.image or self.build)

    @property
    def has_own_base(self) -> bool:
        """Whether what a patch is taken against is known in a sandbox alone, not from the snapshot."""
        return self.repository_in_image or bool(self.setup)

    @property
    def content(self) -> JSONObject:
        """What of it decides what the task is."""
        default = Environment.model_construct()
        return {
            name: value
            for name, value in self.model_dump(mode="json").items()
            if name in _ALWAYS_IN_DIGEST or getattr(self, name) != getattr(default, name)
        }

    @model_validator(mode="before")
    @classmethod
    def _name_is_one_of_three(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and "name" not in raw and (raw.get("image") or raw.get("build")):
            return {**raw, "name": ""}
        return raw

    @field_validator("image")
    @classmethod
    def _is_reference(cls, image: str) -> str:
        if image and not is_image_name(image):
            raise ValueError(
                "no name of an image; write it as in python:3.13-bookworm or host:5000/name@sha256:…"
            )
        return image

    @field_validator("build")
    @classmethod
    def _is_folder_beside(cls, build: str, info: ValidationInfo) -> str:
        if build and info.data.get("image"):
            raise ValueError("given, and image too; keep one of the two")
        parts = build.split("/")
        if build and (build.startswith("/") or "\0" in build or not {"", ".", ".."}.isdisjoint(parts)):
            raise ValueError(
                'no folder beside task.toml; write its name alone, as in build = "environment", and put the '
                "Dockerfile there"
            )
        if parts[0] in _NO_BUILD_FOLDERS:
            raise ValueError("where the hidden tests are; put the Dockerfile in a folder of its own")
        return build

    @field_validator("name")
    @classmethod
    def _is_one_of_three(cls, name: str, info: ValidationInfo) -> str:
        if name and _brings_image(info):
            raise ValueError("given, and image or build too; keep one of them")
        if not name and not _brings_image(info):
            raise ValueError('no environment; write name = "practice", or give image or build')
        return name

    @field_validator("build_network")
    @classmethod
    def _has_build(cls, build_network: bool, info: ValidationInfo) -> bool:
        if build_network and not info.data.get("build"):
            raise ValueError("for a build, and there is none; name its folder with build")
        return build_network

    @field_validator("repository_in_image", "user")
    @classmethod
    def _has_image(cls, value: Any, info: ValidationInfo) -> Any:
        if value and not _brings_image(info):
            raise ValueError("for an image of the task's own; give image or build")
        return value

    @field_validator("repository_in_image")
    @classmethod
    def _has_place(cls, repository_in_image: bool, info: ValidationInfo) -> bool:
        if repository_in_image and not info.data.get("working_directory", "unfit"):
            raise ValueError(
                "without a place; name the repository's folder in the image with working_directory"
            )
        return repository_in_image

    @field_validator("working_directory")
    @classmethod
    def _is_usable_folder(cls, folder: str) -> str:
        if not folder:
            return folder
        # A path with two slashes in front is its own shortest form.
        if (
            not re.match(r"/(?!/)", folder)
            or posixpath.normpath(folder) != folder
            or not folder.isprintable()
        ):
            raise ValueError('no absolute path in its shortest form; write it as in "/workspace"')
        if len(folder) > _LONGEST_FOLDER:
            raise ValueError(f"longer than {_LONGEST_FOLDER:,} characters; name a shorter one")
        below_kernel = any(f"{folder}/".startswith(f"{top}/") for top in _KERNEL_FOLDERS)
        if folder in _SYSTEM_FOLDERS or below_kernel:
            raise ValueError("a folder of the system; name one that is for the repository alone")
        if folder in _SANDBOX_FOLDERS:
            raise ValueError("where a sandbox keeps files of its own; name another, one below it for example")
        return folder

    @field_validator("user")
    @classmethod
    def _is_user(cls, user: str) -> str:
        if user and not _USER.fullmatch(user):
            raise ValueError(
                'no user; write a name or a number, with a group or without: "agent", "1000:1000"'
            )
        if any(part.isdigit() and int(part) > _HIGHEST_ID for part in user.split(":")):
            raise ValueError(f"higher than any user's or group's number; {_HIGHEST_ID} is the highest")
        return user

    @field_validator("variables")
    @classmethod
    def _are_variables(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a variable; use letters, digits and _ alone")
            if name.startswith("LAB_"):
                raise ValueError(f"{name!r} is kept for the lab's own settings; choose a name without LAB_")
            if "\0" in value:
                raise ValueError(
                    f"the value of {name!r} holds a NUL byte, which no variable can; take it out"
                )
            if len(value.encode("utf-8", "surrogatepass")) > _MOST_OF_A_VARIABLE:
                raise ValueError(
                    f"the value of {name!r} has more than {_MOST_OF_A_VARIABLE:,} bytes; put it into a file"
                )
        return variables

    @field_validator("setup")
    @classmethod
    def _are_commands(cls, commands: tuple[str, ...]) -> tuple[str, ...]:
        for command in commands:
            if not command.strip() or "\0" in command:
                raise ValueError(f"{command!r} is no command; write one for `sh -c` or take it off the list")
        return commands


def _brings_image(info: ValidationInfo) -> bool:
    # One that did not fit is missing, and has its own complaint.
    return any(info.data.get(field, "unfit") for field in ("image", "build"))


class Verification(Frozen):
    """How a patch is graded. Hidden from the agent: its tests enter a sandbox only after the agent has ended.

    `test_files` maps a path inside the repository to its content; they overwrite what the agent left there.
    Test ids are as the runner prints them (`tests/test_x.py::test_y`, `tests.test_x.Case.test_y`).
    `command` is run in the workspace.
    """

    rule: str = "swe-bench"
    runner: TestRunner = "pytest"
    command: tuple[str, ...] = ()
    test_files: dict[str, str] = Field(default_factory=dict)
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()


class TaskSpec(Frozen):
    """One task, whole. `repository` is the folder that holds the snapshot (a plain tree, no `.git`); where
    the repository lies in the image, there is none.

    `plans` are the scripted models' tool-neutral actions: model name -> list of plans, the seed picks one.
    `gold_patch` is a unified diff. `difficulty` and `trait` are words for the list on the first page.
    `origin` is the repository the task was taken from, "owner/name", or "".
    """

    id: str
    title: str
    statement: str
    repository: Path
    difficulty: str = ""
    trait: str = ""
    origin: str = ""
    environment: Environment = Environment()
    verification: Verification = Verification()
    gold_patch: str = ""
    plans: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    repository_digest: str = ""
    cache_globs: tuple[str, ...] = ("**/__pycache__/**", "**/.pytest_cache/**", "**/*.pyc")

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides what the task is; where it lies on disk and plans do not."""
        outside = {"repository", "plans", "difficulty", "trait", "origin", "environment"}
        content = self.model_dump(mode="json", exclude=outside)
        return canonical_sha256(content | {"environment": self.environment.content})

    @property
    def build_folder(self) -> Path | None:
        """The folder with the Dockerfile its image is made from, if it brings one."""
        return self.repository.parent / self.environment.build if self.environment.build else None


class TaskSetSpec(Frozen):
    """A versioned list of tasks, in the order in which they are shown."""

    name: str
    version: str
    title: str = ""
    tasks: tuple[TaskSpec, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over name, version and the digests of the tasks in their order."""
        return canonical_sha256(
            {
                "name": self.name,
                "version": self.version,
                "tasks": [{"id": task.id, "digest": task.digest} for task in self.tasks],
            }
        )

"""Reads task folders and task sets.

A task folder holds `task.toml`, `issue.md` (the statement), `repository/` (the snapshot, unless it lies in
the task's image), `tests/` (the hidden tests, at their paths inside the repository), `gold.patch` and,
optionally, `plans.yaml` and a folder with a Dockerfile. A set folder holds `set.toml` and one such folder a
task.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import ErrorDetails

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import Frozen
from lab.engine.tasks.plans import Plans
from lab.engine.tasks.repositories import is_repository, repository_by_id
from lab.engine.tasks.snapshot import digest_of, pack_repository, repository_files, snapshot_files
from lab.engine.tasks.spec import PRACTICE, Environment, TaskSetSpec, TaskSpec, TestRunner, Verification
from lab.engine.verify.rules import rule_named

__all__ = ["load_task", "load_task_set", "pack_repository", "practice_folder", "repository_files"]

_Text = Annotated[str, Field(min_length=1)]
_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
_T = TypeVar("_T")
# libyaml is ten times as fast, and a lab reads all plans at each start; without it PyYAML has its own.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# A value that does not fit is told up to here.
_TOLD_CHARACTERS = 300


class _VerificationTable(Frozen):
    rule: _Text = "swe-bench"
    runner: TestRunner = "pytest"
    command: Annotated[tuple[_Text, ...], Field(min_length=1)]
    fail_to_pass: Annotated[tuple[_Text, ...], Field(min_length=1)]
    pass_to_pass: tuple[_Text, ...] = ()


class _TaskFile(Frozen):
    id: _Identifier
    title: _Text
    difficulty: str = ""
    trait: str = ""
    repository: str = ""
    environment: Environment = Environment()
    verification: _VerificationTable

    @field_validator("repository")
    @classmethod
    def _is_owner_and_name(cls, repository: str) -> str:
        if repository and not is_repository(repository):
            raise ValueError('no repository; write owner and name, as in "django/django", or remove the key')
        return repository


class _SetFile(Frozen):
    name: _Identifier
    version: _Text
    title: str = ""
    tasks: Annotated[tuple[_Identifier, ...], Field(min_length=1)]


def practice_folder() -> Path:
    """The folder of the task set "practice", which comes with the lab."""
    return Path(__file__).parent / "practice"


def load_task(folder: Path) -> TaskSpec:
    """The task in `folder`.

    A missing `repository/` is no error here, so that the task can still be listed; running it raises.

    Raises:
        InvalidValueError: a file is missing or does not fit; the text names file, field, value and way out.
        InfrastructureError: a folder of it is there and cannot be read.
    """
    file = folder / "task.toml"
    described = _validate(TypeAdapter(_TaskFile), _toml(file), file)
    table = described.verification
    _require_gradable(table, file)
    repository = folder / "repository"
    environment = _with_build(described.environment, file)
    if environment.repository_in_image and repository.exists():
        raise InvalidValueError(
            f"{file}: environment.repository_in_image",
            True,
            f"contradicts {str(repository)!r}; remove the folder, or the key so that the folder is unpacked",
        )
    return TaskSpec(
        id=described.id,
        title=described.title,
        statement=_required_text(folder / "issue.md", "the task's statement"),
        repository=repository,
        difficulty=described.difficulty,
        trait=described.trait,
        origin=described.repository or repository_by_id(described.id),
        environment=environment,
        verification=Verification(
            rule=table.rule,
            runner=table.runner,
            command=table.command,
            test_files=_hidden_tests(folder / "tests"),
            fail_to_pass=table.fail_to_pass,
            pass_to_pass=table.pass_to_pass,
        ),
        gold_patch=_required_text(folder / "gold.patch", "the patch that resolves the task"),
        plans=_plans(folder / "plans.yaml"),
        repository_digest=digest_of(snapshot_files(repository)) if repository.is_dir() else "",
    )


def _require_gradable(table: _VerificationTable, file: Path) -> None:
    """Raises: InvalidValueError: a verification that no patch could pass."""
    both = sorted(set(table.fail_to_pass) & set(table.pass_to_pass))
    if both:
        raise InvalidValueError(
            f"{file}: verification.pass_to_pass", both[0], "is in fail_to_pass too; keep it in one of the two"
        )
    for word in table.command:
        if "\0" in word:
            raise InvalidValueError(
                f"{file}: verification.command", word, "holds a NUL byte, which no command can; take it out"
            )
    try:
        rule_named(table.rule)
    except InvalidValueError as error:
        raise InvalidValueError(f"{file}: {error.field}", error.value, error.reason) from None


def load_task_set(folder: Path) -> TaskSetSpec:
    """The task set in `folder`, its tasks in the order `set.toml` lists their folders.

    Raises:
        InvalidValueError: as `load_task`, or two tasks share an id.
    """
    file = folder / "set.toml"
    described = _validate(TypeAdapter(_SetFile), _toml(file), file)
    tasks: dict[str, TaskSpec] = {}
    for index, name in enumerate(described.tasks):
        if not (folder / name).is_dir():
            raise InvalidValueError(
                f"{file}: tasks[{index}]",
                name,
                f"has no folder below {folder}; add it or take it off the list",
            )
        task = load_task(folder / name)
        if task.id in tasks:
            raise InvalidValueError(
                f"{file}: tasks[{index}]", name, f"has the id {task.id!r} of an earlier task; give it its own"
            )
        tasks[task.id] = task
    return TaskSetSpec(
        name=described.name, version=described.version, title=described.title, tasks=tuple(tasks.values())
    )


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            f"{file}: byte {error.start}",
            error.object[error.start : error.end],
            "is no UTF-8; save the file as UTF-8",
        ) from error
    except OSError as error:
        raise InvalidValueError(
            "file", str(file), f"cannot be read ({error.strerror}); add it or mend its permissions"
        ) from error


def _required_text(file: Path, what: str) -> str:
    text = _read_text(file)
    if not text.strip():
        raise InvalidValueError(f"{file}: content", text, f"is empty; write {what} into it")
    return text


def _toml(file: Path) -> dict[str, Any]:
    text = _read_text(file)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidValueError("file", str(file), f"is no valid TOML: {error}; mend that line") from error
    except RecursionError:
        raise InvalidValueError(
            "file", str(file), "is no valid TOML: it is nested too deep; mend it"
        ) from None


def _with_build(environment: Environment, file: Path) -> Environment:
    """The environment with the digest of its build folder, which must hold a Dockerfile.

    Raises: InvalidValueError: there is no such folder, or nobody prepares such an environment.
    """
    if environment.name not in ("", PRACTICE):
        raise InvalidValueError(
            f"{file}: environment.name",
            environment.name,
            'is not prepared by the lab; write "practice", or bring an image',
        )
    if environment.build_digest:
        raise InvalidValueError(
            f"{file}: environment.build_digest",
            environment.build_digest,
            "is worked out by the lab; remove the key",
        )
    if not environment.build:
        return environment
    folder = file.parent / environment.build
    if not (folder / "Dockerfile").is_file():
        what = "holds no Dockerfile" if folder.is_dir() else "is no folder"
        raise InvalidValueError(
            f"{file}: environment.build",
            environment.build,
            f"{what}: put one at {str(folder / 'Dockerfile')!r}, or name an image instead",
        )
    if not folder.resolve().is_relative_to(file.parent.resolve()):
        raise InvalidValueError(
            f"{file}: environment.build",
            environment.build,
            "leads out of the task's folder; put the folder itself there instead of a link",
        )
    return environment.model_copy(update={"build_digest": digest_of(snapshot_files(folder))})


def _hidden_tests(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise InvalidValueError("folder", str(folder), "is missing; put the hidden tests there")
    files = [folder / file.path for file in snapshot_files(folder)]
    if not files:
        raise InvalidValueError("folder", str(folder), "holds no file; put the hidden tests there")
    return {file.relative_to(folder).as_posix(): _read_text(file) for file in files}


def _plans(file: Path) -> dict[str, list[dict[str, Any]]]:
    if not file.exists():
        return {}
    text = _read_text(file)
    try:
        raw = yaml.load(text, Loader=_LOADER)  # noqa: S506 # both are safe ones
    except yaml.YAMLError as error:
        raise InvalidValueError("file", str(file), f"is no valid YAML: {error}; mend that place") from error
    _validate(TypeAdapter(Plans), raw, file)
    plans: dict[str, list[dict[str, Any]]] = raw
    return plans


def _validate(shape: TypeAdapter[_T], raw: object, file: Path) -> _T:
    try:
        return shape.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        # A missing key's input is the whole table around it: too much to show.
        value = None if first["type"] == "missing" else first["input"]
        if len(repr(value)) > _TOLD_CHARACTERS:
            value = f"{str(value)[:_TOLD_CHARACTERS]}…"
        raise InvalidValueError(f"{file}: {_field(first)}", value, _way_out(first)) from error


def _field(error: ErrorDetails) -> str:
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "content"


def _way_out(error: ErrorDetails) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "belongs to a key that is not known here; remove the key or mend its spelling"
        case "missing":
            return "is given, but the key is required; add it"
        case "tuple_type" | "list_type":
            return 'does not fit: should be a list, as in ["one", "two"]'
        case "dict_type":
            return 'does not fit: should be a table, as in { NAME = "value" }'
        case "model_type":
            return f"does not fit: should be one table, as in [{error['loc'][-1]}] in front of its keys"
        case _:
            message = error["msg"].removeprefix("Value error, ")
            return f"does not fit: {message[:1].lower()}{message[1:]}"

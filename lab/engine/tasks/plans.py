"""The shape of a scripted model's plans: tool-neutral steps that lie beside a task.

A plan is `{expected?: resolved|unresolved, steps: [step, …]}`. A step has optional `reasoning` and `say`
texts and exactly one action. Paths are relative to the repository. The models here only check; what is
handed on is the raw structure.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Search(_Strict):
    """Either a glob over file names, or a text to grep for below `path`."""

    glob: Name | None = None
    pattern: Name | None = None
    path: Name | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.glob is None) == (self.pattern is None):
            raise ValueError("needs exactly one of glob and pattern")
        return self


class Read(_Strict):
    """`offset` is the first line, counted from 1; `limit` a number of lines."""

    path: Name
    offset: Annotated[int, Field(ge=1)] | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


class Write(_Strict):
    path: Name
    content: str


class Edit(_Strict):
    path: Name
    old: Name
    new: str


class Run(_Strict):
    """`timeout` is in seconds."""

    command: Name
    timeout: Annotated[float, Field(gt=0)] | Annotated[int, Field(gt=0)] | None = None


class Malformed(_Strict):
    """A call whose arguments are `raw`, which need not be JSON."""

    tool: Literal["search", "read", "write", "edit", "run"]
    raw: str


class Finish(_Strict):
    message: str


class Step(_Strict):
    """One model turn; `parallel` holds several actions that share it."""

    reasoning: str | None = None
    say: str | None = None
    search: Search | None = None
    read: Read | None = None
    write: Write | None = None
    edit: Edit | None = None
    run: Run | None = None
    parallel: Annotated[list[Step], Field(min_length=1)] | None = None
    malformed: Malformed | None = None
    finish: Finish | None = None

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        given = [name for name in ACTIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one action of {', '.join(ACTIONS)}")
        return self


ACTIONS = ("search", "read", "write", "edit", "run", "parallel", "malformed", "finish")


class Plan(_Strict):
    """`expected` is the verdict this plan earns on its task."""

    expected: Literal["resolved", "unresolved"] | None = None
    steps: Annotated[list[Step], Field(min_length=1)]


Plans = dict[Name, Annotated[list[Plan], Field(min_length=1)]]

"""What a person does to a label in the making, one operation after another.

Each is plain data that says what to `do`, and gives a new label or a refusal that names field and value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.labels.label import (
    ErrorEvent,
    Evidence,
    Label,
    Owner,
    Phase,
    RootCause,
    Severity,
    StepRef,
    VerifiedByReplay,
    Words,
)

EventField = Literal[
    "category", "severity", "recovered", "caused_by", "ideal_action", "note", "category_reason", "agent"
]
MOST_EVENTS = 200
MOST_EVIDENCE = 50


class _Operation(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SetOwner(_Operation):
    do: Literal["set_owner"]
    value: Owner | None


class SetPhase(_Operation):
    do: Literal["set_phase"]
    value: Phase | None


class SetSure(_Operation):
    do: Literal["set_sure"]
    value: bool | None


class SetNote(_Operation):
    do: Literal["set_note"]
    value: Words


class SetVerifiedByReplay(_Operation):
    do: Literal["set_verified_by_replay"]
    value: VerifiedByReplay


class SetAlternatives(_Operation):
    do: Literal["set_alternatives"]
    value: tuple[StepRef, ...]


class AddEvent(_Operation):
    do: Literal["add_event"]
    step: StepRef


class RemoveEvent(_Operation):
    do: Literal["remove_event"]
    key: int


class MoveEvent(_Operation):
    """The event is of another step: what was quoted stays, wherever it was said."""

    do: Literal["move_event"]
    key: int
    step: StepRef


class ChangeEvent(_Operation):
    """One field of an event; `value` is checked as that field is."""

    do: Literal["change_event"]
    key: int
    field: EventField
    value: str | bool | int | None


class MarkEvidence(_Operation):
    """A quote for an event; without `key` for the newest one of its step, which is made if there is none."""

    do: Literal["mark_evidence"]
    step: StepRef
    evidence: Evidence
    key: int | None = None


class RemoveEvidence(_Operation):
    do: Literal["remove_evidence"]
    key: int
    index: int


class PointRoot(_Operation):
    """The root cause is the event `key`, or the newest one of `step`, which is made if there is none.

    Neither: there is no pointer any more.
    """

    do: Literal["point_root"]
    key: int | None = None
    step: StepRef | None = None


class SetRootReason(_Operation):
    do: Literal["set_root_reason"]
    value: Words


Operation = Annotated[
    SetOwner
    | SetPhase
    | SetSure
    | SetNote
    | SetVerifiedByReplay
    | SetAlternatives
    | AddEvent
    | RemoveEvent
    | MoveEvent
    | ChangeEvent
    | MarkEvidence
    | RemoveEvidence
    | PointRoot
    | SetRootReason,
    Field(discriminator="do"),
]
_OPERATION: TypeAdapter[Any] = TypeAdapter(Operation)


class Frame(BaseModel):
    """What a label may speak of: the run's steps by attempt, and the codes of the guideline's vocabulary."""

    model_config = ConfigDict(frozen=True)

    steps: Mapping[int, int]
    codes: frozenset[str]


def operation_of(data: Mapping[str, Any]) -> Any:
    """The operation that plain data names.

    Raises:
        InvalidValueError: it names none, or a value in it is none.
    """
    try:
        return _OPERATION.validate_python(dict(data))
    except ValidationError as invalid:
        first = invalid.errors()[0]
        place = [str(part) for part in first["loc"] if part != data.get("do")]
        field = ".".join(place) or "do"
        raise InvalidValueError(field, first.get("input"), f"cannot be used: {first['msg']}") from None


def apply(label: Label, operation: Any, frame: Frame) -> Label:
    """The label after the operation (see `operation_of`).

    Raises:
        InvalidValueError: it speaks of a step, an event or a code that is not there; names field and value.
    """
    return _HANDLERS[operation.do](label, operation, frame)


def _set(name: str) -> Callable[[Label, Any, Frame], Label]:
    return lambda label, operation, frame: label.model_copy(update={name: operation.value})


def check_step(step: StepRef, frame: Frame) -> None:
    """Raises: InvalidValueError, when the run has no such step."""
    if step.attempt not in frame.steps:
        raise InvalidValueError("attempt", step.attempt, f"is none of this run's {len(frame.steps)}")
    last = frame.steps[step.attempt]
    if step.step > last:
        of = f" in attempt {step.attempt}" if len(frame.steps) > 1 else ""
        has = f"has {last} step{'' if last == 1 else 's'}{of}"
        raise InvalidValueError(
            "step", step.step, f"does not exist: the run {has}; choose one from 1 to {last}"
        )


def _event(label: Label, key: int, field: str = "event") -> ErrorEvent:
    event = label.event(key)
    if event is None:
        known = ", ".join(f"E{one.key}" for one in label.events) or "none yet"
        raise InvalidValueError(field, f"E{key}", f"is not an error event of this label; there are: {known}")
    return event


def _with_event(label: Label, changed: ErrorEvent) -> Label:
    events = tuple(changed if event.key == changed.key else event for event in label.events)
    return label.model_copy(update={"events": events})


def _added(label: Label, step: StepRef, frame: Frame) -> tuple[Label, ErrorEvent]:
    check_step(step, frame)
    if len(label.events) >= MOST_EVENTS:
        raise InvalidValueError("events", len(label.events), f"are as many as a label holds ({MOST_EVENTS})")
    event = ErrorEvent(key=label.next_key, **step.model_dump(include={"step", "attempt", "seq"}))
    update = {"events": (*label.events, event), "next_key": label.next_key + 1}
    return label.model_copy(update=update), event


def _newest_at(label: Label, step: StepRef, frame: Frame) -> tuple[Label, ErrorEvent]:
    """The newest event of a step, made if there is none."""
    same = [one for one in label.events if (one.attempt, one.step) == (step.attempt, step.step)]
    return (label, same[-1]) if same else _added(label, step, frame)


def _add_event(label: Label, operation: AddEvent, frame: Frame) -> Label:
    return _added(label, operation.step, frame)[0]


def _remove_event(label: Label, operation: RemoveEvent, frame: Frame) -> Label:
    _event(label, operation.key)
    kept = [event for event in label.events if event.key != operation.key]
    events = tuple(
        event.model_copy(update={"caused_by": None}) if event.caused_by == operation.key else event
        for event in kept
    )
    root = label.root_cause
    root = None if root is not None and root.event == operation.key else root
    return label.model_copy(update={"events": events, "root_cause": root})


def _move_event(label: Label, operation: MoveEvent, frame: Frame) -> Label:
    check_step(operation.step, frame)
    place = operation.step.model_dump(include={"step", "attempt", "seq"})
    return _with_event(label, _event(label, operation.key).model_copy(update=place))


def _change_event(label: Label, operation: ChangeEvent, frame: Frame) -> Label:
    event = _event(label, operation.key)
    value = operation.value
    if operation.field == "category" and value not in {"", *frame.codes}:
        raise InvalidValueError("category", value, "is not a code of this label's taxonomy; choose one of it")
    if operation.field == "caused_by" and value is not None:
        _check_cause(label, event, value)
    if operation.field == "severity":
        value = value or None
    try:
        changed = ErrorEvent.model_validate(event.model_dump() | {operation.field: value})
    except ValidationError as invalid:
        allowed = ", ".join(Severity) if operation.field == "severity" else invalid.errors()[0]["msg"]
        raise InvalidValueError(operation.field, value, f"cannot be used here: {allowed}") from None
    return _with_event(label, changed)


def _check_cause(label: Label, event: ErrorEvent, cause: Any) -> None:
    """An event is not its own cause, not even over others."""
    seen, at = {event.key}, cause
    while at is not None:
        if at in seen:
            raise InvalidValueError("caused_by", f"E{cause}", f"was itself caused by E{event.key}")
        seen.add(at)
        at = _event(label, at, "caused_by").caused_by


def _mark_evidence(label: Label, operation: MarkEvidence, frame: Frame) -> Label:
    if operation.key is not None:
        event = _event(label, operation.key)
    else:
        label, event = _newest_at(label, operation.step, frame)
    if operation.evidence in event.evidence:
        return label
    if len(event.evidence) >= MOST_EVIDENCE:
        raise InvalidValueError(
            "evidence", f"E{event.key}", f"holds {MOST_EVIDENCE} quotes, the most there are"
        )
    return _with_event(label, event.model_copy(update={"evidence": (*event.evidence, operation.evidence)}))


def _remove_evidence(label: Label, operation: RemoveEvidence, frame: Frame) -> Label:
    event = _event(label, operation.key)
    if not 0 <= operation.index < len(event.evidence):
        raise InvalidValueError("evidence", operation.index + 1, f"is no quote of E{event.key}")
    kept = event.evidence[: operation.index] + event.evidence[operation.index + 1 :]
    return _with_event(label, event.model_copy(update={"evidence": kept}))


def _point_root(label: Label, operation: PointRoot, frame: Frame) -> Label:
    reason = label.root_cause.reason if label.root_cause else ""
    if operation.key is not None:
        root = RootCause(event=_event(label, operation.key, "root_cause").key, reason=reason)
        return label.model_copy(update={"root_cause": root})
    if operation.step is None:
        return label.model_copy(update={"root_cause": None})
    label, event = _newest_at(label, operation.step, frame)
    return label.model_copy(update={"root_cause": RootCause(event=event.key, reason=reason)})


def _set_root_reason(label: Label, operation: SetRootReason, frame: Frame) -> Label:
    if label.root_cause is None:
        raise InvalidValueError(
            "root_cause", operation.value, "is a reason without an event; point at an event first (r)"
        )
    root = label.root_cause.model_copy(update={"reason": operation.value})
    return label.model_copy(update={"root_cause": root})


def _set_alternatives(label: Label, operation: SetAlternatives, frame: Frame) -> Label:
    for step in operation.value:
        check_step(step, frame)
    once = tuple(dict.fromkeys(operation.value))
    return label.model_copy(update={"alternatives": once})


_HANDLERS: dict[str, Callable[[Label, Any, Frame], Label]] = {
    "set_owner": _set("owner"),
    "set_phase": _set("phase"),
    "set_sure": _set("sure"),
    "set_note": _set("note"),
    "set_verified_by_replay": _set("verified_by_replay"),
    "set_alternatives": _set_alternatives,
    "add_event": _add_event,
    "remove_event": _remove_event,
    "move_event": _move_event,
    "change_event": _change_event,
    "mark_evidence": _mark_evidence,
    "remove_evidence": _remove_evidence,
    "point_root": _point_root,
    "set_root_reason": _set_root_reason,
}

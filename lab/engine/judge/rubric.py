"""What a judge is asked, as data: instructions, and a JSON schema for each field of its answer."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.labels.label import Owner, Phase, Severity
from lab.engine.labels.taxonomy import Taxonomy
from lab.engine.llm.base import JSONObject, canonical_json

LABEL = "label"
"""The name of rubrics that are made of a guideline: their answer is a judgement."""
MOST_EVENTS = 12


class Rubric(BaseModel):
    """Questions about a whole run.

    `fields`: name -> JSON schema. `collected` names the one of them, an array of objects, that each piece of
    a long run adds to; "" for none. In its objects a `step` must be a step of the piece and a `quote` words
    of that step. The other fields are answered once, at the end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=100)]
    version: Annotated[int, Field(ge=1)] = 1
    instructions: Annotated[str, Field(min_length=1, max_length=50_000)]
    fields: dict[str, JSONObject]
    collected: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def piece_schema(self) -> JSONObject:
        """What is answered about one piece of the run: the collected things, and notes for the end."""
        fields: JSONObject = {"notes": {"type": "string"}}
        if self.collected:
            fields[self.collected] = self.fields[self.collected]
        return _object(fields)

    def final_schema(self) -> JSONObject:
        """What is answered once, when every piece was read."""
        return _object({name: field for name, field in self.fields.items() if name != self.collected})


def _object(fields: JSONObject) -> JSONObject:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def from_yaml(text: str) -> Rubric:
    """A rubric out of a file.

    Raises:
        InvalidValueError: no YAML, a field is missing or wrong, or a schema is none.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidValueError("rubric", text[:40], f"is no YAML ({error})") from None
    if not isinstance(content, dict):
        raise InvalidValueError("rubric", text[:40], "must be a mapping with name, instructions and fields")
    try:
        rubric = Rubric(**content)
    except (ValidationError, TypeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        place = ".".join(map(str, first["loc"])) or "rubric"
        raise InvalidValueError(f"rubric {place}", content.get(place, ""), f"({first['msg']})") from None
    _check(rubric)
    return rubric


def _check(rubric: Rubric) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not rubric.fields:
        raise InvalidValueError("rubric fields", "", "is empty; name at least one question with its schema")
    for name, schema in rubric.fields.items():
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise InvalidValueError(
                f"rubric fields.{name}", schema, f"is no schema: {error.message}"
            ) from None
    if not rubric.collected:
        return
    collected = rubric.fields.get(rubric.collected)
    if collected is None:
        known = ", ".join(rubric.fields)
        raise InvalidValueError("rubric collected", rubric.collected, f"is none of its fields: {known}")
    if collected.get("type") != "array" or not isinstance(collected.get("items"), dict):
        raise InvalidValueError(
            "rubric collected", rubric.collected, "must be an array whose items are objects"
        )
    if len(rubric.fields) == 1:
        raise InvalidValueError(
            "rubric fields", rubric.collected, "stands alone; ask for at least one field at the end"
        )


def of_guideline(*, taxonomy: Taxonomy, root_cause: str, instructions: str, version: int) -> Rubric:
    """The rubric of a guideline version: what people are asked, as questions to a model.

    The root cause is asked for as the number of one of the events that were found, 0 for none.
    """
    codes = [code for code in taxonomy.codes if not code.retired]
    described = "\n".join(_described(code.id, code.definition, code.not_when) for code in codes)
    words = (
        "You read the log of a coding agent that failed at its task, and say where and why it went wrong.\n"
        f"The root cause is defined so: {root_cause}\n"
        f"{instructions}\n"
        "Whose fault is it? agent: the agent's own. task_defect: the task is wrong or says too little. "
        "environment: its machine. harness_limit: a limit stopped good work. grader: the tests are wrong. "
        "inconclusive: nobody can tell.\n"
        f"Kinds of error:\n{described}"
    )
    return Rubric(
        name=LABEL,
        version=version,
        instructions=words,
        collected="events",
        fields={
            "events": {
                "type": "array",
                "maxItems": MOST_EVENTS,
                "items": _event([code.id for code in codes]),
            },
            "owner": _choice(Owner),
            "phase": _choice(Phase),
            "root_event": {"type": "integer", "minimum": 0},
            "root_reason": {"type": "string"},
            "sure": {"type": "boolean"},
            "note": {"type": "string"},
        },
    )


def _described(code: str, definition: str, not_when: str) -> str:
    return f"- {code}: {definition}" + (f" Not when: {not_when}" if not_when else "")


def _choice(names: Any) -> JSONObject:
    return {"type": "string", "enum": [name.value for name in names]}


def _event(codes: list[str]) -> JSONObject:
    return _object(
        {
            "step": {"type": "integer", "minimum": 1},
            "quote": {"type": "string"},
            "note": {"type": "string"},
            "category": {"type": "string", "enum": codes},
            "severity": _choice(Severity),
            "recovered": {"type": "boolean"},
        }
    )

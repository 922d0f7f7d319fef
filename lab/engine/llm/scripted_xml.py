"""For scripted models whose calls stand in the text: tools learnt from a prompt, and calls written so."""

from __future__ import annotations

import json
import re

from lab.engine.llm.base import JSONObject

_FUNCTION = re.compile(r"^-+ BEGIN FUNCTION #\d+: (\S+) -+$\n(.*?)^-+ END FUNCTION #\d+ -+$", re.M | re.S)
_PARAMETER = re.compile(r"^ *\(\d+\) (\w+) \(([\w ]+), (required|optional)\):")
_CHOICES = re.compile(r"^ *Allowed values: \[(.*)\] *$")
_CHOICE = re.compile(r"[\w-]+")


def documented_tools(prompt: str) -> dict[str, JSONObject]:
    """The functions that a prompt documents, in its order: name -> JSON Schema of the parameters."""
    return {name: _schema(text) for name, text in _FUNCTION.findall(prompt)}


def _schema(text: str) -> JSONObject:
    properties: dict[str, JSONObject] = {}
    required: list[str] = []
    last: JSONObject = {}
    for line in text.splitlines():
        if found := _PARAMETER.match(line):
            name, kind, needed = found.groups()
            properties[name] = last = {"type": kind}
            if needed == "required":
                required.append(name)
        elif (choices := _CHOICES.match(line)) and last:
            last["enum"] = _CHOICE.findall(choices.group(1))
    return {"type": "object", "properties": properties, "required": required}


def survives(raw_arguments: str) -> bool:
    """Whether values come through a protocol that takes white space away around each of them."""
    return all(
        value == value.strip() for value in json.loads(raw_arguments).values() if isinstance(value, str)
    )


def written(name: str, raw_arguments: str) -> str:
    """The call as text. Arguments that are no JSON object make a block that never closes."""
    try:
        arguments = json.loads(raw_arguments)
    except ValueError:
        return f"<function={name}>\n{raw_arguments}"
    rows = [f"<parameter={key}>{_text(value)}</parameter>" for key, value in arguments.items()]
    return "\n".join([f"<function={name}>", *rows, "</function>"])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)

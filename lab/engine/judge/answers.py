"""A judge's reply as an object that has the form it was asked for, or why it has not."""

from __future__ import annotations

import copy
import json
import re

from lab.engine.llm.base import JSONObject

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)
_SHOWN = 120


class UnusableAnswerError(ValueError):
    """A reply cannot be used at all; the text says why, to people and to the model."""


def parsed(reply: str, *, schema: JSONObject, collected: str = "", cut: bool = False) -> JSONObject:
    """The object that a reply holds, alone, in a fence or among words.

    Its form is checked as a whole; in the objects of `collected`, values outside of a list or a range pass:
    those are refused one by one later (`reading`). `cut`: the reply ended at its limit of tokens.

    Raises:
        UnusableAnswerError: no object is in it, or it has another form.
    """
    found = _object_in(_THOUGHTS.sub("", reply))
    if found is None:
        why = "the answer was cut at its limit of tokens" if cut else "there is no JSON object in the answer"
        raise UnusableAnswerError(f"{why}; answer with the object alone, in few words")
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    wrong = best_match(Draft202012Validator(tolerant(schema, collected)).iter_errors(found))
    if wrong is not None and cut:
        raise UnusableAnswerError("the answer was cut at its limit of tokens; answer in fewer words")
    if wrong is not None:
        place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in wrong.absolute_path)
        raise UnusableAnswerError(f"{place.lstrip('.') or 'the object'}: {wrong.message[:_SHOWN]}")
    return found


def tolerant(schema: JSONObject, collected: str) -> JSONObject:
    """The schema without lists, ranges and required parts inside of the collected objects."""
    if not collected:
        return schema
    loose = copy.deepcopy(schema)
    items = loose["properties"].get(collected, {}).get("items")
    if not isinstance(items, dict):
        return loose
    items.pop("additionalProperties", None)
    if "step" in items.get("required", ()):
        items["required"] = ["step"]
    else:
        items.pop("required", None)
    for field in items.get("properties", {}).values():
        for word in ("enum", "minimum", "maximum", "maxLength", "type"):
            field.pop(word, None)
    loose["properties"][collected].pop("maxItems", None)
    return loose


def _object_in(text: str) -> JSONObject | None:
    fences = [match.group(1) for match in _FENCE.finditer(text)]
    for candidate in (text, *reversed(fences)):
        if (whole := _loaded(candidate)) is not None:
            return whole
    if text.lstrip().startswith("{"):
        # It was cut or is damaged: an object inside of it is not the answer.
        return None
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start != -1:
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        return found if isinstance(found, dict) else None
    return None


def _loaded(text: str) -> JSONObject | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None

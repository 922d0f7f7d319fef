"""Conversations in the shape of chat completions: one a line as used for training, and logs of requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe, parsed
from lab.engine.formats.chat_conversation import ChatConversation
from lab.engine.formats.chat_logs import Log, is_log, joined, log_of
from lab.engine.formats.json_values import Value, values_in
from lab.engine.formats.leftovers import collapsed, unread
from lab.engine.formats.reading import items, mapping, number, plain_text, text
from lab.engine.formats.trajectory import (
    Found,
    Grading,
    HarnessUsed,
    ModelUsed,
    Note,
    Origin,
    Problem,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PATCHES = ("model_patch", "output_patch", "generated_patch", "git_patch")
_LINE: dict[str, type | tuple[type, ...]] = {
    "messages": (list, str),
    "trajectory": (list, str),
    "exit_status": str,
    **dict.fromkeys(_PATCHES, str),
    "tools": list,
    "model": str,
    "instance_id": str,
    "exit_reason": str,
    "outcome": str,
    "reward": (int, float),
    "rewards": dict,
    "resolved": bool,
    "reasoning": list,
    "loss_mask": list,
}


class ChatCompletions:
    name = "chat-completions"
    title = "Chat completions (JSONL, request logs)"

    def recognises(self, probe: Probe) -> bool:
        return any(is_log(one) or _is_conversation(one) for one in (probe.root, *probe.objects))

    def grouping(self, document: Document, probe: Probe) -> str:
        """The logs of one folder are read together: a conversation has one for each request."""
        if probe.kind == "json" and is_log(probe.root):
            return f"{document.folder}/completion logs"
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        logs: list[Log] = []
        for document in documents:
            try:
                yield from _of_document(document, logs)
            except FormatError as error:
                if len(documents) == 1:
                    raise
                yield Problem(file=document.path, place="", message=str(error))
        yield from joined(logs)


def _of_document(document: Document, logs: list[Log]) -> Iterator[Found]:
    """The conversations of a document; its logs are added to `logs`."""
    for value in values_in(document):
        problem = value.problem
        try:
            if not problem and is_log(value.value):
                logs.append(log_of(document.path, value))
                continue
            if not problem and _is_conversation(value.value):
                yield _conversation(document, value)
                continue
        except RecursionError:
            problem = "is nested too deeply"
        otherwise = "is neither a conversation nor a request with its response"
        yield Problem(file=document.path, place=value.place, message=problem or otherwise)


def _messages(root: JSONObject) -> list[Any]:
    """The messages; some data sets call them a trajectory, some hold them as JSON text."""
    messages = root.get("messages", root.get("trajectory"))
    if isinstance(messages, str):
        try:
            messages = parsed(messages)
        except (ValueError, RecursionError):
            return []
    return items(messages)


def _is_conversation(value: Any) -> bool:
    root = mapping(value)
    if "trajectory_format" in root or "schema_version" in root or "info" in root:
        return False
    messages = _messages(root)
    return bool(messages) and all(text(mapping(one).get("role")) in _ROLES for one in messages[:10])


def _conversation(document: Document, value: Value) -> Trajectory:
    root: JSONObject = value.value
    messages = _messages(root)
    conversation = ChatConversation()
    notes: list[Note] = []
    mask, thoughts = items(root.get("loss_mask")), items(root.get("reasoning"))
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            notes.append(Note(kind="lost", field=f"messages.{place}", detail="is no object"))
        elif message.get("role") != "assistant":
            conversation.take(message)
        else:
            reasoning = text(thoughts[place]) if len(thoughts) == len(messages) else ""
            copied = len(mask) == len(messages) and mask[place] in (0, False)
            conversation.answer(message, Turn(message={}, reasoning=reasoning, copied=copied))
            if copied:
                detail = "an answer that is not to be learned from was copied"
                notes.append(Note(kind="guessed", field=f"loss_mask.{place}", detail=detail))
    notes += conversation.notes
    statement = next((one for one in conversation.opening if one.get("role") == "user"), {})
    if statement:
        notes.append(Note(kind="guessed", field="statement", detail="the first message of the user"))
    notes.append(
        Note(kind="missing", field="usage", detail="tokens, cost and times are not part of the format")
    )
    run = mapping(root.get("run"))
    return Trajectory(
        origin=Origin(format="chat-completions", file=document.path, place=value.place, sha256=value.sha256),
        harness=HarnessUsed(name=text(mapping(run.get("harness")).get("name"))),
        model=ModelUsed(name=text(root.get("model")) or text(mapping(run.get("model")).get("name"))),
        instance_id=text(root.get("instance_id")),
        statement=plain_text(statement.get("content")),
        opening=tuple(conversation.opening),
        tools=tuple(one for one in items(root.get("tools")) if isinstance(one, dict)),
        items=tuple(conversation.items),
        exit_reason=_exit_reason(root, notes),
        native_reason=_native_reason(root),
        final_message=conversation.final_message(),
        patch=next((root[name] for name in _PATCHES if isinstance(root.get(name), str)), None),
        gradings=_gradings(root, notes),
        notes=collapsed(notes),
        kept=unread(root, _LINE) | _odd(messages),
    )


def _odd(messages: list[Any]) -> JSONObject:
    found = {str(place): one for place, one in enumerate(messages) if not isinstance(one, dict)}
    return {"messages": found} if found else {}


def _native_reason(root: JSONObject) -> str:
    return text(root.get("exit_reason")) or text(root.get("exit_status"))


def _exit_reason(root: JSONObject, notes: list[Note]) -> ExitReason | None:
    native = _native_reason(root)
    if not native:
        return None
    try:
        return ExitReason(native)
    except ValueError:
        field = "exit_reason" if "exit_reason" in root else "exit_status"
        notes.append(Note(kind="lost", field=field, detail=f"{native!r} is no reason of the lab's"))
        return None


def _gradings(root: JSONObject, notes: list[Note]) -> tuple[Grading, ...]:
    """A verdict as an outcome, as `resolved`, or as a reward, of which 1 and more is a solved task."""
    reward = number(root.get("reward"))
    rewards = {
        name: found
        for name, one in mapping(root.get("rewards")).items()
        if (found := number(one)) is not None
    }
    if reward is not None:
        rewards.setdefault("reward", reward)
    native = text(root.get("outcome"))
    if native in set(Outcome):
        return (Grading(rule="outcome", outcome=Outcome(native), rewards=rewards),)
    if isinstance(root.get("resolved"), bool):
        outcome = Outcome.RESOLVED if root["resolved"] else Outcome.UNRESOLVED
        return (Grading(rule="resolved", outcome=outcome, rewards=rewards),)
    if reward is None:
        return ()
    notes.append(Note(kind="guessed", field="reward", detail="1 and more is resolved"))
    outcome = Outcome.RESOLVED if reward >= 1 else Outcome.UNRESOLVED
    return (Grading(rule="reward", outcome=outcome, rewards=rewards),)

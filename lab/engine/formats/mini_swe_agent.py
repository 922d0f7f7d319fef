"""mini-swe-agent's trajectories: lists of messages, `mini-swe-agent-1` and `mini-swe-agent-1.1`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe, load_json
from lab.engine.formats.leftovers import unread
from lab.engine.formats.mini_swe_agent_config import PROGRAM, Configuration, without_keys
from lab.engine.formats.mini_swe_agent_endings import LIMIT, REQUEST_ERRORS, exit_reason
from lab.engine.formats.mini_swe_agent_messages import Conversation, Wording, is_opening, is_reply
from lab.engine.formats.mini_swe_agent_replies import chat_message
from lab.engine.formats.reading import count, dollars, mapping, plain_text, text, without
from lab.engine.formats.trajectory import (
    FailedRequest,
    Found,
    NoteKind,
    Origin,
    Problem,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.harnesses.mini import MARKER
from lab.engine.llm.base import JSONObject

_FORMAT = re.compile(rf"{PROGRAM}-[\d.]{{1,20}}")
_FORMATS_BEFORE_2 = (f"{PROGRAM}-list", PROGRAM, f"{PROGRAM}-1")
_MARKERS = (MARKER, "MINI_SWE_AGENT_FINAL_OUTPUT")
_TAGS = ("mswea_bash_command", "bash")
_TAG_BEFORE_2 = "bash"
# What stands around the task in the prompt of the first files, which do not hold their templates.
_OLD_TEMPLATE = "Please solve this issue: {{task}}\n\nYou can execute bash commands"
_TASK = re.compile(r"\{\{-?\s*task\s*-?\}\}")
_TAGGED = re.compile(r"```(?P<fence>[A-Za-z][\w.-]*)|<(?P<element>[A-Za-z][\w.-]*)>")
_INFO = {
    **dict.fromkeys(("config", "model_stats"), dict),
    **dict.fromkeys(("mini_version", "exit_status", "submission", "exception_str"), str),
}


class MiniSweAgent:
    """Reads one run from one file."""

    name = PROGRAM
    title = "mini-swe-agent: .traj.json of versions 1 and 2, lists of messages"

    def recognises(self, probe: Probe) -> bool:
        if isinstance(probe.value, list):
            return _is_old_list(probe.value)
        root = probe.root
        if text(root.get("trajectory_format")).startswith(PROGRAM):
            return True
        info = mapping(root.get("info"))
        # The first files name neither format nor version.
        known = "mini_version" in info or {"exit_status", "submission", "model_stats"} <= info.keys()
        return isinstance(root.get("messages"), list) and known

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON, or no messages in it.
        """
        for document in documents:
            value = load_json(document)
            root = {"messages": value} if isinstance(value, list) else mapping(value)
            if not isinstance(root.get("messages"), list):
                raise FormatError(f"{document.path} has no list `messages`, which holds the conversation")
            try:
                found = list(_Reading(document, root).found())
            except RecursionError:
                raise FormatError(f"{document.path} is nested too deeply to be read") from None
            yield from found


def _is_old_list(value: list[Any]) -> bool:
    """A bare list may be anybody's: the words by which this program's agent submits are in its prompt."""
    messages = [mapping(message) for message in value]
    if not messages or not all(isinstance(message.get("role"), str) for message in messages):
        return False
    prompt = "\n".join(plain_text(message.get("content")) for message in messages[:2])
    return any(marker in prompt for marker in _MARKERS)


class _Reading:
    """Takes one document apart."""

    def __init__(self, document: Document, root: JSONObject) -> None:
        self.document = document
        self.root = root
        self.info = mapping(root.get("info"))
        told = _FORMAT.fullmatch(text(root.get("trajectory_format")))
        self.format = told[0] if told else PROGRAM if self.info else f"{PROGRAM}-list"
        version = text(self.info.get("mini_version"))
        old = version.startswith("1.") if version else self.format in _FORMATS_BEFORE_2
        self.config = Configuration(self.info, is_before_2=old, note=self._note)
        self.problems: list[Problem] = []
        self.messages: list[JSONObject] = []
        for place, message in enumerate(root["messages"], start=1):
            if isinstance(message, dict):
                self.messages.append(message)
            else:
                self.problems.append(
                    Problem(file=document.path, place=f"message {place}", message="is no object")
                )
        self.opening = self._opening()
        self.wording = self._wording()
        self.conversation = Conversation(self.wording)

    def found(self) -> Iterator[Found]:
        for message in self.messages[len(self.opening) :]:
            self.conversation.read(message)
        yield self._trajectory()
        yield from self.problems

    def _note(self, kind: NoteKind, field: str, detail: str) -> None:
        self.conversation.note(kind, field, detail)

    # The prompt.

    def _opening(self) -> list[JSONObject]:
        """The messages before the first reply; the program itself writes two."""
        plain = 0
        for message in self.messages:
            if not is_opening(message):
                break
            plain += 1
        answered = any(is_reply(message) for message in self.messages)
        return self.messages[: plain if answered else min(plain, 2)]

    def _wording(self) -> Wording:
        agent, model = self.config.section("agent"), self.config.section("model")
        stopped = text(agent.get("timeout_template")).partition("{{")[0].partition("{%")[0].strip()
        expression = text(model.get("action_regex")) or text(agent.get("action_regex"))
        if expression:
            named = _TAGGED.search(expression)
            if named is None:
                return Wording(stopped=stopped)
            form: Literal["fence", "element"] = "fence" if named["fence"] else "element"
            return Wording(form, named["fence"] or named["element"], stopped)
        if self.config.given:
            return Wording("fence", _TAG_BEFORE_2 if self.config.is_before_2 else _TAGS[0], stopped)
        prompt = "\n".join(plain_text(message.get("content")) for message in self.opening)
        tag = next((tag for tag in _TAGS if f"```{tag}" in prompt), _TAG_BEFORE_2)
        return Wording("fence", tag, stopped)

    def _statement(self) -> str:
        """The task's text, told from what the template has around it."""
        template = text(self.config.section("agent").get("instance_template")) or (
            "" if self.info else _OLD_TEMPLATE
        )
        told = _TASK.search(template)
        prompt = next((one for one in self.opening if one.get("role") == "user"), None)
        if told is None or prompt is None:
            return ""
        found = _between(
            plain_text(chat_message(prompt).get("content")),
            re.split(r"\}\}|%\}", template[: told.start()])[-1],
            re.split(r"\{\{|\{%", template[told.end() :])[0],
        )
        if found:
            self._note("guessed", "task", "told from the prompt and the template it was made with")
        return found

    # The whole.

    def _trajectory(self) -> Trajectory:
        ending = self._ending()
        if ending.status == "Submitted":
            self.conversation.submit(ending.submission, _MARKERS)
        model, harness = self.config.model(), self.config.harness()
        found = tuple(map(self.config.with_provider, self.conversation.items()))
        if ending.status in REQUEST_ERRORS:
            # What ended the run was asked and counted, and had no answer.
            failure = FailedRequest(error=REQUEST_ERRORS[ending.status], message=ending.error)
            found = (*found, failure)
        # Version 1 wrote its file once, at the end.
        partial = not ending.status and not self.config.is_before_2
        stated = self._statement()
        if not self.info:
            self._note("missing", "info", "a list of messages names neither model nor task nor cost")
        elif harness.version and not self.config.is_before_2:
            self._note("missing", "tools", "the tool's schema is the program's own, not the file's")
        return Trajectory(
            origin=Origin(format=self.format, file=self.document.path, sha256=self._identity(partial)),
            harness=harness,
            model=model,
            instance_id=text(self.root.get("instance_id")),
            statement=stated,
            opening=tuple(chat_message(message) for message in self.opening),
            items=found,
            exit_reason=ending.reason,
            native_reason=ending.status,
            error=ending.error,
            final_message=ending.submission,
            patch=ending.patch,
            totals=self._totals(found),
            partial=partial,
            limits=self.config.limits(),
            notes=tuple(self.conversation.notes.values()),
            kept=self._kept(),
        )

    def _identity(self, partial: bool) -> str:
        """A run has no name: while it goes on, its prompt and first reply, which has a time, tell it."""
        if not partial:
            return self.document.sha256()
        begun = [self.root.get("instance_id"), *self.messages[: len(self.opening) + 1]]
        return hashlib.sha256(json.dumps(begun).encode()).hexdigest()

    def _totals(self, found: Sequence[object]) -> Totals:
        stats = mapping(self.info.get("model_stats"))
        cost = dollars(stats.get("instance_cost"))
        turns = [item for item in found if isinstance(item, Turn)]
        if cost == 0 and not any(turn.cost_reported for turn in turns):
            cost = None
        return Totals(cost=cost, calls=count(stats.get("api_calls")))

    def _ending(self) -> _Ending:
        extra = mapping(self.conversation.exit.get("extra"))
        status = text(self.info.get("exit_status")) or text(extra.get("exit_status"))
        submission = self._submission(extra)
        if not self.info and self._last_prints_marker():
            status, submission = "Submitted", plain_text(self.messages[-1].get("content"))
            self._note("guessed", "info.exit_status", "the last command printed the words that submit")
        error = text(self.info.get("exception_str")) or text(extra.get("exception_str"))
        if submission is not None and status not in ("", "Submitted") and submission:
            # Version 1 had an exception's text in its place.
            error, submission = error or submission, None
        # What a run that is still going on comes to is not known.
        patch = self._patch(submission) if status else None
        return _Ending(status, self._reason(status), error, submission or "", patch)

    def _submission(self, extra: JSONObject) -> str | None:
        for told in (self.info.get("submission"), extra.get("submission")):
            if isinstance(told, str):
                return told
        return None

    def _patch(self, submission: str | None) -> str | None:
        """A submission is the patch where the run had a benchmark's instance, or where it is a diff: on a
        person's own machine it is whatever the last command printed."""
        if submission is None:
            return None
        named = bool(text(self.root.get("instance_id")))
        return submission if named or "diff --git " in submission else None

    def _last_prints_marker(self) -> bool:
        if len(self.messages) <= len(self.opening) + 1 or is_reply(self.messages[-1]):
            return False
        said = plain_text(self.messages[-2].get("content"))
        return is_reply(self.messages[-2]) and any(marker in said for marker in _MARKERS)

    def _reason(self, status: str) -> ExitReason | None:
        known = exit_reason(status, self.config.limits(), mapping(self.info.get("model_stats")))
        if status == LIMIT:
            self._note("guessed", "info.exit_status", "which limit it was is told from the sums")
        elif status and known is None:
            self._note("lost", "info.exit_status", f"the lab has no word for {status[:200]}")
        return known

    def _kept(self) -> JSONObject:
        """What the file holds beside all that, keys removed."""
        info = unread(self.info, _INFO)
        stats = unread(
            mapping(self.info.get("model_stats")), {"instance_cost": (int, float), "api_calls": (int, float)}
        )
        config = self.config.of_the_run()
        ended = without(
            mapping(self.conversation.exit.get("extra")),
            "exit_status",
            "submission",
            "exception_str",
            "traceback",
        )
        kept: JSONObject = {
            **without(self.root, "info", "messages", "trajectory_format", "instance_id"),
            **({"info": info} if info else {}),
            **({"model_stats": stats} if stats else {}),
            **({"config": config} if config else {}),
            **({"exit": ended} if ended else {}),
        }
        trace = text(mapping(self.conversation.exit.get("extra")).get("traceback"))
        if trace and "traceback" not in info:
            kept["traceback"] = trace
        return without_keys(kept)


class _Ending(NamedTuple):
    """How a run ended; `submission` as it was printed, `patch` None where that is none."""

    status: str
    reason: ExitReason | None
    error: str
    submission: str
    patch: str | None


def _between(whole: str, before: str, after: str) -> str:
    """What stands between two texts, "" where they do not."""
    start = whole.find(before)
    if start < 0:
        return ""
    start += len(before)
    end = whole.rfind(after.rstrip("\n")) if after.strip() else len(whole)
    return whole[start:end] if end >= start else ""

"""mini-swe-agent's trajectories: lists of messages, `mini-swe-agent-1` and `mini-swe-agent-1.1`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe, load_json
from lab.engine.formats.leftovers import unread, without_credentials
from lab.engine.formats.mini_swe_agent_endings import LIMIT, REQUEST_ERRORS, exit_reason
from lab.engine.formats.mini_swe_agent_messages import Conversation, Wording, is_opening, is_reply
from lab.engine.formats.mini_swe_agent_replies import chat_message
from lab.engine.formats.reading import count, dollars, mapping, number, plain_text, text, without
from lab.engine.formats.trajectory import (
    FailedRequest,
    Found,
    HarnessUsed,
    ModelUsed,
    Origin,
    Problem,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.harnesses.mini import MARKER
from lab.engine.key_shapes import masked
from lab.engine.llm.base import JSONObject

_PROGRAM = "mini-swe-agent"
_FORMAT = re.compile(rf"{_PROGRAM}-[\d.]{{1,20}}")
_MARKERS = (MARKER, "MINI_SWE_AGENT_FINAL_OUTPUT")
_TAGS = ("mswea_bash_command", "bash")
_TAG_BEFORE_2 = "bash"
# What stands around the task in the prompt of the first files, which do not hold their templates.
_OLD_TEMPLATE = "Please solve this issue: {{task}}\n\nYou can execute bash commands"
_TASK = re.compile(r"\{\{-?\s*task\s*-?\}\}")
_TAGGED = re.compile(r"```(?P<fence>[A-Za-z][\w.-]*)|<(?P<element>[A-Za-z][\w.-]*)>")
# What a configuration says of one run, its task or its model rather than of the harness.
_OF_THE_RUN = {
    "agent": ("output_path", "agent_class"),
    "model": (
        *("model_name", "model_kwargs", "model_class", "outputs", "cost_per_call", "cost_tracking"),
        *("litellm_model_registry", "litellm_model_name_override"),
    ),
    "environment": ("image", "cwd", "environment_class", "container_name"),
}
_LIMITS = {
    "step_limit": "max_steps",
    "cost_limit": "max_cost_usd",
    "wall_time_limit_seconds": "max_total_time_sec",
    "max_consecutive_format_errors": "max_format_errors",
}
_INFO = {
    **dict.fromkeys(("config", "model_stats"), dict),
    **dict.fromkeys(("mini_version", "exit_status", "submission", "exception_str"), str),
}
_TEMPLATES_BEFORE_2 = ("action_observation_template", "format_error_template", "timeout_template")
_TEMPLATES = ("observation_template", "format_error_template")


class MiniSweAgent:
    """Reads one run from one file."""

    name = _PROGRAM
    title = "mini-swe-agent: .traj.json of versions 1 and 2, lists of messages"

    def recognises(self, probe: Probe) -> bool:
        if isinstance(probe.value, list):
            return _is_old_list(probe.value)
        root = probe.root
        if text(root.get("trajectory_format")).startswith(_PROGRAM):
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
        self.config = mapping(self.info.get("config"))
        told = _FORMAT.fullmatch(text(root.get("trajectory_format")))
        self.format = told[0] if told else _PROGRAM if self.info else f"{_PROGRAM}-list"
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

    def _section(self, name: str) -> JSONObject:
        return mapping(self.config.get(name))

    def _wording(self) -> Wording:
        agent, model = self._section("agent"), self._section("model")
        stopped = text(agent.get("timeout_template")).partition("{{")[0].partition("{%")[0].strip()
        expression = text(model.get("action_regex")) or text(agent.get("action_regex"))
        if expression:
            named = _TAGGED.search(expression)
            if named is None:
                return Wording(stopped=stopped)
            form: Literal["fence", "element"] = "fence" if named["fence"] else "element"
            return Wording(form, named["fence"] or named["element"], stopped)
        if self.config:
            return Wording("fence", _TAG_BEFORE_2 if self._is_before_2 else _TAGS[0], stopped)
        prompt = "\n".join(plain_text(message.get("content")) for message in self.opening)
        tag = next((tag for tag in _TAGS if f"```{tag}" in prompt), _TAG_BEFORE_2)
        return Wording("fence", tag, stopped)

    @property
    def _is_before_2(self) -> bool:
        return self.format != f"{_PROGRAM}-1.1" or text(self.info.get("mini_version")).startswith("1.")

    def _statement(self) -> str:
        """The task's text, told from what the template has around it."""
        template = text(self._section("agent").get("instance_template")) or (
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
            self.conversation.note(
                "guessed", "task", "told from the prompt and the template it was made with"
            )
        return found

    # The whole.

    def _trajectory(self) -> Trajectory:
        ending = self._ending()
        if ending.status == "Submitted":
            self.conversation.submit(ending.submission, _MARKERS)
        found = self.conversation.items()
        if ending.status in REQUEST_ERRORS:
            # What ended the run was asked and counted, and had no answer.
            failure = FailedRequest(error=REQUEST_ERRORS[ending.status], message=ending.error)
            found = (*found, failure)
        model, harness = self._model(), self._harness()
        partial = not ending.status and self.format == f"{_PROGRAM}-1.1"
        stated = self._statement()
        if not self.info:
            self.conversation.note(
                "missing", "info", "a list of messages names neither model nor task nor cost"
            )
        elif harness.version and not self._is_before_2:
            self.conversation.note(
                "missing", "tools", "the tool's schema is the program's own, not the file's"
            )
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
            limits=self._limits(),
            notes=tuple(self.conversation.notes.values()),
            kept=self._kept(),
        )

    def _identity(self, partial: bool) -> str:
        """A run has no name: while it goes on, its prompt and first reply, which has a time, tell it."""
        if not partial:
            return self.document.sha256()
        begun = [self.root.get("instance_id"), *self.messages[: len(self.opening) + 1]]
        return hashlib.sha256(json.dumps(begun).encode()).hexdigest()

    def _harness(self) -> HarnessUsed:
        own = {
            section: _without_keys(without(self._section(section), *taken))
            for section, taken in _OF_THE_RUN.items()
        }
        agent, model = self._section("agent"), self._section("model")
        told = ("system_template", "instance_template")
        if self._is_before_2:
            complete = all(isinstance(agent.get(name), str) for name in (*told, *_TEMPLATES_BEFORE_2))
        else:
            # Native calls need the tool's description too, which is in the program.
            complete = (
                "action_regex" in model
                and all(isinstance(agent.get(name), str) for name in told)
                and all(isinstance(model.get(name), str) for name in _TEMPLATES)
            )
        return HarnessUsed(
            name=_PROGRAM,
            version=text(self.info.get("mini_version")),
            family="mini",
            config={name: section for name, section in own.items() if section},
            complete=complete,
        )

    def _model(self) -> ModelUsed:
        section = self._section("model")
        name = text(section.get("model_name"))
        if name.startswith("@"):
            self.conversation.note(
                "guessed", "info.config.model.model_name", f"{name} is Portkey's way to write {name[1:]}"
            )
        sampling = without(mapping(section.get("model_kwargs")), "api_base", "base_url", "drop_params")
        return ModelUsed(
            name=name.removeprefix("@"),
            base_url=masked(
                text(mapping(section.get("model_kwargs")).get("api_base"))
                or text(mapping(section.get("model_kwargs")).get("base_url"))
            ),
            sampling=_without_keys(without(sampling, "extra_headers")),
        )

    def _limits(self) -> JSONObject:
        """The lab's names; 0 is none."""
        agent = self._section("agent")
        found = {lab: number(agent.get(own)) for own, lab in _LIMITS.items()}
        return {
            name: int(value) if value.is_integer() else value
            for name, value in found.items()
            if value is not None and value > 0
        }

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
            self.conversation.note(
                "guessed", "info.exit_status", "the last command printed the words that submit"
            )
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
        known = exit_reason(status, self._limits(), mapping(self.info.get("model_stats")))
        if status == LIMIT:
            self.conversation.note("guessed", "info.exit_status", "which limit it was is told from the sums")
        elif status and known is None:
            self.conversation.note("lost", "info.exit_status", f"the lab has no word for {status[:200]}")
        return known

    def _kept(self) -> JSONObject:
        """What the file holds beside all that, keys removed."""
        info = unread(self.info, _INFO)
        stats = unread(
            mapping(self.info.get("model_stats")), {"instance_cost": (int, float), "api_calls": (int, float)}
        )
        config: JSONObject = without(self.config, *_OF_THE_RUN)
        for section, taken in _OF_THE_RUN.items():
            given = self._section(section)
            of_the_run = {name: given[name] for name in taken if name in given}
            if of_the_run:
                config[section] = of_the_run
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
        return _without_keys(kept)


class _Ending(NamedTuple):
    """How a run ended; `submission` as it was printed, `patch` None where that is none."""

    status: str
    reason: ExitReason | None
    error: str
    submission: str
    patch: str | None


def _without_keys(value: JSONObject) -> JSONObject:
    found: JSONObject = masked(without_credentials(value))
    return found


def _between(whole: str, before: str, after: str) -> str:
    """What stands between two texts, "" where they do not."""
    start = whole.find(before)
    if start < 0:
        return ""
    start += len(before)
    end = whole.rfind(after.rstrip("\n")) if after.strip() else len(whole)
    return whole[start:end] if end >= start else ""

"""The configuration in a file of mini-swe-agent: harness, model and limits, and what is of one run alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab.engine.formats.leftovers import without_credentials
from lab.engine.formats.reading import mapping, number, text, without
from lab.engine.formats.trajectory import HarnessUsed, Item, ModelUsed, NoteKind, Turn
from lab.engine.key_shapes import masked
from lab.engine.llm.base import JSONObject

PROGRAM = "mini-swe-agent"
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
_TEMPLATES_BEFORE_2 = ("action_observation_template", "format_error_template", "timeout_template")
_TEMPLATES = ("observation_template", "format_error_template")


class Configuration:
    """Takes `info.config` apart; `note` is told what is inferred, with kind, field and detail."""

    def __init__(
        self, info: JSONObject, *, is_before_2: bool, note: Callable[[NoteKind, str, str], None]
    ) -> None:
        self.given = mapping(info.get("config"))
        self.is_before_2 = is_before_2
        self._version = text(info.get("mini_version"))
        self._note = note
        self._model = text(self.section("model").get("model_name"))

    def section(self, name: str) -> JSONObject:
        """`agent`, `model` or `environment`."""
        return mapping(self.given.get(name))

    def harness(self) -> HarnessUsed:
        """The program with what of its configuration is the same in all its runs."""
        own = {
            section: without_keys(without(self.section(section), *taken))
            for section, taken in _OF_THE_RUN.items()
        }
        agent, model = self.section("agent"), self.section("model")
        told = ("system_template", "instance_template")
        if self.is_before_2:
            complete = all(isinstance(agent.get(name), str) for name in (*told, *_TEMPLATES_BEFORE_2))
        else:
            # Native calls need the tool's description too, which is in the program.
            complete = (
                "action_regex" in model
                and all(isinstance(agent.get(name), str) for name in told)
                and all(isinstance(model.get(name), str) for name in _TEMPLATES)
            )
        return HarnessUsed(
            name=PROGRAM,
            version=self._version,
            family="mini",
            config={name: section for name, section in own.items() if section},
            complete=complete,
        )

    def model(self) -> ModelUsed:
        """The model as configured; Portkey's sign before a provider is no part of its name."""
        name = self._model.removeprefix("@")
        if name != self._model:
            self._note(
                "guessed", "info.config.model.model_name", f"{self._model} is Portkey's way to write {name}"
            )
        sent = mapping(self.section("model").get("model_kwargs"))
        return ModelUsed(
            name=name,
            base_url=masked(text(sent.get("api_base")) or text(sent.get("base_url"))),
            sampling=without_keys(without(sent, "api_base", "base_url", "drop_params", "extra_headers")),
        )

    def with_provider(self, item: Item) -> Item:
        """A turn whose model has the configuration's provider before it, where the server left it out."""
        provider, _, name = self._model.removeprefix("@").rpartition("/")
        answered = item.model if isinstance(item, Turn) else ""
        named = provider and name and "/" not in answered and answered.startswith(name)
        if not isinstance(item, Turn) or not named:
            return item
        self._note(
            "guessed", "messages[].extra.response.model", f"{answered} is taken for {provider}/{answered}"
        )
        response = {**mapping(item.kept.get("response")), "model": answered}
        return replace(item, model=f"{provider}/{answered}", kept={**item.kept, "response": response})

    def limits(self) -> JSONObject:
        """The lab's names; 0 is none."""
        agent = self.section("agent")
        found = {lab: number(agent.get(own)) for own, lab in _LIMITS.items()}
        return {
            name: int(value) if value.is_integer() else value
            for name, value in found.items()
            if value is not None and value > 0
        }

    def of_the_run(self) -> JSONObject:
        """What stands in the configuration and is no part of the harness."""
        found: JSONObject = without(self.given, *_OF_THE_RUN)
        for name, taken in _OF_THE_RUN.items():
            section = self.section(name)
            told = {field: section[field] for field in taken if field in section}
            if told:
                found[name] = told
        return found


def without_keys(value: JSONObject) -> JSONObject:
    """The same without keys and passwords."""
    found: JSONObject = masked(without_credentials(value))
    return found

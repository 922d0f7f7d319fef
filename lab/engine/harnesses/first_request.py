"""The first request of an attempt: what prompts are told, and the body exactly as the model would get it."""

from __future__ import annotations

import platform

from lab.engine.harnesses.base import Family, HarnessConfig, PromptFacts
from lab.engine.harnesses.conversation import Conversation
from lab.engine.harnesses.turns import request_cap
from lab.engine.limits import Limits
from lab.engine.llm.base import ModelConfig
from lab.engine.llm.bodies import BodyEncoder, EncodedBody
from lab.engine.sandboxes.base import SandboxProvider, SandboxSpec


def prompt_facts(statement: str, *, provider: SandboxProvider, sandbox: SandboxSpec) -> PromptFacts:
    """What prompts are told of an attempt whose agent works in such a sandbox on this machine."""
    host = platform.uname()
    return PromptFacts(
        statement=statement,
        workspace=provider.workspace(sandbox),
        system=host.system,
        release=host.release,
        version=host.version,
        machine=host.machine,
    )


def first_request(
    family: Family, config: HarnessConfig, facts: PromptFacts, *, model: ModelConfig, limits: Limits
) -> EncodedBody:
    """The body of the first request, made as an attempt makes it. `limits` are the effective ones.

    Raises:
        InvalidValueError: a prompt template that cannot be rendered.
    """
    conversation = Conversation()
    conversation.messages = family.opening(config, facts, limits)
    conversation.parameters = family.parameters(config, model, limits)
    cap = request_cap(model, limits, conversation.messages, conversation.parameters, counted=0)
    return BodyEncoder().encode(conversation.body(cap))

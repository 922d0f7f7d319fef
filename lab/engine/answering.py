"""Who answers an attempt's model calls: a server elsewhere, or one of this process (scripts, replays)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from lab.engine.attempt import AttemptSpec
from lab.engine.events import ModelCallFinished
from lab.engine.llm.base import ModelConfig
from lab.engine.llm.local_server import LocalServer
from lab.engine.llm.replay import ReplayServer
from lab.engine.llm.scripted import ScriptedServer


@dataclass
class Answering:
    """`server` is the one of this process, None where the model lives at an endpoint."""

    model: ModelConfig
    server: LocalServer | None = None

    @contextlib.contextmanager
    def endpoint(self) -> Iterator[ModelConfig]:
        """The model to ask, with the address of its server while the block runs."""
        if self.server is None:
            yield self.model
            return
        with self.server as server:
            yield self.model.model_copy(update={"base_url": server.base_url})

    @property
    def difference(self) -> str:
        """What to say of a replay that was followed after its conversation had gone another way."""
        met = self.server.difference if isinstance(self.server, ReplayServer) else None
        return f"the replay was followed beyond its first difference: {met.told()}" if met else ""


def answering_for(spec: AttemptSpec, *, opening: int) -> Answering:
    """Who answers this attempt. `opening` is the number of messages before the model's first turn."""
    if spec.replay is not None:
        return Answering(
            spec.model,
            ReplayServer(
                spec.replay,
                model=spec.model.model_id,
                opening=opening,
                answered=sum(isinstance(record.event, ModelCallFinished) for record in spec.history),
                chunk_seconds=spec.chunk_seconds,
            ),
        )
    if not spec.model.scripted:
        return Answering(spec.model)
    return Answering(
        spec.model, ScriptedServer(spec.task.plans, seed=spec.seed, chunk_seconds=spec.chunk_seconds)
    )

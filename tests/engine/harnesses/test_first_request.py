"""The request that is shown before a run is the one that a run sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.engine import registry
from lab.engine.events import ModelCallStarted
from lab.engine.harnesses.first_request import first_request, prompt_facts
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig
from lab.engine.sandboxes.base import SandboxSpec
from tests.engine.attempts import run_whole
from tests.engine.conftest import MakeTask
from tests.fakes.openai_server import FakeOpenAI, delta, stream


@pytest.mark.parametrize(
    ("model", "limits"),
    [
        ({}, {}),
        ({"sampling": {"temperature": 0.6, "max_tokens": 512}, "extra_body": {"top_k": 20}}, {}),
        ({"context_window": 32_768}, {"max_tokens_per_turn": None}),
    ],
    ids=["as it is", "with the model's own settings", "with what the context leaves as its cap"],
)
def test_it_has_the_hash_of_what_an_attempt_sends(
    tmp_path: Path, make_task: MakeTask, model: dict[str, Any], limits: dict[str, Any]
) -> None:
    with FakeOpenAI([stream(delta(content="Done."), delta(finish="stop"))]) as fake:
        _, sink = run_whole(tmp_path, make_task, fake.base_url, model=model, limits=limits)
    config = load_preset("leaf-compatible")
    facts = prompt_facts(
        "Mend it.",
        provider=registry.provider("process"),
        sandbox=SandboxSpec(label="shown", scratch=tmp_path),
    )
    shown = first_request(
        registry.family(config.family),
        config,
        facts,
        model=ModelConfig(**{"name": "fake", "model_id": "fake", "base_url": fake.base_url, **model}),
        limits=config.limits.model_copy(update=limits),
    )
    assert shown.sha256 == sink.of(ModelCallStarted)[0].body_sha256
    assert shown.content == fake.calls[0].raw

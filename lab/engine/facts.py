"""What an attempt's first event says of task, harness and model."""

from __future__ import annotations

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.tasks.spec import TaskSpec


def task_facts(task: TaskSpec) -> JSONObject:
    """What may be known of a task while an agent works on it: no hidden test, no gold patch."""
    return {
        "id": task.id,
        "title": task.title,
        "digest": task.digest,
        "repository_digest": task.repository_digest,
        "difficulty": task.difficulty,
        "trait": task.trait,
        "environment": task.environment.content,
        "verification": {
            "rule": task.verification.rule,
            "runner": task.verification.runner,
            "fail_to_pass": len(task.verification.fail_to_pass),
            "pass_to_pass": len(task.verification.pass_to_pass),
        },
    }


def harness_facts(harness: HarnessConfig) -> JSONObject:
    """The harness, whole."""
    return {"name": harness.name, "digest": harness.digest, "config": harness.model_dump(mode="json")}


def model_facts(model: ModelConfig) -> JSONObject:
    """The model's configuration; of headers only the names, since they may carry a key."""
    facts = model.model_dump(mode="json", exclude={"headers"})
    return {**facts, "headers": sorted(model.headers)}

"""The graph and the plans made from it."""

from typing import NamedTuple

from taskgraph.errors import GraphError
from taskgraph.walk import Walk


class Step(NamedTuple):
    """One step: what has to come first, and what should if it can be had."""

    name: str
    needs: tuple = ()
    wants: tuple = ()


class Plan(NamedTuple):
    """`order` lists what to do; `skipped` maps wanted steps to the missing step that rules them out."""

    order: list
    skipped: dict
    steps: dict

    def batches(self):
        """Group the order into lists of steps that can be done at the same time."""
        batch_of = {}
        batches = []
        for name in self.order:
            step = self.steps[name]
            before = [batch_of[other] for other in (*step.needs, *step.wants) if other in batch_of]
            number = max(before, default=-1) + 1
            batch_of[name] = number
            if number == len(batches):
                batches.append([])
            batches[number].append(name)
        return batches


class TaskGraph:
    """A description of steps; they can be added in any order."""

    def __init__(self):
        self._steps = {}

    def add(self, name, needs=(), wants=()):
        """Describe a step. Raises GraphError if there is one of that name."""
        if name in self._steps:
            raise GraphError(f"{name!r} is described twice")
        self._steps[name] = Step(name, tuple(needs), tuple(wants))

    @classmethod
    def from_text(cls, text):
        """Read lines like "app: core ?docs"; a question mark stands in front of what is only wanted."""
        graph = cls()
        for line in text.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, _, rest = line.partition(":")
            words = rest.split()
            graph.add(
                name.strip(),
                needs=[word for word in words if not word.startswith("?")],
                wants=[word[1:] for word in words if word.startswith("?")],
            )
        return graph

    def plan(self, *targets):
        """Return the plan for these targets, or for all steps if none are named.

        Raises MissingStepError and CycleError.
        """
        walk = Walk(self._steps)
        for target in targets or self._steps:
            walk.visit(target)
        return Plan(walk.order, walk.skipped, self._steps)

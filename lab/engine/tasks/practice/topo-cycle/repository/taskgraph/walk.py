"""Depth first through the dependencies."""

from taskgraph.errors import CycleError, MissingStepError


class Walk:
    """One walk through a graph. `path` leads from the target to the step being looked at."""

    def __init__(self, steps):
        self.steps = steps
        self.path = []
        self.order = []
        self.skipped = {}
        self._done = set()

    def visit(self, name):
        """Put a step into the order, after everything it depends on."""
        if name in self._done:
            return
        if name in self.path:
            raise CycleError([*self.path[self.path.index(name) :], name])
        if name not in self.steps:
            raise MissingStepError([*self.path, name])
        self.path.append(name)
        step = self.steps[name]
        for need in step.needs:
            self.visit(need)
        for want in step.wants:
            self._visit_if_possible(want)
        self.path.pop()
        self._done.add(name)
        self.order.append(name)

    def _visit_if_possible(self, name):
        planned = len(self.order)
        try:
            self.visit(name)
        except MissingStepError as error:
            self.skipped[name] = error.missing
            self._forget(planned)

    def _forget(self, planned):
        """Take back what was planned for the sake of a step that is skipped."""
        self._done.difference_update(self.order[planned:])
        del self.order[planned:]

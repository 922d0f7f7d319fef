"""What can be wrong with a graph."""


class GraphError(ValueError):
    """Base of all errors about graphs."""


class MissingStepError(GraphError):
    """A step that is needed does not exist. `chain` leads from the target to it."""

    def __init__(self, chain):
        self.chain = list(chain)
        super().__init__(f"{self.missing!r} does not exist: {' -> '.join(self.chain)}")

    @property
    def missing(self):
        return self.chain[-1]


class CycleError(GraphError):
    """Steps that depend on each other in a circle. `cycle` begins and ends with the same step."""

    def __init__(self, cycle):
        self.cycle = list(cycle)
        super().__init__(f"circular dependency: {' -> '.join(self.cycle)}")

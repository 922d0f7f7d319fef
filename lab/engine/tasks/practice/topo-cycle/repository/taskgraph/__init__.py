"""Build steps in the right order."""

from taskgraph.errors import CycleError, GraphError, MissingStepError
from taskgraph.graph import Plan, Step, TaskGraph

__all__ = ["CycleError", "GraphError", "MissingStepError", "Plan", "Step", "TaskGraph"]

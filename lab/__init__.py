"""Agent Trajectory Lab."""

__version__ = "0.1.0"

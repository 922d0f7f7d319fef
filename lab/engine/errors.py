"""The three kinds of bad news, kept apart by type.

A command that failed is *data for the agent* and never an exception. A limit or a model that stopped is an
exit reason, raised as `AttemptStopped`. A broken sandbox, endpoint or worker is an `InfrastructureError`:
never the model's fault, counted and shown apart.
"""

from __future__ import annotations

from enum import StrEnum


class ExitReason(StrEnum):
    """Why the agent stopped. Leaf's names, in every harness family, plus five of the lab's own."""

    AGENT = "agent"
    MAX_TURNS = "max_turns"
    MAX_TIME = "max_time"
    MAX_CONTEXT_LEN = "max_context_len"
    MAX_TOKENS_PER_TURN = "max_tokens_per_turn"
    MAX_TOKENS_TOTAL = "max_tokens_total"
    MAX_COST = "max_cost"
    FORMAT_ERRORS = "format_errors"
    CANCELLED = "cancelled"
    LLM_QUERY_ERROR = "llm_query_error"
    TOOL_ERROR = "tool_error"
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    INTERNAL_ERROR = "internal_error"
    REPLAY_DIVERGED = "replay_diverged"
    UNKNOWN = "unknown"

    @property
    def origin(self) -> ExitOrigin:
        """Who stopped the run: decides whether it is verified and whether another attempt is made."""
        if self is ExitReason.CANCELLED:
            return ExitOrigin.PERSON
        if self in _INFRASTRUCTURE:
            return ExitOrigin.INFRASTRUCTURE
        return ExitOrigin.MODEL_OR_LIMIT


class ExitOrigin(StrEnum):
    """Model or limit: verified, not retried. Person: patch kept, not verified. Infrastructure: retried."""

    MODEL_OR_LIMIT = "model_or_limit"
    PERSON = "person"
    INFRASTRUCTURE = "infrastructure"


_INFRASTRUCTURE = frozenset(
    {
        ExitReason.LLM_QUERY_ERROR,
        ExitReason.TOOL_ERROR,
        ExitReason.INFRASTRUCTURE_ERROR,
        ExitReason.INTERNAL_ERROR,
        ExitReason.REPLAY_DIVERGED,
        ExitReason.UNKNOWN,
    }
)


class LabError(Exception):
    """Base of every error the lab raises on purpose; its text is fit for a person to read."""


class InvalidValueError(LabError):
    """A value a person or a file gave cannot be used.

    The text names field, value and way out, so that it can be shown as it is.
    """

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(f"{field}: {value!r} {reason}")


class InfrastructureError(LabError):
    """Sandbox, endpoint, task material or worker broke.

    `retryable` says whether another attempt makes sense.
    """

    exit_reason = ExitReason.INFRASTRUCTURE_ERROR

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(message)


class SandboxLostError(InfrastructureError):
    """The sandbox vanished, could not start, or no longer answers.

    Never shown to a model as command output.
    """


class EndpointError(InfrastructureError):
    """A model call failed for good: retries are used up, or no retry can help (401, 404, …)."""

    exit_reason = ExitReason.LLM_QUERY_ERROR


class ReplayDivergedError(InfrastructureError):
    """A replayed model has no recorded answer to what it is asked. Another try ends the same."""

    exit_reason = ExitReason.REPLAY_DIVERGED

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class AttemptStoppedError(LabError):
    """Raised inside a harness to end the attempt with an exit reason that is no infrastructure error."""

    def __init__(self, reason: ExitReason, *, native_reason: str = "", detail: str = "") -> None:
        self.reason = reason
        self.native_reason = native_reason
        self.detail = detail
        super().__init__(detail or reason.value)


class LeaseLostError(LabError):
    """Another worker child owns the attempt now. The holder stops and writes nothing more."""


class HandedOverError(LeaseLostError):
    """The attempt stopped between two events because it was asked to, and goes on in another worker child."""

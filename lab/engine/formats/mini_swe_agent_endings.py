"""How a run of mini-swe-agent ended: its exit statuses, which are mostly names of exceptions."""

from __future__ import annotations

from lab.engine.errors import ExitReason
from lab.engine.formats.reading import number
from lab.engine.llm.base import JSONObject

# The status of two limits.
LIMIT = "LimitsExceeded"
# Exceptions of LiteLLM and of the program's own clients, and the word of `FailedRequest` for them.
REQUEST_ERRORS = {
    "ContextWindowExceededError": "context_overflow",
    "APIConnectionError": "connection",
    "Timeout": "timeout",
    **dict.fromkeys(
        ("RateLimitError", "OpenRouterRateLimitError", "RequestyRateLimitError"),
        "rate_limit",
    ),
    **dict.fromkeys(
        ("APIError", "BadGatewayError", "InternalServerError", "OpenAIError", "ServiceUnavailableError")
        + ("OpenRouterAPIError", "RequestyAPIError"),
        "server",
    ),
    "APIResponseValidationError": "not_json",
    **dict.fromkeys(
        ("AuthenticationError", "BadRequestError", "BudgetExceededError", "ContentPolicyViolationError")
        + ("InvalidRequestError", "NotFoundError", "PaymentRequiredError", "PermissionDeniedError")
        + ("UnprocessableEntityError", "UnsupportedParamsError", "OpenRouterAuthenticationError")
        + ("RequestyAuthenticationError",),
        "http_4xx",
    ),
}
_EXITS = {
    **dict.fromkeys(REQUEST_ERRORS, ExitReason.LLM_QUERY_ERROR),
    "ContextWindowExceededError": ExitReason.MAX_CONTEXT_LEN,
    "Submitted": ExitReason.AGENT,
    "TimeExceeded": ExitReason.MAX_TIME,
    "RepeatedFormatError": ExitReason.FORMAT_ERRORS,
}


def exit_reason(status: str, limits: JSONObject, stats: JSONObject) -> ExitReason | None:
    """The lab's word for a status, None for one that it has no word for.

    Of limits it was the one that the run had come to, by the lab's names in `limits` and by `model_stats`.
    """
    if status != LIMIT:
        return _EXITS.get(status)
    calls, cost = number(stats.get("api_calls")), number(stats.get("instance_cost"))
    if calls is not None and calls >= limits.get("max_steps", float("inf")):
        return ExitReason.MAX_TURNS
    if cost is not None and cost >= limits.get("max_cost_usd", float("inf")):
        return ExitReason.MAX_COST
    return None

"""Usage objects of many servers, read into one normal form.

input_total = uncached + cache_read + cache_write, and output_total contains the reasoning. What is missing
stays None, what is zero stays zero, and what does not add up is named in `notes` and never clamped.
"""

from __future__ import annotations

from typing import Any

from lab.engine.llm.base import JSONObject, Usage

# Far beyond any context there is: what a server says above it is a mistake, which no database column
# and no price can hold.
MOST_TOKENS = 10**9
_VALUE_SHOWN = 60


def read_usage(raw: JSONObject | None) -> Usage:
    """The normal form of a usage object as it came; an absent object gives unknown counts.

    Knows OpenAI's form (prompt_tokens, which includes cached ones), Anthropic's (input_tokens, which excludes
    them), DeepSeek's hit and miss counts, reasoning_tokens at top level (SGLang) and llama.cpp's `timings`.
    """
    if raw is None:
        return Usage()
    notes: list[str] = []
    counts = _Counts(raw, notes)
    read, write = counts.cache_read(), counts.cache_write()
    total, uncached = _input(counts, read, write, notes)
    output, reasoning = _output(counts, total, notes)
    known = any(count is not None for count in (total, uncached, output))
    return Usage(
        input_total=total,
        input_uncached=uncached,
        cache_read=read,
        cache_write=write,
        cache_write_1h=counts.get("cache_creation.ephemeral_1h_input_tokens"),
        output_total=output,
        reasoning=reasoning,
        source="provider" if known else "absent",
        raw=raw,
        notes=tuple(notes),
    )


class _Counts:
    """Looks counts up by path. A value that is no count is noted once and read as absent."""

    def __init__(self, raw: JSONObject, notes: list[str]) -> None:
        self._raw = raw
        self._notes = notes

    def get(self, *paths: str) -> int | None:
        """The first of the dotted paths that holds a count."""
        for path in paths:
            value: Any = self._raw
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                continue
            if not is_count(value):
                self._notes.append(f"{path} is {repr(value)[:_VALUE_SHOWN]}, which is no count of tokens")
                continue
            return int(value)
        return None

    @property
    def excludes_cache(self) -> bool:
        """Anthropic's form: input_tokens beside separate cache counts."""
        named = ("cache_read_input_tokens", "cache_creation_input_tokens")
        return "prompt_tokens" not in self._raw and any(name in self._raw for name in named)

    def cache_read(self) -> int | None:
        return self.get(
            "prompt_tokens_details.cached_tokens",
            "input_tokens_details.cached_tokens",
            "cache_read_input_tokens",
            "prompt_cache_hit_tokens",
            "cached_tokens",
            "timings.cache_n",
        )

    def cache_write(self) -> int | None:
        return self.get(
            "prompt_tokens_details.cache_write_tokens",
            "prompt_tokens_details.cache_creation_tokens",
            "cache_creation_input_tokens",
        )


def is_count(value: Any) -> bool:
    """Whether a server's number can be a count of tokens: whole, from 0 to `MOST_TOKENS`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value <= MOST_TOKENS and (isinstance(value, int) or value.is_integer())


def _input(
    counts: _Counts, read: int | None, write: int | None, notes: list[str]
) -> tuple[int | None, int | None]:
    if counts.excludes_cache:
        uncached = counts.get("input_tokens")
        return (None if uncached is None else uncached + (read or 0) + (write or 0)), uncached
    total = counts.get("prompt_tokens", "input_tokens")
    if total is None:
        evaluated = counts.get("timings.prompt_n")
        return (None if evaluated is None else evaluated + (read or 0)), evaluated
    if read is None:
        # Whether anything came from a cache is unknown, so what did not is unknown too.
        return total, None
    uncached = total - read - (write or 0)
    if uncached < 0:
        notes.append(f"{read + (write or 0)} cached tokens are more than the {total} of the whole input")
        return total, None
    return total, uncached


def _output(counts: _Counts, input_total: int | None, notes: list[str]) -> tuple[int | None, int | None]:
    output = counts.get("completion_tokens", "output_tokens", "timings.predicted_n")
    reasoning = counts.get(
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "reasoning_tokens",
    )
    if output is None:
        return None, reasoning
    total = counts.get("total_tokens")
    remainder = 0 if total is None or input_total is None else total - input_total - output
    if reasoning and _is_outside(reasoning, output, remainder, total_known=total is not None):
        notes.append(
            f"{reasoning} reasoning tokens were counted outside the completion and are added to the output"
        )
        output += reasoning
        remainder = max(0, remainder - reasoning)
    if reasoning is not None and reasoning > output:
        notes.append(f"{reasoning} reasoning tokens are more than the {output} of the whole output")
    if remainder > 0:
        notes.append(f"total_tokens is {remainder} more than its parts; the remainder is not priced")
    elif remainder < 0:
        notes.append(f"total_tokens is {-remainder} less than its parts")
    return output, reasoning


def _is_outside(reasoning: int, output: int, remainder: int, *, total_known: bool) -> bool:
    """Reasoning is outside the completion when the total only adds up with it, or it cannot be inside."""
    return (
        remainder == reasoning or (remainder > reasoning > output) or (not total_known and reasoning > output)
    )

"""The rules of a preflight: from what a server answered to what is wrong with it. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from lab.engine.harnesses.arguments import parse_arguments
from lab.engine.llm.base import JSONObject, Reply, ToolCall
from lab.engine.llm.leaks import leak_of, without_quoted
from lab.engine.preflight.exchange import EXCERPT_CHARACTERS, Exchange
from lab.engine.preflight.findings import Evidence, Finding
from lab.engine.preflight.probes import ARGUMENTS, OTHER_TOOL, TOOL
from lab.engine.preflight.refusals import refusals
from lab.engine.preflight.seen import Seen, finding, shown
from lab.engine.preflight.wire import (
    absurd_cost,
    arguments_as_object,
    buffered,
    same_counts,
    stream_ignored,
)

_TOOLS = (TOOL, OTHER_TOOL)
# What asks for calls; after a result an answer in words is as good.
_ASKING = ("auto", "required", "streamed", "again", "streamed_again", "third", "streamed_third", "parallel")
_WITH_TOOLS = (*_ASKING, "result")
# Of harnesses in one sentence.
_NAMED = 8
_QUOTES = "`\"'“‘"  # noqa: RUF001


def diagnose(seen: Seen) -> list[Finding]:
    """What is wrong, worst first; each kind once, with everything that shows it."""
    found: dict[str, Finding] = {}
    for rule in _RULES:
        for one in rule(seen):
            known = found.get(one.code)
            if known is not None:
                one = Finding(known.diagnosis, known.evidence + one.evidence, known.detail or one.detail)
            found[one.code] = one
    order = {"failing": 0, "warning": 1, "info": 2}
    return sorted(found.values(), key=lambda one: order[one.severity])


def _calls_as_text(seen: Seen) -> Iterator[Finding]:
    leaking = []
    for exchange, reply in seen.answered(*_ASKING):
        where, leak = leak_of(reply, _TOOLS) or ("", None)
        if leak is not None and where == "reply":
            leaking.append(exchange.probe)
            detail = f"the answer holds a call as {_KINDS[leak.kind]}"
            yield finding("calls_as_text", shown(exchange, reply.content, around=leak.start), detail=detail)
    forced = seen.reply("required")
    if "auto" in leaking and forced is not None and forced.tool_calls:
        yield finding("parser_not_model", shown(seen.exchanges["required"]))


_KINDS = {
    "markup": "markup of the template, which the server's parser should have read",
    "json": "bare JSON, without the markup that a parser waits for: the model or the server leaves it out",
    "python": "a call in Python's form, which the server's parser should have read",
}


def _no_call(seen: Seen) -> Iterator[Finding]:
    exchange, reply = seen.exchanges.get("auto"), seen.reply("auto")
    if exchange is None or reply is None:
        return
    calls = any(other.tool_calls for _, other in seen.answered(*_WHOLE, *_STREAMED))
    if reply.cut_by_length and not calls:
        cap = f" of {exchange.cap:,} tokens" if exchange.cap else ""
        detail = f"this examination's own cap{cap} cut it, not the server's or the model's"
        yield finding("cut_before_call", shown(exchange), detail=detail)
    if answers_in_words(seen):
        told = [_how_many_call(seen, probes) for probes in (_WHOLE, _STREAMED)]
        detail = f"{told[0]} whole answers and {told[1]} streams held a call"
        yield finding("no_call", shown(exchange), detail=detail)


def _finish_reasons(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered(*_WITH_TOOLS):
        if reply.tool_calls and reply.finish_reason not in {"tool_calls", "length"}:
            detail = f"the finish reason was {reply.finish_reason or 'empty'}"
            # A forced call ends with stop at OpenAI itself.
            if exchange.probe != "required":
                yield finding("finish_reason_wrong", shown(exchange), detail=detail)
        elif not reply.finish_reason:
            yield finding("finish_reason_wrong", shown(exchange), detail="the finish reason was empty")
        elif not reply.tool_calls and reply.finish_reason == "tool_calls":
            yield finding("dropped_call", shown(exchange))


def _arguments(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered(*_WITH_TOOLS):
        if reply.cut_by_length:
            continue
        for call in reply.tool_calls:
            yield from _one_calls_arguments(exchange, call)


def _one_calls_arguments(exchange: Exchange, call: ToolCall) -> Iterator[Finding]:
    evidence = Evidence(exchange.probe, f"{call.name} {call.arguments}"[:EXCERPT_CHARACTERS])
    arguments, malformed = parse_arguments(call.arguments)
    if malformed:
        doubled = malformed.startswith("a JSON string") and "double-encoded: " or ""
        yield finding("malformed_arguments", evidence, detail=doubled + malformed)
        return
    for name, value in ARGUMENTS.items():
        given = arguments.get(name)
        if call.name.strip() == TOOL and isinstance(given, str) and not isinstance(value, str):
            detail = f"{name} is the text {json.dumps(given)}, its schema says {type(value).__name__}"
            yield finding("argument_types", evidence, detail=detail)


def _names(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered(*_WITH_TOOLS):
        for call in reply.tool_calls:
            if call.name not in _TOOLS:
                evidence = Evidence(exchange.probe, json.dumps(call.name)[:EXCERPT_CHARACTERS])
                yield finding("unknown_tool_name", evidence, detail=f"the tools are {', '.join(_TOOLS)}")


def _reasoning(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered():
        tag = _thinking_tag(reply)
        if tag is not None:
            lone = "<think>" not in reply.content
            detail = "a lone closing tag: the template opens the tag itself" if lone else ""
            yield finding("think_in_content", shown(exchange, reply.content, around=tag), detail=detail)
        where, leak = leak_of(reply, _TOOLS) or ("", None)
        if leak is not None and where == "reasoning" and exchange.probe in _ASKING:
            yield finding("call_in_reasoning", shown(exchange, reply.reasoning, around=leak.start))
        elif _is_swallowed(exchange, reply):
            yield finding("answer_in_reasoning", shown(exchange))
        elif (reply.usage.reasoning or 0) > 0 and not reply.reasoning:
            detail = f"{reply.usage.reasoning} reasoning tokens and no text"
            yield finding("reasoning_hidden", shown(exchange), detail=detail)


def _thinking_tag(reply: Reply) -> int | None:
    """Where a tag of thoughts stands in the answer because no parser took it out; None where none does."""
    content = without_quoted(reply.content)
    if content.lstrip().startswith("<think>"):
        return 0
    place = content.find("</think>")
    # Whoever speaks of the tag puts it between words.
    before, after = content[:place][-1:], content[place + len("</think>") :][:1]
    is_said = before in {" ", *_QUOTES} and after not in {"\n", ""}
    return None if place == -1 or is_said or reply.reasoning else place


def _is_swallowed(exchange: Exchange, reply: Reply) -> bool:
    """Whether an answer that was finished holds nothing but reasoning."""
    is_empty = not reply.content.strip() and not reply.tool_calls
    return is_empty and bool(reply.reasoning) and exchange.probe != "plain" and reply.finish_reason == "stop"


def _thinking_setting(seen: Seen) -> Iterator[Finding]:
    settings = {**seen.model.sampling, **seen.model.extra_body}
    template = settings.get("chat_template_kwargs")
    wanted = template.get("enable_thinking") if isinstance(template, dict) else None
    exchange, reply = seen.exchanges.get("thinking"), seen.reply("thinking")
    if exchange is None or reply is None or not isinstance(wanted, bool):
        return
    thinks = bool(reply.reasoning or reply.usage.reasoning or "</think>" in reply.content)
    if thinks is not wanted:
        has = "has" if thinks else "has no"
        detail = f"enable_thinking is {str(wanted).lower()}, and the reply {has} reasoning"
        yield finding("thinking_setting_ignored", shown(exchange), detail=detail)


def _parallel(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered("parallel"):
        if len(reply.tool_calls) == 1 and not reply.cut_by_length:
            yield finding("single_calls_only", shown(exchange))


def _call_ids(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered(*_WITH_TOOLS):
        if any(call.synthesised_id for call in reply.tool_calls):
            yield finding(
                "call_ids", shown(exchange, _raw_calls(exchange)), detail="an id is missing or doubled"
            )
        elif any(_lacks_index(delta) for delta in exchange.deltas):
            yield finding("call_ids", shown(exchange, _raw_calls(exchange)), detail="a piece has no index")


def _lacks_index(delta: JSONObject) -> bool:
    calls = delta.get("tool_calls")
    return isinstance(calls, list) and any(
        isinstance(piece, dict) and not isinstance(piece.get("index"), int) for piece in calls
    )


def _raw_calls(exchange: Exchange) -> str:
    """The calls as they came, before the client made anything good."""
    if not exchange.streamed:
        return json.dumps(exchange.message.get("tool_calls"), ensure_ascii=False)
    pieces = [delta["tool_calls"] for delta in exchange.deltas if delta.get("tool_calls")]
    return "\n".join(json.dumps(piece, ensure_ascii=False) for piece in pieces)


_WHOLE = ("auto", "again", "third")
_STREAMED = ("streamed", "streamed_again", "streamed_third")


def answers_in_words(seen: Seen) -> bool:
    """Whether each call that was asked for as a whole was answered in words, without a trace of one."""
    return _is_asked(seen, "auto") and all(
        not reply.cut_by_length
        and reply.finish_reason != "tool_calls"
        and not reply.tool_calls
        and leak_of(reply, _TOOLS) is None
        for _, reply in seen.answered(*_WHOLE)
    )


def streams_lack_calls(seen: Seen) -> bool:
    """Whether each stream lacks something of each call that came whole; other values are chance."""
    wholes = [reply for _, reply in seen.answered(*_WHOLE)]
    streams = [reply for _, reply in seen.answered(*_STREAMED)]
    pairs = [(whole, streamed) for whole in wholes for streamed in streams]
    return bool(pairs) and all(stream_damage(*pair) for pair in pairs)


def _is_asked(seen: Seen, probe: str) -> bool:
    return seen.reply(probe) is not None


def _stream(seen: Seen) -> Iterator[Finding]:
    whole, streamed = seen.reply("auto"), seen.reply("streamed")
    if whole is None or streamed is None or not streams_lack_calls(seen):
        return
    evidence = (
        shown(seen.exchanges["auto"], _calls_text(whole)),
        shown(seen.exchanges["streamed"], _calls_text(streamed) or streamed.content),
    )
    is_damaged = streamed.tool_calls or streamed.finish_reason == "tool_calls" or leak_of(streamed, _TOOLS)
    if is_damaged:
        yield finding("stream_differs", *evidence, detail=stream_damage(whole, streamed))
        return
    # A model says other things each time it is asked: without a trace of a call no parser is to blame.
    told = [_how_many_call(seen, probes) for probes in (_STREAMED, _WHOLE)]
    detail = f"{told[0]} streams held the call, {told[1]} whole answers did"
    yield finding("stream_calls_less", *evidence, detail=detail)


def _how_many_call(seen: Seen, probes: tuple[str, ...]) -> str:
    replies = [reply for _, reply in seen.answered(*probes)]
    return f"{sum(bool(reply.tool_calls) for reply in replies)} of {len(replies)}"


def stream_damage(whole: Reply, streamed: Reply) -> str:
    """What a stream lacks of the calls in a whole answer, "" for nothing; other words are no damage."""
    if streamed.cut_by_length or len(streamed.tool_calls) < len(whole.tool_calls):
        lacks = f"{len(streamed.tool_calls)} of {len(whole.tool_calls)} calls came in the stream"
        return "" if streamed.cut_by_length else lacks
    for call, piecewise in zip(whole.tool_calls, streamed.tool_calls, strict=False):
        given, malformed = parse_arguments(call.arguments)
        came, broken = parse_arguments(piecewise.arguments)
        if malformed or call.name != piecewise.name:
            continue
        if broken:
            return f"the arguments of {call.name} cannot be read in the stream: {broken}"
        if missing := sorted(given.keys() - came.keys()):
            return f"the stream lacks {', '.join(missing)} of {call.name}"
    return ""


def _calls_text(reply: Reply) -> str:
    return "\n".join(f"{call.name} {call.arguments}" for call in reply.tool_calls)


def _usage(seen: Seen) -> Iterator[Finding]:
    cached = False
    whole_is_counted = any(
        reply.usage.output_total for exchange, reply in seen.answered() if not exchange.streamed
    )
    for exchange, reply in seen.answered():
        usage = reply.usage
        cached = cached or usage.cache_read is not None
        raw = json.dumps(usage.raw, ensure_ascii=False)
        if usage.notes:
            yield finding("usage_absurd", shown(exchange, raw), detail="; ".join(usage.notes))
        elif not usage.input_total or not usage.output_total:
            where = " in a stream alone" if exchange.streamed and whole_is_counted else ""
            detail = f"usage is null, zero or absent{where}"
            yield finding("usage_missing", shown(exchange, raw), detail=detail)
    counted = [exchange for exchange, reply in seen.answered() if reply.usage.input_total]
    if counted and not cached:
        raw = json.dumps(counted[-1].reply.usage.raw if counted[-1].reply else None, ensure_ascii=False)
        yield finding("cached_unknown", shown(counted[-1], raw))


def _context(seen: Seen) -> Iterator[Finding]:
    has, wanted = seen.server_window, seen.wanted_windows
    more = {name: tokens for name, tokens in wanted.items() if has is not None and has < tokens}
    if more:
        named = [f"{name} ({tokens:,} tokens)" for name, tokens in sorted(more.items())]
        rest = [f"and {len(named) - _NAMED} more"] if len(named) > _NAMED else []
        code = "context_for_some" if len(more) < len(wanted) else "context_too_small"
        evidence = Evidence("models", f"{has:,} tokens are known of")
        yield finding(code, evidence, detail=f"more is allowed by {', '.join(named[:_NAMED] + rest)}")
    exchange = seen.exchanges.get("over_limit")
    if exchange is not None and exchange.reply is not None:
        counted = exchange.reply.usage.input_total
        if counted and has is not None and counted > has:
            # All of it was read: there is more context than was known.
            return
        told = f"{counted:,} tokens of input were counted" if counted else "no usage was counted"
        yield finding(
            "silent_truncation", shown(exchange), detail=f"{told}; the request was longer than the context"
        )


def _caps(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered():
        asked = exchange.cap
        written = reply.usage.output_total
        if reply.cut_by_length and asked and written and written < asked - 1:
            detail = f"cut after {written:,} tokens, {asked:,} were allowed"
            yield finding("server_cap", shown(exchange), detail=detail)


def _other_model(seen: Seen) -> Iterator[Finding]:
    for exchange, reply in seen.answered():
        if reply.model and reply.model != seen.model.model_id:
            detail = f"asked {seen.model.model_id}, answered {reply.model}"
            yield finding("other_model_answered", Evidence(exchange.probe, detail[:300]), detail=detail[:300])
            return


_RULES: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    refusals,
    _calls_as_text,
    _no_call,
    _finish_reasons,
    _arguments,
    _names,
    _reasoning,
    _thinking_setting,
    _parallel,
    _call_ids,
    _stream,
    buffered,
    stream_ignored,
    arguments_as_object,
    _usage,
    same_counts,
    absurd_cost,
    _context,
    _caps,
    _other_model,
)

"""What a person does with the lab: connect an endpoint, launch, cancel. By keyboard where there are keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from playwright.sync_api import expect

from tests.browser.watching import Tab
from tests.fakes.openai_server import DONE, Answer, FakeOpenAI, delta, event, stream, usage_chunk

_numbers = count(1)


def asks_for(tool: str, arguments: dict[str, Any] | str, *, says: str = "", **options: Any) -> Answer:
    """A streamed answer with one tool call; arguments given as text go out as they are."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    number = next(_numbers)
    function = {"name": tool, "arguments": ""}
    begin = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    rest = {"index": 0, "function": {"arguments": raw}}
    words = [delta(content=says)] if says else []
    used = usage_chunk(prompt_tokens=900, completion_tokens=30, total_tokens=930)
    return stream(
        *words,
        delta(tool_calls=[begin]),
        delta(tool_calls=[rest]),
        delta(finish="tool_calls"),
        used,
        **options,
    )


def writes(words: int, *, finish: str = "stop", pause: float = 0.05) -> Answer:
    """A long streamed text, one word each `pause` seconds."""
    pieces = [delta(content=f"word{number} ") for number in range(1, words + 1)]
    used = usage_chunk(prompt_tokens=900, completion_tokens=words, total_tokens=900 + words)
    return stream(*pieces, delta(finish=finish), used, pause=pause)


def writes_until(over: threading.Event) -> Answer:
    """A streamed text, one word each 50 ms, that ends once `over` is set."""

    def pieces() -> Iterator[bytes]:
        number = 0
        while not over.is_set():
            number += 1
            yield event(delta(content=f"word{number} "))
        used = usage_chunk(prompt_tokens=900, completion_tokens=number, total_tokens=900 + number)
        yield from (event(delta(finish="stop")), event(used), DONE)

    return Answer(pieces=pieces(), pause=0.05)


def connect(tab: Tab, fake: FakeOpenAI) -> str:
    """Connect the fake through the form; returns the model's name in the lab."""
    name = f"model-{next(_numbers)}"
    page = tab.open("/endpoints/new/")
    page.fill("#id_base_url", fake.base_url)
    page.fill("#id_model_id", "fake")
    page.fill("#id_context_window", "32,768")
    page.fill("#id_name", name)
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/endpoints/models/*/")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    expect(page.locator("main")).to_contain_text("32,768")
    return name


def launch(
    tab: Tab, *models: str, tasks: Sequence[str] = ("parse-duration",), limits: dict[str, str] | None = None
) -> None:
    """Choose on the first page and launch with Ctrl Enter."""
    page = tab.open("/")
    for group, wanted in (("tasks", tasks), ("models", models or ("scripted/solver",))):
        choices = page.locator(f"#id_{group} label.choice")
        for at in range(choices.count()):
            choice = choices.nth(at)
            choice.locator("input").set_checked(choice.locator(".grow").inner_text().strip() in wanted)
    for name, value in (limits or {}).items():
        if page.locator("details.launch-more").get_attribute("open") is None:
            page.click("details.launch-more > summary")
        page.fill(f"#id_limit_{name}", value)
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/runs/*/" if len(tasks) * max(len(models), 1) == 1 else "**/experiments/*/")
    tab.mark()


def cancel(tab: Tab) -> None:
    """Cancel by keyboard, as the page's keys say: x asks once, Enter confirms."""
    tab.page.keyboard.press("x")
    expect(tab.page.locator("#cancel-dialog")).to_be_visible()
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("#cancel-dialog")).to_be_hidden()

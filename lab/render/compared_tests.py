"""Rows of a table of tests, a column a run. Written here and not as a template: there may be ten thousand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import NamedTuple

from django.utils.safestring import SafeString

from lab.render.icons import icon
from lab.render.text import safe, visible_html


class ShownResult(NamedTuple):
    """A result in words: class, icon and word; `assertion` is the line that says why it failed."""

    id: int
    state: str
    icon: str
    word: str
    assertion: str
    has_log: bool


class ShownTest(NamedTuple):
    """A row of the table. `results`: None where nothing is known of the test on that side."""

    name: str
    full_name: str
    chip: str
    results: tuple[ShownResult | None, ...]


def rows_html(tests: Iterable[ShownTest], absent: Sequence[str], *, with_logs: bool) -> SafeString:
    """The rows of a table's body. `absent`: for each run, the word for a test that it says nothing of.

    `with_logs`: whether the reader may read logs, which show the source of hidden tests.
    """
    return safe("".join(_row(test, absent, with_logs=with_logs) for test in tests))


def result_html(result: ShownResult) -> SafeString:
    """Icon and word of one result."""
    return _status_html(result.state, result.icon, result.word)


# Of the results of a table there are a handful, and three chips.
@lru_cache(maxsize=256)
def _status_html(state: str, mark: str, word: str) -> SafeString:
    return safe(f'<span class="status {escape(state)}">{icon(mark)}{visible_html(word)}</span>')


@lru_cache(maxsize=16)
def chip_html(chip: str) -> SafeString:
    """F2P, P2P, or "other"."""
    return safe(
        f'<span class="chip {escape(chip)}">{escape(chip.upper())}</span>'
        if chip
        else '<span class="quiet">other</span>'
    )


def _row(test: ShownTest, absent: Sequence[str], *, with_logs: bool) -> str:
    cells = "".join(
        f'<td><span class="status slate">{escape(word)}</span></td>'
        if result is None
        else _cell(result, with_logs)
        for result, word in zip(test.results, absent, strict=True)
    )
    title = visible_html(test.full_name, spans=0)
    # A name that was not cut is the title once more.
    name = title if test.name == test.full_name else visible_html(test.name)
    return (
        f'<tr data-row tabindex="-1"><th scope="row"><code title="{title}">'
        f"{name}</code></th><td>{chip_html(test.chip)}</td>{cells}</tr>"
    )


def _cell(result: ShownResult, with_logs: bool) -> str:
    log = f' <a href="/runs/tests/{result.id}/log">log</a>' if with_logs and result.has_log else ""
    assertion = ""
    if result.assertion:
        said = visible_html(result.assertion, spans=0)
        assertion = f'<code class="assertion" title="{said}">{said}</code>'
    return f"<td>{result_html(result)}{log}{assertion}</td>"

"""Markup for a file that stands by itself."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from lab.render.standalone import Standalone, style_element, symbols
from lab.render.text import visible_html

SPRITE = Path(__file__).resolve().parents[2] / "static" / "icons.svg"


@pytest.mark.parametrize(
    ("markup", "made"),
    [
        ('<a href="/runs/12/">run 12</a>', "<span>run 12</span>"),
        ('<a class="x" href="#row-12-7">7</a>', '<a class="x" href="#row-12-7">7</a>'),
        ('<a href="?runs=1,2&amp;at=1.7#row-1-7">7</a>', '<a href="#row-1-7">7</a>'),
        ('<a href="?runs=1,2">other</a>', "<span>other</span>"),
        ('<a href="//example.org/?a#row-1-2">7</a>', "<span>7</span>"),
        ('<a href="https://example.org/#row-1-2">7</a>', "<span>7</span>"),
        ('<a href="javascript:go()">7</a>', "<span>7</span>"),
        ('<a href="&#106;avascript:go()">7</a>', "<span>7</span>"),
        ('<a href="#a"><b>1</b></a> <a href="/b">2</a>', '<a href="#a"><b>1</b></a> <span>2</span>'),
        ('<p onclick="go()" class="y">text</p>', '<p class="y">text</p>'),
        ("<p OnClick='go()'>text</p>", "<p>text</p>"),
        (
            '<div hx-get="/x" data-lazy="/runs/1/log" data-kind="edit">z</div>',
            '<div data-kind="edit">z</div>',
        ),
        ('<p style="background: url(http://h/x)">text</p>', "<p>text</p>"),
        ('<img src="http://h/x.png" alt="x">', ""),
        ("<script>go()</script>", "go()"),
        ('<script src="/x.js"></script>', ""),
        ('<iframe srcdoc="&lt;script&gt;"></iframe>', ""),
        ('<form action="/x"><button>Go</button></form>', "Go"),
        ("<!-- said by nobody -->", "&lt;!-- said by nobody -->"),
        ('<details open class="d"><summary>s</summary>b</details>',) * 2,
        ('<rect fill="url(http://h/#x)" width="3"/>', '<rect width="3"/>'),
        ('<p title="a > b">text</p>', '<p title="a &gt; b">text</p>'),
        ('<use href="/static/icons.svg#ok"/>', '<use href="#icon-ok"/>'),
        ('<use xlink:href="http://h/x.svg#ok"/>', "<use/>"),
        ('<svg viewBox="0 0 16 16" class="i"><path d="M1 2"/></svg>',) * 2,
        ("1 < 2", "1 &lt; 2"),
    ],
)
def test_nothing_in_it_runs_or_leads_to_another_place(markup: str, made: str) -> None:
    assert Standalone()(markup) == made


def test_text_that_was_escaped_stays_as_it_is() -> None:
    text = visible_html("<script>alert(1)</script> <img onerror=x> 'a' \"b\" \x1b[31m")
    assert Standalone()(f"<pre>{text}</pre>") == f"<pre>{text}</pre>"


def test_the_icons_of_the_sprite_are_there_by_the_names_that_links_to_them_get() -> None:
    sprite = SPRITE.read_text()
    made = symbols(sprite)
    assert made.count("<symbol ") == sprite.count("<symbol ")
    assert '<symbol id="icon-ok" viewBox="0 0 16 16">' in made
    assert "xmlns" not in made


def test_a_policy_can_name_the_style_element_by_its_hash() -> None:
    element, source = style_element(["/* why */ a { color: red }", "b { color: blue }"])
    text = element.removeprefix("<style>").removesuffix("</style>")
    assert text == "a { color: red }\nb { color: blue }"
    assert source == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("sheet", ["a{background:url(x.png)}", '@import "x.css";', "</style><script>"])
def test_a_sheet_that_asks_for_something_else_is_refused(sheet: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in a file by itself"):
        style_element([sheet])

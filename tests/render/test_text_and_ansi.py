"""Hostile text becomes safe HTML: nothing acts, nothing is lost, and the time is linear."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.render.ansi import ansi
from lab.render.code import code
from lab.render.markdown import render_markdown
from lab.render.text import cut_in_the_middle, first_lines, one_line, visible
from tests.timing import require_growth

HOSTILE = st.text(
    alphabet=st.one_of(
        st.characters(),
        st.sampled_from(list("<>&\"'\x1b[];m0123456789K\x07\x00\r\n\u202e\u2066\ud800/scriptonload=`*_#")),
    ),
    max_size=400,
)
_TAG = re.compile(r"<[^>]*>")
_ALLOWED_TAG = re.compile(r'<span class="[a-z0-9 -]+">|</span>')


def tags_of(markup: str) -> list[str]:
    return _TAG.findall(markup)


@given(HOSTILE)
@settings(max_examples=300)
def test_any_text_becomes_text_and_spans_only(text: str) -> None:
    for markup in (visible(text), ansi(text), code(text, "a.py")):
        assert all(_ALLOWED_TAG.fullmatch(tag) for tag in tags_of(markup))
        plain = html.unescape(_TAG.sub("", markup))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", plain)


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp")), max_size=300))
def test_ordinary_text_is_shown_exactly_as_it_is(text: str) -> None:
    for markup in (visible(text), ansi(text), code(text, "a.py")):
        assert html.unescape(_TAG.sub("", markup)) == text


@given(HOSTILE)
@settings(max_examples=200)
def test_markdown_of_any_text_holds_nothing_that_acts(text: str) -> None:
    markup = render_markdown(text)
    for tag in tags_of(markup):
        assert re.match(
            r"</?(?:p|br|hr|em|strong|s|code|pre|blockquote|ul|ol|li|a|h[1-6]|table|thead|tbody|tr|th|td)\b",
            tag,
        )
        assert not re.search(r"\son\w+\s*=|javascript:|data:", tag, re.I)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[click](javascript:alert(1))",
        "![x](http://evil.example/beacon.png)",
        '<img src=x onerror="alert(1)">',
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
    ],
)
def test_markdown_neutralises_scripts_links_and_pictures(text: str) -> None:
    markup = render_markdown(text)
    assert "<script" not in markup
    assert "<img" not in markup
    assert 'href="javascript' not in markup
    assert 'href="data' not in markup


def test_markdown_keeps_prose_and_leads_out_without_a_referrer() -> None:
    markup = render_markdown("**Keep** `wall` time, see [docs](https://example.org).")
    assert "<strong>Keep</strong>" in markup
    assert 'rel="noopener noreferrer nofollow"' in markup


def test_colours_become_classes() -> None:
    assert ansi("\x1b[1;31mred\x1b[0m plain") == '<span class="fg-1 bold">red</span> plain'
    assert ansi("\x1b[38;2;255;0;0mtrue\x1b[0m") == '<span class="fg-1">true</span>'
    assert ansi("\x1b[01;31m\x1b[Khit\x1b[m\x1b[K") == '<span class="fg-1 bold">hit</span>'


def test_concealed_text_is_shown() -> None:
    assert "secret" in ansi("\x1b[8msecret\x1b[0m")


def test_a_carriage_return_leaves_what_was_printed_over() -> None:
    assert ansi("10 %\r100 %\n\x1b[32mok\x1b[0m\r\n") == '100 %\n<span class="fg-2">ok</span>\n'


@pytest.mark.parametrize(
    ("sequence", "shown"),
    [
        ("\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\", "http://evil.example"),
        ("\x1b]52;c;aGFjaw==\x07", "52;c;aGFjaw=="),
        ("\x1b]0;title\x07", "0;title"),
        ("\x1b[2J\x1b[H", "[2J"),
        ("\x1bc", "c"),
    ],
)
def test_sequences_that_act_stay_visible_as_text(sequence: str, shown: str) -> None:
    markup = ansi(f"\x1b[31m{sequence}\x1b[0m")
    assert "\x1b" not in markup
    assert "␛" in markup
    assert shown in html.unescape(_TAG.sub("", markup))
    assert "<a" not in markup


def test_bidi_marks_and_lone_surrogates_are_named() -> None:
    assert visible("a\u202eb") == 'a<span class="unseen">⟨U+202E⟩</span>b'
    assert "⟨U+DC80⟩" in visible("\udc80")
    assert visible("\x00" * 1_000) == '<span class="unseen">␀×1,000</span>'


@pytest.mark.serial
@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;" + "a" * 1_000_000,
        "\x1b]" * 500_000,
        "\x1b[" + "1;" * 500_000,
        "\x1b[" * 500_000,
        "\x1b[31ma" * 150_000,
        "\x00a" * 500_000,
        "\r" * 1_000_000,
        "\u202e" * 1_000_000,
    ],
    ids=["open title", "many titles", "endless parameters", "many openings", "colours", "nul", "cr", "bidi"],
)
def test_a_megabyte_of_anything_takes_time_that_grows_with_its_length_only_and_few_nodes(text: str) -> None:
    assert ansi(text).count("<span") <= 3_000
    require_growth(lambda characters: ansi(text[:characters]), whole=len(text))


def test_long_or_unknown_code_is_not_highlighted() -> None:
    assert "<span" not in code("x = 1\n" * 5_000, "a.py")
    assert "<span" not in code("x = 1", "a.unknown-language")
    assert '<span class="k-k">def</span>' in code("def f(): pass", "lib/a.py")


def test_short_forms_of_a_text() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 300, 10) == "xxxxxxxxx…"
    assert cut_in_the_middle("tests/test_dst.py::test_" + "y" * 100, 40).endswith("yyyy")
    assert first_lines("1\n2\n3\n4", lines=2, characters=100) == "1\n2"
    assert first_lines("12345", lines=2, characters=3) == "123"

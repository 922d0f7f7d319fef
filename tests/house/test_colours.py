"""Colours stand in tokens.css alone, and every one of them can be read on what it stands on."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.house.tree import files, read

TOKENS = "static/css/tokens.css"
GROUNDS = ("bg", "surface", "sunken", "raised")
STATES = (
    "running",
    "queued",
    "paused",
    "resolved",
    "unresolved",
    "invalid",
    "flagged",
    "f2p",
    "p2p",
    "add",
    "del",
)
KINDS = ("kind-read", "kind-edit", "kind-test", "kind-shell", "kind-final")
PLOTS = tuple(f"plot-{number}" for number in range(1, 7))

# (foreground, background) by the WCAG ratio they must reach.
TEXT = [
    *product(("ink", "ink-2", "ink-3", "accent", *STATES), GROUNDS),
    *((state, f"{state}-bg") for state in STATES),
    *(("ink", f"{state}-bg") for state in STATES),
    *product(("ink", "ink-2", "ink-3", "accent"), ("accent-weak",)),
    ("add", "add-strong"),
    ("del", "del-strong"),
    ("on-accent", "accent"),
    ("ink", "hit"),
]
GRAPHICS = [*product(("line-strong", *KINDS), GROUNDS), *product(PLOTS, ("bg", "surface"))]

NAMED = "|".join(
    [
        "white|black|silver|maroon|navy|teal|olive|lime|aqua|fuchsia|pink|brown|gold|crimson|tomato|salmon|coral",
        "khaki|violet|indigo|beige|ivory|whitesmoke|gainsboro|(?:light|dark|dim|slate)?gr[ae]y|(?:dark)?red",
        "(?:dark|light)?green|(?:dark|light|steel|royal|dodger)?blue|yellow|orange|purple|firebrick",
    ]
)
LITERAL = re.compile(
    rf"#[0-9a-f]{{3,8}}\b|\b(?:rgba?|hsla?|hwb|lab|lch|oklab|oklch|color)\(|(?<![\w-])(?:{NAMED})(?![\w-])",
    re.I,
)
DECLARATION = re.compile(r"([\w-]+)\s*:\s*([^;{}]+)(?=[;}])")


def without_comments(css: str) -> str:
    return re.sub(r"/\*.*?\*/", "", css, flags=re.S)


def palettes(css: str) -> dict[str, dict[str, str]]:
    """The hexadecimal custom properties of the light rule, of dark by system and of dark by choice."""
    found: dict[str, dict[str, str]] = {"light": {}, "dark by system": {}, "dark by choice": {}}
    css = without_comments(css)
    in_media = "".join(
        re.findall(r"@media[^{]*prefers-color-scheme:\s*dark[^{]*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", css)
    )
    outside = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}", "", css)
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", outside):
        name = "dark by choice" if re.search(r"""data-theme=["']?dark""", selector) else "light"
        found[name] |= colours(body)
    for _selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", in_media):
        found["dark by system"] |= colours(body)
    return found


def colours(body: str) -> dict[str, str]:
    return {
        name: value.upper()
        for name, value in re.findall(r"--([\w-]+)\s*:\s*(#[0-9A-Fa-f]{6})\s*[;}]", body + "}")
    }


def luminance(colour: str) -> float:
    """WCAG 2 relative luminance of #RRGGBB."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measure_agrees_with_known_ratios() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("palette", ["light", "dark by system", "dark by choice"])
def test_text_reaches_4_5_and_graphics_3_0_on_everything_they_stand_on(palette: str) -> None:
    colour = palettes(read(TOKENS))[palette]
    needed = {name for pair in TEXT + GRAPHICS for name in pair} | {"line"}
    assert needed - colour.keys() == set()
    weak = [
        f"--{front} on --{back}: {contrast(colour[front], colour[back]):.2f}, must be {least}"
        for pairs, least in ((TEXT, 4.5), (GRAPHICS, 3.0))
        for front, back in pairs
        if contrast(colour[front], colour[back]) < least
    ]
    assert weak == []


def test_dark_is_the_same_by_system_and_by_choice() -> None:
    found = palettes(read(TOKENS))
    assert found["dark by system"] == found["dark by choice"]
    assert found["light"].keys() == found["dark by choice"].keys()


def colour_literals(css: str) -> list[str]:
    return [
        f"{name}: {value.strip()}"
        for name, value in DECLARATION.findall(without_comments(css))
        if LITERAL.search(re.sub(r"url\([^)]*\)|\"[^\"]*\"|'[^']*'", "", value))
    ]


def test_no_style_sheet_but_tokens_names_a_colour() -> None:
    sheets = [name for name in files(".css", under="static/css/") if name != TOKENS]
    assert sheets
    assert {name: found for name in sheets if (found := colour_literals(read(name)))} == {}


@pytest.mark.parametrize(
    ("css", "literal"),
    [
        ("a { color: #fff; }", True),
        ("a { border: 1px solid rgb(0 0 0 / .1) }", True),
        ("a { color: white; }", True),
        ("#add { color: var(--add); }", False),
        ("a:hover, #bad { background: transparent; white-space: pre; color: currentColor }", False),
        ("a { transition: background-color 120ms; }", False),
    ],
)
def test_the_search_tells_a_colour_from_a_selector(css: str, literal: bool) -> None:
    assert bool(colour_literals(css)) is literal


def test_no_template_script_sprite_or_python_names_a_colour() -> None:
    quoted = re.compile(r"""(["'`])#(?:[0-9a-f]{6}|[0-9a-f]{8})\1|(["'`])(?:rgba?|hsla?)\(""", re.I)
    painted = re.compile(r"""\b(?:fill|stroke|stop-color|color|bgcolor)="(?!none"|currentColor"|url\(|\{)""")
    found = [name for name in files(".py", under="lab/") + scripts_and_pages() if quoted.search(read(name))]
    found += [
        name
        for name in [*files(".html", under="templates/"), "static/icons.svg"]
        if painted.search(read(name))
    ]
    assert found == []


def scripts_and_pages() -> list[str]:
    return files(".js", ".html", under="static/", without=("static/vendor/",)) + files(
        ".html", under="templates/"
    )


def test_every_custom_property_that_is_used_is_defined() -> None:
    css = "".join(without_comments(read(name)) for name in files(".css", under="static/css/"))
    defined = set(re.findall(r"(--[\w-]+)\s*:", css))
    used = set(re.findall(r"var\(\s*(--[\w-]+)\s*\)", css))
    assert used - defined == set()

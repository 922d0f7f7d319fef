"""The pages obey the Content-Security-Policy, and text becomes HTML in one place only."""

from __future__ import annotations

import ast
import re

import pytest
from django.core.management import call_command

from tests.house.tree import files, own_python, read

MAKES_SAFE = {"mark_safe", "SafeString", "SafeText", "SafeData", "html_safe", "__html__"}

# What no template may hold, and why.
FORBIDDEN = {
    "a style attribute (a class or a data- attribute does it)": r"""\sstyle\s*=""",
    "a style element": r"<style\b",
    "an inline script": r"""<script(?![^>]*\bsrc=)(?![^>]*type="application/json")""",
    "an event handler": r"""\son[a-z]+\s*=\s*["']""",
    "a handler that htmx would evaluate": r"\bhx-on\b|\bhx-on:",
    "script in a value that htmx would evaluate": r"""=\s*["']js:""",
    "a javascript: address": r"javascript:",
    "something loaded from another host": r"""<(script|link|img)\b[^>]*\b(src|href)=["'](https?:)?//""",
    "text passed on unescaped": r"\|\s*safe\b|\{%\s*autoescape\s+off",
}


def offending(templates: dict[str, str], pattern: str) -> list[str]:
    found = []
    for name, source in templates.items():
        without_comments = re.sub(r"\{#.*?#\}|\{% comment %\}.*?\{% endcomment %\}", "", source, flags=re.S)
        found += [f"{name}: {match.group(0).strip()}" for match in re.finditer(pattern, without_comments)]
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_template_holds(what: str) -> None:
    templates = {name: read(name) for name in files(".html", under="templates/")}
    assert templates
    assert offending(templates, FORBIDDEN[what]) == []


@pytest.mark.parametrize(
    "source",
    [
        '<p style="color: red">',
        "<style>p {}</style>",
        "<script>start()</script>",
        '<button onclick="go()">',
        '<button hx-on:click="go()">',
        """<a hx-vals='js:{a: 1}'>""",
        '<a href="javascript:go()">',
        '<script src="https://example.org/a.js"></script>',
        "{{ text|safe }}",
        "{% autoescape off %}",
    ],
)
def test_the_patterns_find_what_they_are_for(source: str) -> None:
    assert any(offending({"x.html": source}, pattern) for pattern in FORBIDDEN.values())


@pytest.mark.parametrize(
    "source",
    [
        '<script src="{% static \'js/live.js\' %}" type="module"></script>',
        '<script id="facts" type="application/json">{}</script>',
        '<a href="https://example.org/">docs</a>',
        '<button type="button" data-action="cancel">Cancel</button>',
    ],
)
def test_the_patterns_leave_alone_what_is_allowed(source: str) -> None:
    assert not any(offending({"x.html": source}, pattern) for pattern in FORBIDDEN.values())


def test_only_the_render_package_makes_text_safe() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name in own_python()
        if name.startswith("lab/") and not name.startswith("lab/render/")
        for node in ast.walk(ast.parse(read(name)))
        if (isinstance(node, ast.Name) and node.id in MAKES_SAFE)
        or (isinstance(node, ast.Attribute) and node.attr in MAKES_SAFE)
        or (isinstance(node, ast.alias) and node.name in MAKES_SAFE)
        or (isinstance(node, ast.FunctionDef) and node.name in MAKES_SAFE)
    ]
    assert found == []


def test_our_scripts_evaluate_no_text_and_set_no_style_attribute() -> None:
    pattern = re.compile(
        r"""\beval\(|new Function\(|document\.write|setAttribute\(\s*["']style|\.cssText\s*="""
    )
    scripts = files(".js", under="static/", without=("static/vendor/",))
    assert scripts
    assert [f"{name}: {match.group(0)}" for name in scripts for match in pattern.finditer(read(name))] == []


def test_every_fragment_says_in_its_first_line_what_it_needs() -> None:
    fragments = [name for name in files(".html", under="templates/") if "/_" in name]
    assert [name for name in fragments if not read(name).startswith(("{#", "{% comment"))] == []


def test_the_vendored_files_are_those_of_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("vendor", "--check")
    assert "as the manifest says" in capsys.readouterr().out

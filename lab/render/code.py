"""Source code as HTML with a class a token; only for what is short enough to be read."""

from __future__ import annotations

from functools import lru_cache

from django.utils.safestring import SafeString
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, String, Token, _TokenType
from pygments.util import ClassNotFound

from lab.render.text import safe, visible_html

# A node for each word made 1,000 small steps cost ten seconds in a browser: few kinds, none in long texts.
_HIGHLIGHTED_CHARACTERS = 8_000
_SPANS = 1_000
_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Name.Function, "n"),
    (Name.Class, "n"),
    (Name.Decorator, "n"),
)


@lru_cache(maxsize=64)
def _lexer(suffix: str) -> Lexer | None:
    try:
        return get_lexer_for_filename("a" + suffix, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return ("." + name.rpartition(".")[2])[:16] if "." in name else ""


def _class_of(token: _TokenType) -> str:
    # A token type is a tuple of names that contains its subtypes.
    return next((name for kind, name in _KINDS if kind.__contains__(token)), "")


def code(text: str, path: str) -> SafeString:
    """`text` as safe HTML, highlighted by the ending of `path`; plain when long or of an unknown language."""
    lexer = _lexer(_suffix(path)) if len(text) <= _HIGHLIGHTED_CHARACTERS else None
    if lexer is None:
        return safe(visible_html(text))
    parts = []
    spans = 0
    at = 0
    for start, token, value in lexer.get_tokens_unprocessed(text):
        name = _class_of(token) if token is not Token.Text else ""
        # A lexer that skips or repeats text must not change what is shown.
        if start != at:
            break
        at += len(value)
        shown = visible_html(value)
        spans += bool(name)
        parts.append(f'<span class="k-{name}">{shown}</span>' if name and spans <= _SPANS else shown)
    return safe("".join(parts) + visible_html(text[at:]))

"""Text that only looks like somebody's key, for whoever shows it.

Such text belongs to the trajectory: it is stored, sent to the model and hashed as it is. Pages, streams,
search and exports show it masked, with a note that says so. A key in another coding (base64, split over
lines) is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_NOTE = "[masked, looks like {}]"
SECRET_VALUE = _NOTE.format("a secret value")
PASSWORD = _NOTE.format("a password")


class KeyShape(NamedTuple):
    """How the keys of one provider look: `literal` stands in each of them and is left to be seen.

    `pattern` is matched from the literal on, `begun` is what such a key may be while it is still being
    written. `before` is what stands before the literal, for keys that do not begin with it. `digit`: one must
    be among them, or it is a word.
    """

    literal: str
    kind: str
    pattern: re.Pattern[str]
    begun: re.Pattern[str]
    digit: bool = False
    before: re.Pattern[str] | None = None


class _Span(NamedTuple):
    """A place to mask: `text[start:end]` becomes `shown`."""

    start: int
    end: int
    shown: str


_WORD = "A-Za-z0-9"
_DASHED = "A-Za-z0-9_-"


def _shape(literal: str, kind: str, characters: str, least: int, *, digit: bool = False) -> KeyShape:
    start = re.escape(literal)
    return KeyShape(
        literal,
        kind,
        re.compile(f"{start}[{characters}]{{{least},}}+"),
        re.compile(f"{start}[{characters}]++"),
        digit,
    )


def _exact(literal: str, kind: str, tail: str, *, before: str = "", begun: str = "") -> KeyShape:
    """A key of a known length or with parts. `before` has a fixed width."""
    return KeyShape(
        literal,
        kind,
        re.compile(re.escape(literal) + tail),
        re.compile(re.escape(literal) + (begun or r"[A-Za-z0-9_.-]++")),
        before=re.compile(before) if before else None,
    )


def _by_literal(*shapes: KeyShape) -> dict[str, KeyShape]:
    return {shape.literal: shape for shape in shapes}


# Literals first that contain others: the first shape that takes a place names it. Each key of these is a run
# of at least 20 letters, digits and the like.
_SHAPES = _by_literal(
    _shape("sk-ant-", "an Anthropic key", _DASHED, 20),
    _shape("sk-or-v1-", "an OpenRouter key", _WORD, 20),
    _shape("sk-lf-", "a Langfuse key", _DASHED, 20),
    _shape("pk-lf-", "a Langfuse key", _DASHED, 20),
    _shape("sk-", "an OpenAI key", _DASHED, 20, digit=True),
    _shape("gsk_", "a Groq key", _WORD, 20),
    _shape("csk-", "a Cerebras key", _WORD, 20, digit=True),
    _shape("xai-", "an xAI key", _WORD, 20),
    _shape("r8_", "a Replicate key", _WORD, 20),
    _shape("nvapi-", "an NVIDIA key", _DASHED, 20),
    _shape("pplx-", "a Perplexity key", _WORD, 20),
    _shape("fw_", "a Fireworks key", _WORD, 20),
    _shape("tgp_v1_", "a Together key", _DASHED, 20),
    _shape("lsv2_", "a LangSmith key", "A-Za-z0-9_", 20, digit=True),
    _shape("pcsk_", "a Pinecone key", "A-Za-z0-9_", 20),
    _shape("tvly-", "a Tavily key", _DASHED, 20),
    _shape("hf_", "a Hugging Face token", _WORD, 20),
    *(_shape(f"gh{kind}_", "a GitHub token", _WORD, 20) for kind in "pousr"),
    _shape("github_pat_", "a GitHub token", "A-Za-z0-9_", 20),
    *(_shape(f"gl{kind}-", "a GitLab token", _DASHED, 16) for kind in ("pat", "dt", "rt", "cbt", "ptt")),
    *(_shape(f"xox{kind}-", "a Slack token", "A-Za-z0-9-", 15) for kind in "abeoprs"),
    _shape("xapp-", "a Slack token", "A-Za-z0-9-", 15),
    _shape("tlab_", "a token of this lab", _DASHED, 30),
    _exact("AIza", "a Google key", r"[A-Za-z0-9_-]{35,}+"),
    _shape("ya29.", "a Google token", _DASHED, 20),
    _shape("GOCSPX-", "a Google secret", _DASHED, 20),
    _exact("AKIA", "an AWS key", r"[A-Z0-9]{16}(?![A-Za-z0-9])", begun=r"[A-Z0-9]++"),
    _exact("ASIA", "an AWS key", r"[A-Z0-9]{16}(?![A-Za-z0-9])", begun=r"[A-Z0-9]++"),
    *(
        _exact(f"{digit}Q~", "an Azure secret", r"[A-Za-z0-9~._-]{31,34}(?![A-Za-z0-9~._-])",
               before=r"[A-Za-z0-9~._-]{3}")
        for digit in "78"
    ),
    *(_shape(f"{kind}_", "a Stripe key", _WORD, 16) for kind in ("sk_live", "sk_test", "rk_live", "rk_test")),
    _exact("SG.", "a SendGrid key", r"[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    _shape("npm_", "an npm token", _WORD, 30),
    _shape("pypi-AgE", "a PyPI token", _DASHED, 40),
    _shape("tlab_", "a token of this lab", _DASHED, 40),
    _shape("dckr_pat_", "a Docker token", _DASHED, 20),
    _shape("dckr_oat_", "a Docker token", _DASHED, 20),
    *(_shape(f"do{kind}_v1_", "a DigitalOcean token", "a-f0-9", 40) for kind in "por"),
    _shape("lin_api_", "a Linear key", _WORD, 20),
    _shape("ntn_", "a Notion token", _WORD, 30),
    *(_shape(f"shp{kind}_", "a Shopify token", "a-fA-F0-9", 32) for kind in ("at", "ss", "ca", "pa")),
    _shape("dapi", "a Databricks token", "a-f0-9", 32),
    _shape("sntryu_", "a Sentry token", "a-f0-9", 40),
    _shape("glsa_", "a Grafana token", "A-Za-z0-9_", 30),
    _shape("NRAK-", "a New Relic key", "A-Z0-9", 20),
    _shape("PMAK-", "a Postman key", _DASHED, 30),
    _shape("hvs.", "a Vault token", _DASHED, 24),
    _shape("dp.pt.", "a Doppler token", _WORD, 30),
    _shape("sbp_", "a Supabase token", "a-f0-9", 40),
    _shape("figd_", "a Figma token", _DASHED, 30),
    _shape("sq0csp-", "a Square secret", _DASHED, 30),
    _shape("ATATT3", "an Atlassian token", "A-Za-z0-9_=-", 40),
    _shape("AGE-SECRET-KEY-1", "an age key", "A-Z0-9", 40),
    _exact("eyJ", "a signed token", r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
)  # fmt: skip
# These hold other characters as well, and literals that are rare enough to be looked for in every text.
_RARE_SHAPES = _by_literal(
    _exact("hooks.slack.com/services/", "a Slack address", r"[A-Z0-9]{6,}+/[A-Z0-9]{6,}+/[A-Za-z0-9]{16,}+",
           begun=r"[A-Za-z0-9/]++"),
    _exact("/api/webhooks/", "a Discord address", r"[0-9]{10,}+/[A-Za-z0-9_-]{30,}+",
           begun=r"[A-Za-z0-9_/-]++"),
    _exact("/sign-in/", "a sign-in link", r"[A-Za-z0-9_-]{40,}+"),
    _exact("AccountKey=", "an Azure key", r"[A-Za-z0-9+/]{40,}+={0,2}", begun=r"[A-Za-z0-9+/]++"),
    _exact("SharedAccessKey=", "an Azure key", r"[A-Za-z0-9+/]{40,}+={0,2}", begun=r"[A-Za-z0-9+/]++"),
    _exact(":AA", "a Telegram token", r"[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", before=r"[0-9]{8}"),
    _shape("whsec_", "a Stripe secret", "A-Za-z0-9+/=", 24),
    _shape("sntrys_", "a Sentry token", "A-Za-z0-9_+/=", 30),
    _shape("glc_", "a Grafana token", "A-Za-z0-9+/=", 40),
)  # fmt: skip

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*+[A-Za-z]")
# A word character before a key belongs to it, unless it is the end of an escaped line end or equals sign.
_ESCAPED = re.compile(r"(?:\\[nrtf]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2})\Z")

_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END = "-----END "
_PRIVATE_KEY_CHARACTERS = 16_000
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}+")
_LONG_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{40,}+")

_LOGIN = re.compile(r"://[^\s/:@\"'<>]{0,80}+:(?![$\[{<*])([^\s/@\"'<>]{3,200}+)@")
_LOGIN_BEGUN = re.compile(r"://[^\s/:@\"'<>]{0,80}+:(?![$\[{<*])([^\s/@\"'<>]{1,200}+)\Z")
_BEARER = re.compile(r"[Bb]earer (?:token )?([A-Za-z0-9_.~+/-]{20,}+=*+)")
_AUTHORIZATION = re.compile(
    r"[Aa]uthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:[A-Za-z]{1,12} )?([A-Za-z0-9_.~+/-]{16,}+=*+)"
)
_HEADERS = (
    ("Bearer ", _BEARER),
    ("bearer ", _BEARER),
    ("Authorization", _AUTHORIZATION),
    ("authorization", _AUTHORIZATION),
)

# A name that says it holds a secret, and what it is given.
_NAMES_IN_CAPITALS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")
_OTHER_NAMES = ("key", "token", "secret", "passw", "Key", "Token", "Secret", "Passw")
_GIVEN = re.compile(
    r"[A-Za-z0-9_]{0,24}+(?:\\?[\"'])?\s{0,3}(?:=>|:=|=|:)\s{0,3}(\\?[\"'`])?(?![$\[{<*%])"
    r"([A-Za-z0-9_+/=.~!@#%^&*-]{8,})"
)
_GIVEN_BEGUN = re.compile(
    r"[A-Za-z0-9_]{0,24}+(?:\\?[\"'])?\s{0,3}(?:=>|:=|=|:)\s{0,3}(\\?[\"'`])?(?![$\[{<*%])"
    r"([A-Za-z0-9_+/=.~!@#%^&*-]{1,})\Z"
)
_NAME_CHARACTERS = 60
_SECRET_NAME = re.compile(
    r"(?:api|secret|access|private|auth|account|subscription|encryption|signing|license|master|service)"
    r"[_-]?key(?:[_-]?id)?$|(?:token|secret|passwd|password|passphrase|credentials?|pwd)(?:[_-]?value)?$",
    re.IGNORECASE,
)
# `env` and dotenv files: an assigned name in capitals, first on its line.
_LINE_BEFORE = re.compile(
    r"(?:\A|[\n\r]|\\n)[ +-]{0,8}(?:[0-9]{1,6}[.:|)\t ]\s{0,8})?(?:export |set |ENV )?\Z"
)
_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+\.?")
_BARE_WORD = re.compile(r"[A-Za-z_.]*")
_CHANGES = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")

# Nothing shorter holds a key.
_SHORTEST = 12


def mask_key_shapes(text: str, *, growing: bool = False) -> str:
    """`text` with everything masked that has the shape of a known provider's key or names itself a secret.

    The same number of lines; colours of a terminal stay. `growing`: the text is cut or still being written,
    and its end is masked too where it may be the beginning of a key. Linear in time.
    """
    if len(text) < _SHORTEST and not growing:
        return text
    if len(text) <= _REMEMBERED:
        return _masked_again(text, growing)
    return _masked_lately(text, growing) if len(text) <= _LONG else _masked(text, growing)


def _masked(text: str, growing: bool) -> str:
    if "\x1b" in text:
        return _masked_between_escapes(text, growing=growing)
    spans = _spans(text, growing=growing)
    return _replaced(text, spans) if spans else text


# Short texts of a page are mostly the same ones: names, models, prices, commands.
_REMEMBERED = 200
_masked_again = lru_cache(maxsize=4096)(_masked)
# An event says a longer one twice: what the model saw, and the message that holds it.
_LONG = 20_000
_masked_lately = lru_cache(maxsize=64)(_masked)


def masked(value: Any) -> Any:
    """The same structure with every text masked, names of objects included.

    What holds nothing to mask is returned as the same object.
    """
    if isinstance(value, str):
        return value if len(value) < _SHORTEST else mask_key_shapes(value)
    if isinstance(value, dict):
        return _masked_object(value)
    if isinstance(value, (list, tuple)):
        items = [masked(item) for item in value]
        if all(left is right for left, right in zip(items, value, strict=True)):
            return value
        return items if isinstance(value, list) else tuple(items)
    return value


def _masked_object(value: dict[Any, Any]) -> dict[Any, Any]:
    """Most of what it holds are short names and numbers, which are not asked about one by one."""
    changed: dict[Any, Any] = {}
    same = True
    for key, item in value.items():
        name = key if isinstance(key, str) and len(key) < _SHORTEST else masked(key)
        shown = masked(item) if isinstance(item, (str, dict, list, tuple)) else item
        same = same and name is key and shown is item
        changed[name] = shown
    return value if same else changed


def masked_beginning(text: str, characters: int) -> str:
    """The first characters of a text, masked; also a key of which the cut leaves only the beginning."""
    return mask_key_shapes(text[:characters], growing=len(text) > characters)


def masked_end(text: str, characters: int, *, growing: bool = False, around: int = 400) -> str:
    """The last characters of a text, masked, also where a key begins `around` characters before them."""
    if len(text) <= characters:
        return mask_key_shapes(text, growing=growing)
    return mask_key_shapes(text[-characters - around :], growing=growing)[-characters:]


# A text that grows ends in a value of at most so many characters, its name included.
_LONGEST_VALUE = 600


def _spans(text: str, *, growing: bool) -> list[_Span]:
    """What to mask, in order and without overlaps."""
    runs = _runs(text, growing=growing)
    if (
        (not runs or _HASH.fullmatch(text))
        and not growing
        and "=" not in text
        and "://" not in text
        and "uthorization" not in text
    ):
        # Nearly all of a page.
        return []
    found: list[_Span] = []
    if runs or growing:
        for literal in filter(runs.__contains__, _SHAPES):
            found += _keys_of(_SHAPES[literal], text, growing)
        for literal in filter(text.__contains__, _RARE_SHAPES):
            found += _keys_of(_RARE_SHAPES[literal], text, growing)
        if "-----BEGIN " in text:
            found += _private_keys(text, growing)
    found += _headers_and_logins(text, growing)
    found += _all_named_values(text, runs, growing)
    if len(found) < 2:
        return found
    # The sort is stable: of two in the same place the one found first stays, which names its provider.
    found.sort(key=lambda span: span.start)
    kept = [found[0]]
    for span in found[1:]:
        if span.start >= kept[-1].end:
            kept.append(span)
    return kept


_RUN_CHARACTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+-")
_RUN_OR_NOT = bytes(97 if code in _RUN_CHARACTERS else 32 for code in range(256))
_SHORTEST_RUN = b"a" * 16
# Letters and digits change at least twice in one run.
_CHANGE = "(?:[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z]))"
_HASH = re.compile("[0-9a-f]{32,128}")
_RANDOM_RUN = re.compile(rf"{_CHANGE}[^\n]*?{_CHANGE}")


def _runs(text: str, *, growing: bool) -> str:
    """The long runs of characters that keys are made of, and the last run of a text that grows.

    This one look is what most texts cost.
    """
    data = text.encode("utf-8", "replace")
    flat = data.translate(_RUN_OR_NOT)
    runs = []
    at = flat.find(_SHORTEST_RUN)
    while at >= 0:
        end = flat.find(b" ", at)
        end = len(flat) if end < 0 else end
        runs.append(data[at:end])
        at = flat.find(_SHORTEST_RUN, end)
    if growing:
        runs.append(data[flat.rfind(b" ") + 1 :])
    return b"\n".join(runs).decode("ascii")


def _replaced(text: str, spans: list[_Span]) -> str:
    parts: list[str] = []
    at = 0
    for span in spans:
        parts += (text[at : span.start], span.shown)
        at = span.end
    return "".join([*parts, text[at:]])


def _masked_between_escapes(text: str, *, growing: bool) -> str:
    """Colours may stand in the middle of a key: it is looked for without them, and they follow its mask."""
    plain = _ESCAPES.sub("", text)
    spans = _spans(plain, growing=growing)
    if not spans:
        return text
    parts: list[str] = []
    at = removed = 0
    # One at a time: a long text may hold so many that the garbage collector would be what takes time.
    escapes = _ESCAPES.finditer(text)
    escape = next(escapes, None)
    for span in spans:
        # An escape right before a span stays before it, one right after it stays after.
        while escape is not None and escape.start() - removed <= span.start:
            removed += len(escape.group())
            escape = next(escapes, None)
        parts += (text[at : span.start + removed], span.shown)
        at = span.start + removed
        inside = []
        while escape is not None and escape.start() - removed < span.end:
            inside.append(escape.group())
            removed += len(escape.group())
            escape = next(escapes, None)
        parts += inside
        at = span.end + removed
    return "".join([*parts, text[at:]])


def _keys_of(shape: KeyShape, text: str, growing: bool) -> Iterator[_Span]:
    literal, size = shape.literal, len(shape.literal)
    at = text.find(literal)
    while at >= 0:
        after = at + size
        if start := _begins_at(shape, text, at):
            match = shape.pattern.match(text, at)
            if match is None and growing:
                match = shape.begun.match(text, at)
                match = match if match is not None and match.end() == len(text) else None
            elif match is not None:
                after = match.end()
                if shape.digit and not any(map(str.isdigit, match.group())):
                    match = match if growing and after == len(text) else None
            if match is not None:
                after = match.end()
                yield _Span(start - 1, after, f"{literal}…{_NOTE.format(shape.kind)}")
        at = text.find(literal, after)


def _begins_at(shape: KeyShape, text: str, at: int) -> int:
    """One more than where the key begins whose literal stands at `at`, 0 where none can."""
    if shape.before is not None:
        width = 8 if shape.literal == ":AA" else 3
        return at - width + 1 if at >= width and shape.before.fullmatch(text, at - width, at) else 0
    if at == 0 or shape.literal[0] in "/:":
        return at + 1
    before = text[at - 1]
    if not (before.isalnum() or before == "_") or _ESCAPED.search(text, max(0, at - 6), at):
        return at + 1
    return 0


def _private_keys(text: str, growing: bool) -> Iterator[_Span]:
    """Each line of a key block by itself, so that a diff keeps its lines."""
    at = text.find("-----BEGIN ")
    while at >= 0:
        head = _PRIVATE_KEY.match(text, at)
        if head is None:
            at = text.find("-----BEGIN ", at + 1)
            continue
        most = min(len(text), head.end() + _PRIVATE_KEY_CHARACTERS)
        end = text.find(_PRIVATE_KEY_END, head.end(), most)
        open_end = end < 0
        stop = most if open_end else end
        line = _LONG_KEY_LINE if open_end and not growing else _KEY_LINE
        shown = _NOTE.format("a private key")
        for match in line.finditer(text, head.end(), stop):
            # The sign of an added line is no part of the key.
            sign = match.group()[0] == "+" and text[match.start() - 1] in "\n\r"
            yield _Span(match.start() + sign, match.end(), shown)
            shown = "…"
        if open_end and growing and most == len(text):
            yield from _last_line(text, head.end(), shown)
        at = text.find("-----BEGIN ", stop)


def _last_line(text: str, after: int, shown: str) -> Iterator[_Span]:
    start = len(text)
    while start > after and (text[start - 1].isalnum() or text[start - 1] in "+/="):
        start -= 1
    if 0 < len(text) - start < 16:
        yield _Span(start, len(text), shown)


def _headers_and_logins(text: str, growing: bool) -> Iterator[_Span]:
    if "://" in text:
        for match in _each(_LOGIN, "://", text):
            yield _Span(match.start(1), match.end(1), PASSWORD)
        if growing and (begun := _LOGIN_BEGUN.match(text, text.rfind("://"))):
            yield _Span(begun.start(1), begun.end(1), PASSWORD)
    for literal, pattern in _HEADERS:
        if literal in text:
            for match in _each(pattern, literal, text):
                if any(map(str.isdigit, match[1])) and not _CODE.fullmatch(match[1]):
                    yield _Span(match.start(1), match.end(1), SECRET_VALUE)


def _each(pattern: re.Pattern[str], literal: str, text: str) -> Iterator[re.Match[str]]:
    """The matches of a pattern that begins with the literal."""
    at = text.find(literal)
    while at >= 0:
        match = pattern.match(text, at)
        if match is not None:
            yield match
        at = text.find(literal, match.end() if match is not None else at + len(literal))


def _all_named_values(text: str, runs: str, growing: bool) -> Iterator[_Span]:
    if "=" in text:
        for word in filter(text.__contains__, _NAMES_IN_CAPITALS):
            yield from _named_values(word, text, growing)
    if _RANDOM_RUN.search(runs):
        start = 0
    elif growing:
        start = max(0, len(text) - _LONGEST_VALUE)
    else:
        return
    for word in _OTHER_NAMES:
        if text.find(word, start) >= 0:
            yield from _named_values(word, text, growing, start)


def _named_values(word: str, text: str, growing: bool, start: int = 0) -> Iterator[_Span]:
    at = text.find(word, start)
    while at >= 0:
        after = at + len(word)
        match = _GIVEN.match(text, after)
        if match is not None and _is_secret(text, at, match):
            yield _Span(match.start(2), match.end(2), SECRET_VALUE)
        elif growing and (begun := _GIVEN_BEGUN.match(text, after)) and _name_is_secret(text, at, begun):
            yield _Span(begun.start(2), begun.end(2), SECRET_VALUE)
        # What follows the name is one value: no other one begins in it.
        at = text.find(word, match.end() if match is not None else after)


def _name(text: str, at: int, given: re.Match[str]) -> str:
    """The whole name whose word stands at `at`."""
    start = at
    while (
        start > 0 and at - start < _NAME_CHARACTERS and (text[start - 1].isalnum() or text[start - 1] in "_-")
    ):
        start -= 1
    # The n of an escaped line end is no part of it.
    start += start > 0 and text[start - 1] == "\\"
    end = at
    while end < given.start(2) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return text[start:end]


def _name_is_secret(text: str, at: int, given: re.Match[str]) -> bool:
    return _SECRET_NAME.search(_name(text, at, given)) is not None


def _is_secret(text: str, at: int, given: re.Match[str]) -> bool:
    name, value = _name(text, at, given), given[2]
    capitals = name.isupper()
    named = _SECRET_NAME.search(name) is not None
    if not named and not (capitals and name.endswith("_KEY")):
        return False
    if named and capitals and text[at : given.start(2)].rstrip("\"'").endswith("="):
        start = text.rfind(name, max(0, at - _NAME_CHARACTERS), at + len(name))
        # As `env` prints it, without a space: whatever stands there is the secret.
        if _LINE_BEFORE.search(text, max(0, start - 24), start):
            return True
        # As a shell is given it, before a command; an argument in a program is no bare word with signs in it.
        if start > 0 and text[start - 1] in " \t" and not _BARE_WORD.fullmatch(value):
            return True
    return _is_random(value, quoted=given[1] is not None)


def _is_random(value: str, *, quoted: bool) -> bool:
    """Whether a value is no word, name or expression: letters and digits change often in a key."""
    value = value.rstrip("=")
    if len(value) < 16 or _CODE.fullmatch(value) or len(set(value)) < 8:
        return False
    changes = sum(1 for _ in _CHANGES.finditer(value[:200]))
    return changes >= (2 if quoted else 3)

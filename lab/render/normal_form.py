"""Texts in a normal form, so that what means the same is equal: paths, outputs, and digests of both."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lab.engine.key_shapes import mask_key_shapes
from lab.render.text import Excerpt

# Arguments up to this many characters stay as they are, longer ones are a digest.
WHOLE_CHARACTERS = 160
_PATH_CHARACTERS = 300
_DIGEST_BYTES = 12


@dataclass(frozen=True, slots=True)
class StoredText(Excerpt):
    """The beginning of a text that is stored by itself, and the hash by which it is known."""

    sha256: str = ""


def digest(*texts: str) -> str:
    """A short name of the texts together: equal for equal texts."""
    made = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for text in texts:
        made.update(text.encode("utf-8", "surrogatepass"))
        made.update(b"\0")
    return made.hexdigest()


def whole_or_digest(text: str) -> str:
    """A short text as it is, with what looks like a key masked; of a longer one only its digest."""
    return mask_key_shapes(text) if len(text) <= WHOLE_CHARACTERS else f"#{digest(text)}"


def content_of(value: object) -> str:
    """A text that stands in a file, without the blanks at the ends of its lines; a stored one by its hash."""
    if isinstance(value, StoredText):
        return f"#{value.sha256}"
    if isinstance(value, Excerpt):
        value = value.text
    return _without_trailing_blanks(value) if isinstance(value, str) else ""


def _without_trailing_blanks(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if " \n" in text or "\t\n" in text:
        text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    return text.rstrip()


# Paths.

# Where tasks stand in the sandboxes of the field: SWE-bench images, OpenHands, SWE-agent, Harbor.
_ROOT = re.compile(
    r"/(?:testbed|workspace/[\w.+-]+__[\w.+-]+|workspace/repo|workspace|repo|app|[\w.+-]+__[\w.+-]+)(?=/|$)"
)
_COMMON_ROOTS = ("/testbed", "/workspace")
# Whoever goes there goes out of a workspace.
_NO_ROOTS = re.compile(r"/?|~.*|/(?:tmp|var|usr|etc|opt|root|home|bin|lib|proc|dev|sys|mnt|Users)(?:/.*)?")


def is_root(path: str) -> bool:
    """Whether an absolute path may be that of a workspace nobody recorded."""
    return path.startswith("/") and _NO_ROOTS.fullmatch(path) is None


def path_in(roots: Iterable[str], path: str, folder: str = "") -> str:
    """A path as it stands in the workspace, "." for the workspace itself; `folder`: where it is relative to.

    What stands outside keeps its absolute path.
    """
    path = path.strip().strip("\"'")[:_PATH_CHARACTERS]
    if not path:
        return ""
    if folder and not path.startswith(("/", "~")):
        path = f"{folder}/{path}"
    for root in roots:
        if path == root:
            return "."
        if path.startswith(f"{root}/"):
            path = path[len(root) + 1 :]
            break
    else:
        found = _ROOT.match(path)
        if found is not None:
            path = path[found.end() :].lstrip("/")
    return posixpath.normpath(path) if path else "."


# Outputs.

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_PASSING = re.compile(
    r"\b\d+(?:\.\d+)?\s?(?:ms|s|secs?|seconds?)\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?)?"
    rf"|\b(?:{_MONTHS})\s+\d{{1,2}}\s+(?:\d\d:\d\d(?::\d\d)?(?:\s\d{{4}})?|\d{{4}}\b)"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
    r"|\b0x[0-9a-fA-F]{6,16}\b"
)


def output_of(value: object, roots: Iterable[str] = ()) -> str:
    """What was printed, without what differs each time the same is done; a stored text by its hash.

    Left out: colours, what a carriage return overwrote, blanks at the ends of lines and of the text, how long
    something took ("in 0.12s"), dates and times of day, addresses in memory (0x7f…), and the folder of the
    workspace before a path. Not left out: numbers of processes, random names of temporary files, the order
    of lines; nobody can tell them from what is meant.
    """
    if isinstance(value, StoredText):
        return f"#{value.sha256}"
    if isinstance(value, Excerpt):
        value = value.text
    if not isinstance(value, str) or not value:
        return ""
    text = value
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_last_written, text.replace("\r\n", "\n").split("\n")))
    for root in (*_COMMON_ROOTS, *roots):
        text = text.replace(f"{root}/", "")
    return _without_trailing_blanks(_PASSING.sub("~", text))


def _last_written(line: str) -> str:
    """A line as a terminal shows it: what stands before a carriage return is overwritten by what follows."""
    return line[line.rfind("\r", 0, len(line) - 1) + 1 :] if line else line

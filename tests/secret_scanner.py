"""Looks for planted secrets in everything that a lab has stored, printed and shown.

A secret counts as found in each form in which texts write it, and also when all but its end stands there.
What is compressed within another file, or coded by base64, is not looked into.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

import zstandard

from tests.whole_lab import WholeLab

# Of a secret that was cut, this many characters at its end may be missing.
_CUT = 6


@dataclass
class Scanner:
    """`secrets` maps a name to a value; `found` says where each was met: "<where>: <name>"."""

    secrets: Mapping[str, str]
    found: list[str] = field(default_factory=list)
    looked_at: int = 0

    def __post_init__(self) -> None:
        self._forms = [
            (name, form, form.encode()) for name, value in self.secrets.items() for form in forms_of(value)
        ]

    def text(self, where: str, text: str) -> None:
        self.looked_at += 1
        self._note(where, (name for name, form, _ in self._forms if form in text))

    def data(self, where: str, data: bytes) -> None:
        self.looked_at += 1
        self._note(where, (name for name, _, form in self._forms if form in data))

    def _note(self, where: str, names: Iterable[str]) -> None:
        self.found += [f"{where}: {name}" for name in dict.fromkeys(names)]


def forms_of(value: str) -> set[str]:
    """The value as texts, JSON, addresses and pages write it, whole and without its end."""
    written = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        html.escape(value),
    }
    return written | {form[:-_CUT] for form in written}


def scan_database(lab: WholeLab, scanner: Scanner) -> None:
    """Every column of every table, as SQL gives it."""
    for table, column in _columns(lab):
        for (value,) in lab.query(f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'):  # noqa: S608
            if isinstance(value, bytes | memoryview):
                scanner.data(f"{table}.{column}", bytes(value))
            elif isinstance(value, str):
                scanner.text(f"{table}.{column}", value)
            elif isinstance(value, dict | list):
                scanner.text(f"{table}.{column}", json.dumps(value, ensure_ascii=False))


def _columns(lab: WholeLab) -> Iterator[tuple[str, str]]:
    if lab.environment["DATABASE_URL"]:
        yield from lab.query(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        )
        return
    for (table,) in lab.query("SELECT name FROM sqlite_master WHERE type = 'table'"):
        for column in lab.query(f'PRAGMA table_info("{table}")'):
            yield table, column[1]


def scan_data_folder(lab: WholeLab, scanner: Scanner) -> None:
    """Every file's bytes, the database's and the queue's among them, and every stored body unpacked."""
    for path in sorted(lab.data_folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        where = str(path.relative_to(lab.data_folder))
        scanner.text(f"the name {where}", where)
        scanner.data(where, data)
        if where.startswith("blobs/"):
            scanner.data(f"{where} unpacked", zstandard.ZstdDecompressor().decompressobj().decompress(data))


def bodies(lab: WholeLab) -> Iterator[bytes]:
    for path in (lab.data_folder / "blobs").rglob("*"):
        if path.is_file():
            yield zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


def is_stored(lab: WholeLab, value: str) -> bool:
    """Whether a value stands in the log or in a stored body: what only looks like a key does, unchanged."""
    probe = Scanner({"it": value})
    scan_database(lab, probe)
    return bool(probe.found) or any(value.encode() in data for data in bodies(lab))

"""An archive that is written as it is read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

from lab.engine.formats.bundles import in_larger_pieces, zipped
from lab.engine.formats.exported import Member, safe_name


def test_the_files_of_an_archive_are_those_that_were_given() -> None:
    members = [
        Member("a.txt", [b"one ", b"two"]),
        Member("b/c.txt", []),
        Member("d.txt", [b"\x00" * 300_000]),
    ]
    with zipfile.ZipFile(io.BytesIO(b"".join(zipped(members)))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["a.txt", "b/c.txt", "d.txt"]
        assert archive.read("a.txt") == b"one two"


def test_the_same_files_make_the_same_archive() -> None:
    first, second = (b"".join(zipped([Member("a", [b"x"])])) for _ in range(2))
    assert first == second


def test_a_file_is_made_only_when_the_one_before_was_read() -> None:
    made = []

    def members() -> Iterator[Member]:
        for name in ("a", "b", "c"):
            made.append(name)
            yield Member(name, [name.encode() * 100])

    pieces = zipped(members())
    next(pieces)
    assert made == ["a"]
    b"".join(pieces)
    assert made == ["a", "b", "c"]


def test_no_piece_is_small_but_the_last() -> None:
    pieces = list(in_larger_pieces([b"x" * 1000] * 200))
    assert b"".join(pieces) == b"x" * 200_000
    assert all(len(piece) >= 64 * 1024 for piece in pieces[:-1])
    assert list(in_larger_pieces([])) == []


def test_a_name_leaves_no_folder_and_is_safe_everywhere() -> None:
    hostile = "../../etc/passwd\n\x00\u202e<b>:|?*\\con"
    name = safe_name(hostile)
    assert name == "etc-passwd-b-con"
    assert safe_name("..") == ""
    assert len(safe_name("x" * 500)) == 80

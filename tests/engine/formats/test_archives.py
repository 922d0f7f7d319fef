"""Archives from anybody: what is in them is found, and nothing else happens."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import tempfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import zstandard
from hypothesis import strategies as st

from lab.engine.errors import InvalidValueError
from lab.engine.formats.archive_streams import kind_of
from lab.engine.formats.archives import ArchiveLimitError, ArchiveLimits, Unpacked, unpack
from lab.engine.formats.base import FormatError

Packer = Callable[[dict[str, bytes]], bytes]


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def zstandard_zipped(members: dict[str, bytes]) -> bytes:
    """Python 3.11 writes no method 93: the entries of a stored ZIP file are told to be of it."""
    packed = {name: zstandard.compress(content) for name, content in members.items()}
    data = bytearray(zipped(packed, zipfile.ZIP_STORED))
    for name, content in members.items():
        for signature, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            name_at = data.find(
                name.encode(), data.find(signature) if at == 8 else data.rfind(packed_end(data))
            )
            start = data.rfind(signature, 0, name_at)
            struct.pack_into("<H", data, start + at, 93)
            struct.pack_into("<I", data, start + at + 6, zlib.crc32(content))
            struct.pack_into("<I", data, start + at + 14, len(content))
    return bytes(data)


def packed_end(data: bytearray) -> bytes:
    """The first entry of the directory: where the end record says that it starts."""
    end = data.rfind(b"PK\x05\x06")
    start = int.from_bytes(data[end + 16 : end + 20], "little")
    return bytes(data[start : start + 46])


def tarred(members: dict[str, bytes]) -> bytes:
    return tar_of(*((file_header(name, len(content)), content) for name, content in members.items()))


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for header, content in members:
            archive.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def file_header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.type, header.linkname = size, kind, link
    return header


PACKERS: dict[str, Packer] = {
    "zip": zipped,
    "zip with Zstandard": zstandard_zipped,
    "tar": tarred,
    "tar.gz": lambda members: gzip.compress(tarred(members)),
    "tar.zst": lambda members: zstandard.compress(tarred(members)),
    "tar.zst of two frames": lambda members: (
        zstandard.compress(tarred(members)[:700]) + zstandard.compress(tarred(members)[700:])
    ),
}


def given(folder: Path, data: bytes, name: str = "given") -> Path:
    source = folder / name
    source.write_bytes(data)
    return source


def contents(unpacked: Unpacked) -> dict[str, bytes]:
    return {document.path: document.local.read_bytes() for document in unpacked.documents}


def reasons(unpacked: Unpacked) -> str:
    return "\n".join(f"{problem.place}: {problem.message}" for problem in unpacked.problems)


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("packer", PACKERS.values(), ids=PACKERS)
def test_every_kind_is_told_from_its_content_and_unpacked(packer: Packer, tmp_path: Path) -> None:
    members = {"runs/one.json": b'{"a": 1}', "runs/deep/two.jsonl": b"{}\n" * 5000, "empty": b""}
    source = given(tmp_path, packer(members), "no-suffix-at-all")
    told: list[tuple[int, int]] = []

    unpacked = unpack(source, tmp_path / "into", progress=lambda done, whole: told.append((done, whole)))

    assert contents(unpacked) == members
    assert unpacked.problems == []
    assert told
    assert all(0 <= done <= whole == source.stat().st_size for done, whole in told)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_compressed_file_that_is_no_tar_is_one_document(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    source = given(tmp_path, compress(b'{"messages": []}\n'), "session.jsonl.gz")
    assert contents(unpack(source, tmp_path / "into")) == {"session.jsonl": b'{"messages": []}\n'}


def test_a_log_of_inspect_is_a_document_and_no_archive(tmp_path: Path) -> None:
    finished = given(tmp_path, zipped({"header.json": b"{}", "samples/1_epoch_1.json": b"{}"}), "finished")
    running = given(tmp_path, zipped({"_journal/start.json": b"{}"}), "running")
    other = given(tmp_path, zipped({"header.json": b"{}", "notes.txt": b""}), "other")
    assert (kind_of(finished), kind_of(running), kind_of(other)) == (None, None, "zip")

    both = given(tmp_path, zipped({"logs/a.eval": finished.read_bytes()}), "both")
    assert contents(unpack(both, tmp_path / "into")) == {"logs/a.eval": finished.read_bytes()}


def test_a_finished_unpacking_is_taken_as_it_is(tmp_path: Path) -> None:
    source = given(tmp_path, tarred({"a": b"1", "../b": b"2"}))
    first = unpack(source, tmp_path / "into")
    source.unlink()
    assert unpack(source, tmp_path / "into") == first
    assert len(first.documents) == len(first.problems) == 1


def test_what_a_killed_unpacking_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "into.partial").mkdir()
    (tmp_path / "into.partial" / "0000000").write_bytes(b"half")
    source = given(tmp_path, tarred({"a": b"whole"}))
    assert contents(unpack(source, tmp_path / "into")) == {"a": b"whole"}
    assert not (tmp_path / "into.partial").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "mine").touch()
    with pytest.raises(InvalidValueError, match=r"into: .* holds other files; name a folder that is empty"):
        unpack(given(tmp_path, tarred({"a": b""})), tmp_path / "into")
    assert everything_in(tmp_path / "into") == {"mine"}


HOSTILE_NAMES = [
    "../escaped",
    "a/../../escaped",
    "/escaped",
    "\\\\server\\share\\escaped",
    "C:\\escaped",
    "c:escaped",
    "..\\escaped",
    "a/" * 3000 + "escaped",
    "x" * 5000,
    ".",
]


@pytest.mark.parametrize("packer", [zipped, tarred])
def test_no_name_leads_out_of_the_folder(packer: Packer, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    source = given(outside, packer(dict.fromkeys(HOSTILE_NAMES, b"escaped") | {"good": b"good"}))

    unpacked = unpack(source, outside / "into")

    assert contents(unpacked) == {"good": b"good"}
    assert len(unpacked.problems) == len(HOSTILE_NAMES)
    assert all(problem.file == "given" and problem.message for problem in unpacked.problems)
    assert everything_in(tmp_path) == {
        "outside", "outside/given", "outside/into", "outside/into/0000000", "outside/into/index.jsonl",
    }  # fmt: skip


def test_names_with_line_breaks_escapes_and_bytes_that_are_no_text_are_shown_on_one_line(
    tmp_path: Path,
) -> None:
    names = ["a\nb", "\x1b]52;c;x\x07", "\u202egnp", "lone\udcff"]
    source = given(tmp_path, tarred(dict.fromkeys(names, b"x")))
    found = [document.path for document in unpack(source, tmp_path / "into").documents]
    assert found == ["a\\nb", "\\x1b]52;c;x\\x07", "\\u202egnp", "lone\\udcff"]


def test_a_member_without_a_name_is_passed_over(tmp_path: Path) -> None:
    data = bytearray(zipped({"x": b"1"}))
    data[data.find(b"PK\x01\x02") + 46] = 0
    unpacked = unpack(given(tmp_path, bytes(data)), tmp_path / "into")
    assert (unpacked.documents, len(unpacked.problems)) == ([], 1)


def test_a_name_with_nul_is_passed_over(tmp_path: Path) -> None:
    data = zipped({"good": b"1", "badXjson": b"2"}).replace(b"badXjson", b"bad\0json")
    unpacked = unpack(given(tmp_path, data), tmp_path / "into")
    assert contents(unpacked) == {"good": b"1"}
    assert "has a NUL in its name" in reasons(unpacked)


def test_links_devices_and_pipes_are_passed_over(tmp_path: Path) -> None:
    secret = given(tmp_path, b"secret", "secret")
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
    headers = [file_header(f"m{at}", kind=kind, link=str(secret)) for at, kind in enumerate(kinds)]
    # A link to a folder, and a file that would be written through it.
    headers += [
        file_header("folder", kind=tarfile.SYMTYPE, link=str(tmp_path)),
        file_header("folder/through", 2),
    ]
    source = given(tmp_path, tar_of(*((header, b"hi"[: header.size]) for header in headers)))

    unpacked = unpack(source, tmp_path / "into")

    assert contents(unpacked) == {"folder/through": b"hi"}
    assert [problem.place for problem in unpacked.problems] == ["m0", "m1", "m2", "m3", "m4", "folder"]
    assert all(stat.S_ISREG(path.lstat().st_mode) for path in (tmp_path / "into").iterdir())


def test_a_link_in_a_zip_file_is_passed_over(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    unpacked = unpack(given(tmp_path, buffer.getvalue()), tmp_path / "into")
    assert (unpacked.documents, reasons(unpacked)) == (
        [],
        "link: is a link or a device, which are not followed",
    )


def test_a_path_that_is_there_twice_is_kept_twice(tmp_path: Path) -> None:
    source = given(
        tmp_path, tar_of((file_header("a/run.json", 1), b"1"), (file_header("./a//run.json", 1), b"2"))
    )
    assert contents(unpack(source, tmp_path / "into")) == {"a/run.json": b"1", "a/run.json (2)": b"2"}


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (ArchiveLimits(bytes=1_000_000), "bytes"),
        (ArchiveLimits(ratio=100), "ratio"),
        (ArchiveLimits(files=2), "files"),
    ],
)
@pytest.mark.parametrize("packer", PACKERS.values(), ids=PACKERS)
def test_a_bomb_stops_at_its_limit_and_leaves_nothing(
    packer: Packer, limits: ArchiveLimits, limit: str, tmp_path: Path
) -> None:
    members = {"a.json": b"{}", "b.json": b"{}", "bomb.json": bytes(65 * 1024 * 1024)}
    source = given(tmp_path, packer(members))
    if limit == "ratio" and source.stat().st_size > 1_000_000:
        source.write_bytes(packer({"inner.tar.gz": gzip.compress(tarred(members))}))

    with pytest.raises(ArchiveLimitError) as caught:
        unpack(source, tmp_path / "into", limits=limits)

    text = str(caught.value)
    assert caught.value.limit == limit
    assert all(words in text for words in ("given: at ", f"the limit on {limit}", "unpack it by hand"))
    assert everything_in(tmp_path) == {"given"}


def test_a_size_that_is_stated_too_small_costs_the_member_alone(tmp_path: Path) -> None:
    data = bytearray(zipped({"lies": b"x" * 5000, "good": b"good"}))
    directory = data.find(b"PK\x01\x02")
    struct.pack_into("<I", data, directory + 24, 10)
    unpacked = unpack(given(tmp_path, bytes(data)), tmp_path / "into")
    assert contents(unpacked) == {"good": b"good"}
    assert reasons(unpacked).startswith("lies: is ")


def test_a_million_entries_are_refused_without_being_held_in_memory(tmp_path: Path) -> None:
    one = zipped({"a": b""})
    directory = one.find(b"PK\x01\x02")
    end = one.find(b"PK\x05\x06")
    entry, local = one[directory:end], one[:directory]
    size = len(entry) * 1_000_000
    # The end record says that there is one entry: its word is not taken for it.
    record = one[end : end + 12] + struct.pack("<II", size, len(local)) + one[end + 20 :]
    source = given(tmp_path, local + entry * 1_000_000 + record)
    tracemalloc.start()
    with pytest.raises(ArchiveLimitError, match="limit on files"):
        unpack(source, tmp_path / "into", limits=ArchiveLimits(files=20_000))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_many_small_members_of_a_tar_are_not_held_in_memory(tmp_path: Path) -> None:
    header = file_header("a").tobuf(tarfile.USTAR_FORMAT)
    source = given(tmp_path, gzip.compress(header * 6_000 + bytes(1024), 1))
    tracemalloc.start()
    with pytest.raises(ArchiveLimitError, match="limit on files"):
        unpack(source, tmp_path / "into", limits=ArchiveLimits(files=5_000))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert everything_in(tmp_path) == {"given"}


def test_a_header_that_is_never_over_is_refused(tmp_path: Path) -> None:
    header = file_header("longname", 3 * 1024**3, tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
    source = given(tmp_path, gzip.compress(header + bytes(64 * 1024 * 1024), 1))
    with pytest.raises(FormatError, match="headers of more than"):
        unpack(source, tmp_path / "into")


def test_a_member_that_claims_a_negative_size_is_refused(tmp_path: Path) -> None:
    data = bytearray(tarred({"first": b"1", "negative": b"2"}))
    at = 1024 if data[1024:1032] == b"negative" else data.find(b"negative")
    data[at + 124 : at + 136] = b"\xff" * 11 + b"\x00"
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = f"{sum(data[at : at + 512]):06o}\0 ".encode()
    with pytest.raises(FormatError, match="given is damaged or cut off at"):
        unpack(given(tmp_path, bytes(data)), tmp_path / "into")
    assert everything_in(tmp_path) == {"given"}


def test_archives_in_an_archive_are_unpacked_one_level_deep(tmp_path: Path) -> None:
    deepest = zipped({"deepest.json": b"3"})
    middle = tarred({"middle.json": b"2", "deeper.zip": deepest})
    source = given(tmp_path, zipped({"outer.json": b"1", "logs/inner.tar": middle}))

    unpacked = unpack(source, tmp_path / "into")

    assert contents(unpacked) == {"outer.json": b"1", "logs/inner.tar/middle.json": b"2"}
    assert reasons(unpacked) == (
        "logs/inner.tar/deeper.zip: is an archive 2 deep inside others, and the limit on nesting is 1: "
        "unpack it by hand and give its files"
    )
    assert not [name for name in everything_in(tmp_path / "into") if "nested" in name]

    deeper = unpack(source, tmp_path / "deeper", limits=ArchiveLimits(nesting=2))
    assert contents(deeper)["logs/inner.tar/deeper.zip/deepest.json"] == b"3"


def test_forty_two_levels_of_archives_end_at_the_limit(tmp_path: Path) -> None:
    data = b"bottom"
    for _ in range(42):
        data = zipped({"next.zip": data})
    unpacked = unpack(given(tmp_path, data), tmp_path / "into")
    assert unpacked.documents == []
    assert "the limit on nesting is 1" in reasons(unpacked)


@pytest.mark.parametrize("packer", [zipped, zstandard_zipped])
def test_a_damaged_member_of_a_zip_file_costs_itself_alone(packer: Packer, tmp_path: Path) -> None:
    content = os.urandom(4000)
    data = bytearray(packer({"first": b"1", "damaged": content, "last": b"3"}))
    data[data.find(b"damaged") + 2000] ^= 0xFF
    unpacked = unpack(given(tmp_path, bytes(data)), tmp_path / "into")
    assert contents(unpacked) == {"first": b"1", "last": b"3"}
    assert "damaged: is damaged" in reasons(unpacked)


@pytest.mark.parametrize("packer", [PACKERS["tar"], PACKERS["tar.gz"], PACKERS["tar.zst"], zipped])
def test_an_archive_that_is_cut_off_says_so_and_leaves_nothing(packer: Packer, tmp_path: Path) -> None:
    data = packer({"first.json": b"1", "second.json": os.urandom(100_000)})
    with pytest.raises(FormatError, match=r"given (is damaged or cut off at|cannot be unpacked).*[Pp]ack it"):
        unpack(given(tmp_path, data[: len(data) // 2]), tmp_path / "into")
    assert everything_in(tmp_path) == {"given"}


def test_an_encrypted_member_is_passed_over(tmp_path: Path) -> None:
    data = bytearray(zipped({"secret": b"x"}))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(signature) + at] |= 1
    assert reasons(unpack(given(tmp_path, bytes(data)), tmp_path / "into")) == "secret: is encrypted"


def test_what_is_no_archive_is_refused_by_name(tmp_path: Path) -> None:
    source = given(tmp_path, b'{"messages": []}', "0")
    assert kind_of(source) is None
    with pytest.raises(FormatError, match=r"run\.zip is no archive"):
        unpack(source, tmp_path / "into", name="run.zip")


def test_who_breaks_off_in_between_finds_nothing_left(tmp_path: Path) -> None:
    class CancelledError(Exception):
        pass

    def cancel(done: int, whole: int) -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        unpack(given(tmp_path, tarred({"a": b"1", "b": b"2"})), tmp_path / "into", progress=cancel)
    assert everything_in(tmp_path) == {"given"}


MEMBERS = {"a.json": b"{}", "folder/b.jsonl": b"{}\n" * 50, "c.zip": zipped({"d": b"1"})}
# Made once, because archives hold the time.
WHOLE = [packer(MEMBERS) for packer in PACKERS.values()]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An archive of any kind with some of its bytes changed, cut out or repeated."""
    data = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(data) - 1))
        action = draw(st.sampled_from(("change", "change", "cut", "repeat")))
        length = draw(st.integers(1, 40))
        if action == "change":
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=4))
        elif action == "cut":
            del data[at : at + length]
        else:
            data[at:at] = data[at : at + length]
        if not data:
            break
    return bytes(data)


@hypothesis.given(damaged())
def test_damaged_archives_are_refused_in_words_or_unpacked_and_nothing_else(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limits = ArchiveLimits(bytes=10_000_000, files=1000)
        try:
            unpacked = unpack(given(folder, data), folder / "into", limits=limits)
        except FormatError:
            assert everything_in(folder) == {"given"}
        else:
            assert all(document.local.parent == folder / "into" for document in unpacked.documents)
        assert not (folder / "into.partial").exists()

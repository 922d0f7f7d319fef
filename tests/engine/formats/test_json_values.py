"""Documents with one JSON value, or one a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.json_values import values_in


def document(folder: Path, content: str | bytes) -> Document:
    local = folder / "values"
    local.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Document("given/values", local)


def test_one_value_is_the_whole_document_however_it_is_written(tmp_path: Path) -> None:
    for content in ('{"a": 1}', '{"a": 1}\n', '{\n "a": 1\n}', '\ufeff{"a": 1}'):
        given = document(tmp_path, content)
        (value,) = values_in(given)
        assert (value.value, value.place, value.sha256) == ({"a": 1}, "", given.sha256())


def test_values_a_line_have_their_lines_and_digests_of_their_own(tmp_path: Path) -> None:
    first, broken, third = values_in(document(tmp_path, '{"a": 1}\n\n{"a": \n{"a": 1}'))
    assert (first.value, first.place, third.place) == ({"a": 1}, "line 1", "line 4")
    assert (broken.value, broken.place) == (None, "line 3")
    assert "not JSON" in broken.problem
    assert first.sha256 == third.sha256 != broken.sha256


def test_a_first_line_that_is_broken_hides_no_other(tmp_path: Path) -> None:
    broken, second = values_in(document(tmp_path, '{"a": \n{"a": 2}\n'))
    assert broken.problem
    assert second.value == {"a": 2}


@pytest.mark.parametrize("content", ["", "not JSON", '{"a": ', b'{"a": "\xff"}'])
def test_what_is_no_json_at_all_is_refused_by_name(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(FormatError, match="given/values"):
        list(values_in(document(tmp_path, content)))


def test_a_whole_number_that_python_does_not_convert_is_a_text(tmp_path: Path) -> None:
    digits = "9" * 5_000
    (value,) = values_in(document(tmp_path, f'{{"a": {digits}, "b": 12, "c": NaN}}'))
    assert value.value == {"a": digits, "b": 12, "c": "NaN"}

"""What tools print is anybody's: it is read as it stands, and an archive's bytes are kept to the last one."""

from __future__ import annotations

import datetime as dt
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lab.engine.formats.archives import unpack
from lab.engine.formats.base import Document, Format
from lab.engine.formats.claude_code import ClaudeCode
from lab.engine.formats.codex import CodexRollout
from lab.engine.formats.inspect_log import InspectLog
from lab.engine.formats.to_events import Standing, to_events
from lab.engine.llm.base import Cost
from tests.engine.formats.mutations import document_of, found_by, lines_of, only

TEXTS = {
    "NUL": "before\0after",
    "a lone surrogate": "half \ud83d of it",
    "marks that turn the direction": "evil\u202egnp.exe\u2066\u2069",
    "escapes of a terminal": "\x1b]52;c;cm0gLXJm\x07\x1b[2J",
    "a page": "<script>alert(1)</script>{{ x }}\u2028",
    "a line of ten megabytes": "x" * 10_000_000,
}


def inspect_log(folder: Path, output: str) -> Document:
    call = {"id": "c", "function": "bash", "arguments": {"cmd": output[:100]}}
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": output, "tool_calls": [call]},
        {"role": "tool", "content": output, "tool_call_id": "c"},
    ]
    sample = {"id": "s", "epoch": 1, "input": "Go.", "messages": messages}
    return document_of(folder, {"version": 2, "status": "success", "eval": {}, "samples": [sample]})


def claude_session(folder: Path, output: str) -> Document:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": output},
        {"type": "tool_use", "id": "c", "name": "Bash", "input": {"cmd": output[:100]}},
    ]
    result = [{"type": "tool_result", "tool_use_id": "c", "content": output}]
    common = {"sessionId": "s"}
    return lines_of(
        folder,
        [
            {**common, "uuid": "1", "type": "user", "message": {"role": "user", "content": "Go."}},
            {**common, "uuid": "2", "type": "assistant", "message": {"id": "m", "content": blocks}},
            {**common, "uuid": "3", "type": "user", "message": {"role": "user", "content": result}},
        ],
    )


def codex_session(folder: Path, output: str) -> Document:
    arguments = json.dumps({"cmd": output[:100]})
    payloads = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": output}]},
        {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]
    return lines_of(folder, [{"type": "response_item", "payload": payload} for payload in payloads])


WRITERS = {"Inspect": inspect_log, "Claude Code": claude_session, "Codex": codex_session}
READERS: dict[str, Format] = {"Inspect": InspectLog(), "Claude Code": ClaudeCode(), "Codex": CodexRollout()}


@pytest.mark.parametrize("output", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("program", WRITERS)
def test_what_a_tool_printed_is_read_as_it_stands(program: str, output: str, tmp_path: Path) -> None:
    found = only(found_by(READERS[program], WRITERS[program](tmp_path, output)))
    (turn,) = found.turns
    (call,) = turn.calls
    assert turn.message["content"] == call.observation == call.message["content"] == output
    assert call.arguments == {"cmd": output[:100]}
    # A log holds no surrogate and no NUL, and is JSON.
    standing = Standing(task={}, harness={}, model={}, seed=1, lab_version="1")
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    events = to_events(found, standing, price=lambda usage, model, when: Cost(), imported_at=at)
    assert all(json.loads(event.model_dump_json()) for _, event in events)


def test_bytes_of_any_kind_come_out_of_an_archive_as_they_went_in(tmp_path: Path) -> None:
    members = {
        "binary": os.urandom(100_000),
        "not-utf-8": b"\xff\xfe\xc3(",
        "nul": b"\0" * 513,
        "one-line": b"x" * 10_000_000,
    }
    source = tmp_path / "given"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    documents = unpack(source, tmp_path / "into").documents
    assert {document.path: document.local.read_bytes() for document in documents} == members

"""A whole attempt whose server and commands show the secrets of the lab in every way they can."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lab.engine.events import ToolCallFinished, VerificationFinished, WorkspaceChanged
from tests.engine.attempts import KEY, WatchedSink, run_whole
from tests.engine.conftest import MakeTask
from tests.engine.harnesses.driving import bash, call, calls
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, event, plain, says, stream

HEADER = 'head"er/sé=cret+value'
PASSWORD = "p4ss/w0rd&of<the>database"
SECRETS = {"X-Key header": HEADER, "DATABASE_URL": PASSWORD}
EVERY = (KEY, HEADER, PASSWORD)
# A command can hold no secret, because its call is redacted before it runs; it can put one together.
PUT_TOGETHER = f"printf '%s%s' '{KEY[:14]}' '{KEY[14:]}'"


@pytest.fixture(scope="session")
def secrets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets-data")


def attempt(
    folder: Path, make_task: MakeTask, *answers: Answer, test: str = "def test_f():\n    pass\n"
) -> WatchedSink:
    headers = {"X-Key": HEADER.encode("ascii", "ignore").decode()}
    with FakeOpenAI(*answers) as server:
        _, sink = run_whole(
            folder, make_task, server.base_url, test=test, model={"headers": headers}, secrets=SECRETS
        )
    return sink


def everything(sink: WatchedSink) -> Iterator[str]:
    yield from (record.event.model_dump_json() for record in sink.records)
    yield from (
        json.dumps(record.event.model_dump(mode="json"), ensure_ascii=False) for record in sink.records
    )
    yield from sink.shown
    for blob in sink.blobs.values():
        yield blob.decode("latin-1")
        with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
            for member in tar:
                yield member.name + member.linkname
                content = tar.extractfile(member) if member.isreg() else None
                data = content.read() if content else b""
                if b"/.git/objects/" in member.name.encode() and data:
                    data = zlib.decompress(data)
                yield data.decode("latin-1")


def is_told(sink: WatchedSink, *values: str) -> list[str]:
    """Where a secret, in any of its forms, or the greater part of one stands."""
    forms = {form for value in values for form in (value, json.dumps(value)[1:-1], quote(value), value[:-6])}
    texts = list(everything(sink))
    return [f"{form} in {text[:300]}" for text in texts for form in forms if form in text]


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def spoken(field: str, size: int) -> Answer:
    text = " and ".join(EVERY)
    return stream(
        *(delta(**{field: piece}) for piece in pieces(text, size)), delta(finish="stop"), pause=0.001
    )


@pytest.mark.parametrize("field", ["content", "reasoning_content", "refusal"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_reply_in_pieces_of_any_size(
    secrets_folder: Path, make_task: MakeTask, field: str, size: int
) -> None:
    sink = attempt(secrets_folder, make_task, spoken(field, size))
    assert is_told(sink, *EVERY) == []
    assert "[redacted: FAKE_KEY] and [redacted: X-Key header] and [redacted: DATABASE_URL]" in "".join(
        everything(sink)
    )


def tool_piece(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "function": {"arguments": arguments, **fields}}])


def test_the_arguments_of_several_calls_that_come_a_piece_of_each_in_turn(
    secrets_folder: Path, make_task: MakeTask
) -> None:
    arguments = json.dumps({"command": f"echo {KEY} '{HEADER}' {PASSWORD}"})
    begun = [
        delta(tool_calls=[{"index": i, "id": f"c{i}", "function": {"name": "Bash", "arguments": ""}}])
        for i in (0, 1)
    ]
    turns = [tool_piece(i, piece) for piece in pieces(arguments, 5) for i in (0, 1)]
    sink = attempt(
        secrets_folder, make_task, stream(*begun, *turns, delta(finish="tool_calls")), says("done")
    )
    assert is_told(sink, *EVERY) == []
    outputs = [event.observation for event in sink.events if isinstance(event, ToolCallFinished)]
    assert all("[redacted: FAKE_KEY]" in output for output in outputs)
    assert len(outputs) == 2


ERRORS = {
    "json": lambda text: plain({"error": {"message": f"bad key {text}"}}, status=401),
    "json within json": lambda text: plain({"error": {"message": json.dumps({"key": text})}}, status=400),
    "in an address": lambda text: plain({"error": {"message": f"GET /?key={quote(text)}"}}, status=500),
    "html": lambda text: Answer(pieces=[f"<p>{text}".encode()], status=502, content_type="text/html"),
    "plain": lambda text: Answer(pieces=[text.encode()], status=503, content_type="text/plain"),
    "without a message": lambda text: plain({"error": {"key": text, "more": "x" * 600}}, status=400),
    "in a stream": lambda text: stream(delta(content="so"), {"error": {"message": text, "code": 500}}),
    "no json in a stream": lambda text: stream(delta(content="so"), f"{{{text}"),
    "200 and html": lambda text: Answer(pieces=[f"<p>{text}".encode()], content_type="text/html"),
    "context overflow": lambda text: plain(
        {"error": {"message": f"maximum context length, {text}"}}, status=400
    ),
    "an id and a model": lambda text: stream(
        {"id": text, "model": text, "choices": [{"delta": {"content": "x"}, "finish_reason": text}]}
    ),
    "usage": lambda text: stream(delta(content="x", finish="stop", usage={"prompt_tokens": 1, text: text})),
    "broken off": lambda text: stream(*(delta(content=piece) for piece in pieces(text, 9)), done=False),
    "unknown model": lambda text: plain({"error": {"message": f"no model for {text}"}}, status=404),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("before", [0, 290, 1990])
def test_an_error_text_wherever_it_is_cut(
    secrets_folder: Path, make_task: MakeTask, kind: str, before: int
) -> None:
    text = "x" * before + " ".join([*EVERY, *EVERY])
    sink = attempt(secrets_folder, make_task, ERRORS[kind](text))
    assert is_told(sink, *EVERY) == []
    # A cut may fall into the mark that stands for it.
    assert before == 1990 or "redacted" in "".join(everything(sink))


def test_what_commands_print_write_name_and_commit(secrets_folder: Path, make_task: MakeTask) -> None:
    shown = calls(
        bash(f"{PUT_TOGETHER}; {PUT_TOGETHER} >&2"),
        bash(
            f'{PUT_TOGETHER} > shown.txt; cp shown.txt "$({PUT_TOGETHER}).py"; ln -s "$(cat shown.txt)" link'
        ),
        bash(f'mkdir -p {"d" * 80} && cp shown.txt "{"d" * 80}/$({PUT_TOGETHER})"'),
        call("Read", {"file_path": "shown.txt"}),
        call("Glob", {"pattern": "**/*"}),
        bash(f'git add -A; git -c user.name=a -c user.email=b commit -qm "$({PUT_TOGETHER})"; git log -p'),
        bash(f"head -c 999990 /dev/zero | tr '\\0' x; {PUT_TOGETHER}; head -c 80000 /dev/zero | tr '\\0' y"),
        bash(f"no-such-command-$({PUT_TOGETHER})"),
    )
    sink = attempt(secrets_folder, make_task, shown, says("done"))
    assert is_told(sink, KEY) == []
    finished = [event for event in sink.events if isinstance(event, ToolCallFinished)]
    assert sum("[redacted: FAKE_KEY]" in event.observation for event in finished) >= 5
    changed = [event for event in sink.events if isinstance(event, WorkspaceChanged)]
    assert all("secret" in event.problem for event in changed if event.archive)


def test_what_a_test_prints_and_asserts(secrets_folder: Path, make_task: MakeTask) -> None:
    test = (
        f"import sys\nVALUE = {KEY[:14]!r} + {KEY[14:]!r}\n"
        "def test_f():\n    print(VALUE)\n    print(VALUE, file=sys.stderr)\n    assert VALUE == '', VALUE\n"
    )
    sink = attempt(secrets_folder, make_task, says("done"), test=test)
    assert is_told(sink, KEY) == []
    finished = next(event for event in sink.events if isinstance(event, VerificationFinished))
    assert "[redacted: FAKE_KEY]" in finished.log
    assert any("[redacted: FAKE_KEY]" in result.assertion for result in finished.tests)


def test_a_draft_ends_before_the_beginning_of_a_secret(secrets_folder: Path, make_task: MakeTask) -> None:
    answer = Answer(
        pieces=[event(delta(content=piece)) for piece in pieces(f"see {KEY} here", 1)]
        + [event(delta(finish="stop"))],
        pause=0.002,
    )
    sink = attempt(secrets_folder, make_task, answer)
    assert len(sink.shown) > 20
    assert not any(KEY[:2] in text for text in sink.shown)
    assert sink.shown[-1].startswith("see [redacted: FAKE_KEY] here")

"""What looks like a key stands in the log and on no page, in no stream, in no download."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pydantic import ValidationError

from lab.engine.events import EVENT_ADAPTER, Event
from lab.engine.key_shapes import mask_key_shapes
from lab.engine.sinks import now
from lab.live import messages, run_feed
from lab.models import Draft, Role, Run
from lab.models import Event as Row
from lab.services import log, trajectories
from tests import builders

pytestmark = pytest.mark.django_db
SAMPLES = Path(__file__).parents[1] / "engine" / "samples" / "events-schema-1.jsonl"
# Made up, and joined here so that no scanner takes it for a real one.
KEY = "ghp_" + "Zq7Xw3Vb9" * 4
SECRET = "Zq7Xw3Vb9" * 2


def planted(value: Any, *, long: bool = False) -> Any:
    """The value with the key in every text, also across the place where a long one's row ends."""
    if isinstance(value, str):
        text = f"{value} KEY {KEY} \x1b[31m{KEY[:9]}\x1b[m{KEY[9:]}"
        return " ".join(["x" * 380, text, "line of output\n" * 700, text]) if long else text
    if isinstance(value, dict):
        return {(f"{name} {KEY}" if long else name): planted(item, long=long) for name, item in value.items()}
    return [planted(item, long=long) for item in value] if isinstance(value, list) else value


def sample_events() -> Iterator[Event]:
    """Every kind of event with the key in each text field that takes any text."""
    for line in SAMPLES.read_text().splitlines():
        fields = {
            name: value
            for name, value in json.loads(line).items()
            if name not in {"seq", "attempt", "at", "schema_version"}
        }
        for long in (False, True):
            for name in fields:
                if name == "kind":
                    continue
                try:
                    EVENT_ADAPTER.validate_python(fields | {name: planted(fields[name], long=long)})
                except ValidationError:
                    continue
                if not (isinstance(fields[name], dict) and name not in {"arguments", "message", "reply"}):
                    fields[name] = planted(fields[name], long=long and name != "body_sha256")
            yield EVENT_ADAPTER.validate_python(fields)


@pytest.fixture
def run() -> Run:
    run = builders.run()
    builders.start(run)
    patch = builders.PATCH.replace("candidate = candidate", f"token = '{KEY}'")
    events = [
        builders.asked(1),
        builders.answered(1, ("Bash", "{}"), content=f"I print {KEY}", reasoning=f"hm {KEY} " * 400),
        builders.called(1, "Bash", {"command": f"echo {KEY}", KEY: f"{KEY}"}),
        builders.printed(1, f"{KEY}\n" * 600, stderr=f"warning {KEY}", seen=900),
        builders.asked(2),
        builders.answered(2, ("Edit", "{}")),
        builders.called(2, "Edit", {"file_path": f"{KEY}.py", "old_string": f"a={KEY}", "new_string": "b"}),
        builders.told(2, f"{KEY}.py: 1 replacement"),
        builders.asked(3),
        builders.answered(3, ("Write", "{}")),
        builders.called(3, "Write", {"file_path": "a.py", "content": f"import os\nkey = '{KEY}'\n"}),
        builders.told(3, "Wrote a.py"),
        builders.asked(4),
        builders.answered(4, ("Bash", "{")),
        builders.called(4, "Bash", {}, malformed=f"no JSON near {KEY}", raw=f'{{"command": "{KEY}'),
        builders.told(4, f"no JSON near {KEY}", failed=True),
        *builders.final_step(5, f"The key is `{KEY}`, **{KEY}** and {KEY}."),
    ]
    ending: list[Event] = []
    for event in builders.ending():
        fields = event.model_dump()
        if event.kind == "patch_captured":
            fields |= {"patch": patch, "files": [{"path": f"{KEY}.py", "change": "added"}]}
        if event.kind == "verification_finished":
            fields["detail"], fields["log"] = f"broken {KEY}", f"{KEY}\n{fields['log']}"
            for test in fields["tests"]:
                test["test_id"] += f"[{KEY}]"
                test["log"], test["assertion"] = f"E {KEY}", f"assert '{KEY}'"
        if event.kind == "attempt_ended":
            fields |= {"native_reason": f"because {KEY}", "error": f"Traceback {KEY}"}
        ending.append(EVENT_ADAPTER.validate_python(fields))
    builders.append(run, *events, *ending)
    run.refresh_from_db()
    return run


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(builders.person(Role.OPERATOR))
    return client


def addresses(run: Run) -> Iterator[str]:
    yield from ("/", "/experiments/", f"/experiments/{run.experiment_id}/", f"/runs/{run.pk}/")
    yield from (f"/runs/{run.pk}/{place}" for place in ("steps", "map", "tests", "patch", "patch?show=diff"))
    verification = run.verifications.get()
    yield from (f"/runs/tests/{test.pk}/log" for test in verification.tests.all())
    parts = [*trajectories._PLACES, "messages.0.content", "messages.1.content"]
    for seq in range(1, run.last_seq + 1):
        yield from (
            f"/runs/{run.pk}/events/{seq}/{how}?part={part}" for how in ("body", "raw") for part in parts
        )


def test_no_page_and_no_download_shows_it(operator: Client, run: Run) -> None:
    fetched = 0
    for address in addresses(run):
        response = operator.get(address)
        fetched += response.status_code == 200
        assert SECRET not in response.content.decode(), address
    assert fetched > 40
    assert "[masked, looks like a GitHub token]" in operator.get(f"/runs/{run.pk}/").content.decode()


def test_the_log_holds_it_and_gives_it_back_unchanged(run: Run) -> None:
    texts = [record.event.model_dump_json() for record in log.read_records(run_id=run.pk)]
    assert sum(text.count(KEY) for text in texts) > 600


def test_nothing_that_goes_over_a_socket_shows_it(run: Run) -> None:
    reader = trajectories.LogReader(run_id=run.pk, after=0)
    batch = reader.read(limit=500)
    assert batch is not None
    panel = run_feed.current_panel(run.pk)
    assert panel is not None
    sent = messages.steps(batch).text + "".join(panel.parts.values())
    assert SECRET not in sent
    assert "masked, looks like" in sent


def test_every_kind_of_event_is_masked_in_each_of_its_texts() -> None:
    run = builders.run()
    stored = 0
    for event in sample_events():
        before = Row.objects.filter(run=run).count()
        payload = event.model_dump(mode="json")
        ready = log.thin_events(run_id=run.pk, attempt=1, events=[(now(), event)])
        row = ready.rows[0]
        row.seq = before + 1
        row.save()
        shown = trajectories.log_event(row.seq, 1, row.step, row.kind, row.at, row.payload)
        fragment = trajectories.rendered(run.pk, [shown])
        assert SECRET not in fragment.html + fragment.map_html, event.kind
        stored += KEY in json.dumps(payload)
    assert stored > 30


@pytest.mark.parametrize("end", range(5, len(KEY) + 1))
def test_a_draft_shows_no_part_of_a_key_that_is_being_written(run: Run, end: int) -> None:
    Draft.objects.create(
        run=run, after_seq=run.last_seq, step=9, version=1, content=f"see {KEY[:end]}", reasoning=KEY[:end],
        calls=f'Bash {{"command": "echo {KEY[:end]}', characters=end,
    )  # fmt: skip
    message = run_feed.current_draft(run.pk, seq=run.last_seq)
    assert message is not None
    assert f"ghp_{KEY[4:end]}" not in json.loads(message.text)["draft"]


def test_a_masked_download_says_so_and_a_clean_one_is_the_text_itself(operator: Client, run: Run) -> None:
    patch = operator.get(f"/runs/{run.pk}/patch")
    assert patch.content.decode().startswith("[This copy is masked")
    assert f'filename="run-{run.pk}-masked.patch"' in patch.headers["Content-Disposition"]
    clean = builders.run()
    builders.believable(clean)
    patch = operator.get(f"/runs/{clean.pk}/patch")
    assert patch.content.decode() == builders.PATCH
    assert f'filename="run-{clean.pk}.patch"' in patch.headers["Content-Disposition"]


def test_coloured_output_without_a_key_is_downloaded_as_it_was_printed(operator: Client) -> None:
    run = builders.run()
    builders.start(run)
    # A tag beside colours: the colours are looked through, and what is found is no key.
    printed = "\x1b[31mred\x1b[0m \x1b]52;c;aGFja2Vk\x07\n"
    builders.append(run, *builders.bash_step(1, "paint", printed))
    seq = Row.objects.get(run=run, kind="tool_call_finished").seq
    # Twice: a text that was looked through before is remembered, as an equal one.
    for _ in range(2):
        answer = operator.get(f"/runs/{run.pk}/events/{seq}/raw?part=stdout")
        assert answer.content.decode() == printed
        assert "masked" not in answer.headers["Content-Disposition"]


def test_a_masked_patch_has_the_lines_of_the_true_one() -> None:
    patch = builders.PATCH.replace("candidate = candidate", f"token = '{KEY}'")
    shown = mask_key_shapes(patch)
    assert shown.count("\n") == patch.count("\n")
    assert [line[:1] for line in shown.split("\n")] == [line[:1] for line in patch.split("\n")]

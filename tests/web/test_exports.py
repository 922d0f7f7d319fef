"""Runs and experiments are downloaded as files, in pieces, by whoever may read them."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client

from lab.models import Role, Run
from lab.services import exports
from tests import builders

pytestmark = pytest.mark.django_db
FORMATS = [choice.name for choice in exports.CHOICES]


@pytest.fixture
def run() -> Run:
    made = builders.run()
    builders.believable(made)
    return Run.objects.get(pk=made.pk)


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_is_a_file_that_no_browser_shows(viewer: Client, run: Run, name: str) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    answer = viewer.get(f"/runs/{run.pk}/export?format={name}")
    assert answer.status_code == 200
    assert answer.streaming
    assert answer.headers["Content-Disposition"].startswith(f'attachment; filename="run-{run.pk}')
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "html" not in answer.headers["Content-Type"]
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert len(answer.getvalue()) > 100


@pytest.mark.parametrize(
    ("name", "content_type", "ending"),
    [
        ("atif", "application/json", ".atif.json"),
        ("trajectory-lab", "application/jsonl", ".lab.jsonl"),
        ("chat", "application/jsonl", "-chat.jsonl"),
        ("csv", "application/zip", "-csv.zip"),
    ],
)
def test_a_file_has_its_type_and_its_ending(
    viewer: Client, run: Run, name: str, content_type: str, ending: str
) -> None:
    answer = viewer.get(f"/runs/{run.pk}/export?format={name}")
    assert answer.headers["Content-Type"] == content_type
    assert answer.headers["Content-Disposition"].endswith(f'{ending}"')


def test_an_experiment_is_an_archive_and_runs_of_it_can_be_chosen(viewer: Client, run: Run) -> None:
    other = builders.another_run(run, seed=2)
    builders.believable(other)
    address = f"/experiments/{run.experiment_id}/export?format=mini-swe-agent"
    whole, chosen = (
        zipfile.ZipFile(io.BytesIO(viewer.get(f"{address}{more}").getvalue())).namelist()
        for more in ("", f"&run={other.pk}&run={run.pk}")
    )
    assert whole == chosen
    assert len(whole) == 3
    answer = viewer.get(f"{address}&run={other.pk}")
    assert json.loads(answer.getvalue())["info"]["trajectory_lab"]["run"] == other.pk


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/runs/{run}/export", "format: '' is no format of an export; choose one of trajectory-lab, atif"),
        ("/runs/{run}/export?format=<b>", "format: '<b>' is no format"),
        ("/experiments/{experiment}/export?format=atif&run=x", "run: 'x' is no number of a run"),
        (
            "/experiments/{experiment}/export?format=atif&run=99999999",
            "run: 99999999 is no run of experiment",
        ),
        ("/runs/{waiting}/export?format=atif", "no attempt of it has begun"),
    ],
)
def test_a_wrong_address_is_told_what_is_wrong(viewer: Client, run: Run, address: str, said: str) -> None:
    waiting = builders.another_run(run, seed=2)
    answer = viewer.get(address.format(run=run.pk, experiment=run.experiment_id, waiting=waiting.pk))
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert said in answer.content.decode()


@pytest.mark.parametrize(
    "address", ["/runs/999999/export?format=atif", "/experiments/999999/export?format=csv"]
)
def test_what_is_not_there_is_not_found(viewer: Client, address: str) -> None:
    assert viewer.get(address).status_code == 404


def test_a_run_that_has_not_begun_is_a_row_of_a_table(viewer: Client, run: Run) -> None:
    waiting = builders.another_run(run, seed=2)
    answer = viewer.get(f"/runs/{waiting.pk}/export?format=csv")
    with zipfile.ZipFile(io.BytesIO(answer.getvalue())) as archive:
        assert len(archive.read("runs.csv").splitlines()) == 2


@pytest.mark.parametrize("page", ["/runs/{run}/", "/experiments/{experiment}/"])
def test_the_page_has_a_menu_of_all_formats_that_says_what_each_leaves_out(
    viewer: Client, run: Run, page: str
) -> None:
    text = viewer.get(page.format(run=run.pk, experiment=run.experiment_id)).content.decode()
    for choice in exports.CHOICES:
        assert f"/export?format={choice.name}" in text
        assert choice.title in text
    assert "Not carried: " in text


@pytest.mark.django_db(transaction=True)
def test_a_server_is_given_the_pieces_one_after_the_other() -> None:
    run = builders.run()
    builders.start(run)
    # Random enough that compression leaves several pieces of it.
    output = "".join(chr(33 + (n * n * 7919 + n // 3) % 90) for n in range(400_000))
    for step in range(1, 4):
        builders.append(run, *builders.bash_step(step, "cat", output))
    person = builders.person(Role.VIEWER)
    made: list[bytes] = []

    async def fetch() -> None:
        client = AsyncClient()
        await client.aforce_login(person)
        address = f"/runs/{run.pk}/export?format=trajectory-lab"
        answer = await client.get(address, headers={"accept-encoding": "gzip, deflate, br"})
        assert answer.is_async
        content: AsyncIterator[bytes] = answer.streaming_content
        async for piece in content:
            made.append(piece)
            await asyncio.sleep(0)

    async_to_sync(fetch)()
    assert len(made) > 2
    # Each piece in a compressed stream of its own would be one file of the first piece for a browser.
    run.refresh_from_db()
    expected = exports.of_run(by=person, run=run, format_name="trajectory-lab")
    assert b"".join(made) == b"".join(expected.pieces)

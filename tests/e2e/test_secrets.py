"""A whole lab whose servers and agents show its secrets in every way they can: afterwards none is anywhere.

Known secrets are in no table, body, file, draft, line of the terminal, page or socket. A key that only looks
like one is in the log, as it was printed, and on no page, in no stream and in no download.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.e2e.person import Person
from tests.engine.harnesses.driving import bash, call, calls
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, plain, says, stream
from tests.secret_scanner import Scanner, is_stored, scan_data_folder, scan_database
from tests.whole_lab import PROJECT, WholeLab, wait_for

pytestmark = pytest.mark.e2e

KEY = "an-endpoint-key-7f3b9c1d5e2a4680"
HEADER = 'tenant"secret/+7f3b9c1d5e2a'
OWN = "the-lab's own & <secret> key 7f3b"
PROXY = "proxy-password/7f3b9c"
MAIL = "mail-password-7f3b9c1d"
# Made up, and joined here so that no scanner of repositories takes them for real ones.
FOREIGN = {
    "github": "ghp_" + "Zq7Xw3Vb9K" * 4,
    "openai": "sk-" + "proj-" + "Zq7Xw3Vb9K" * 5,
    "aws": "AKIA" + "ZQ7XW3VB9KLM2NPR",
    "environment": "correct-horse-battery-staple",
}
PIECES = (KEY[:14], KEY[14:])
PUT_TOGETHER = f"printf '%s%s' '{PIECES[0]}' '{PIECES[1]}'"
PRINT_FOREIGN = f"printf '%s\\n' {FOREIGN['github']} {FOREIGN['aws']} COHERE_API_KEY={FOREIGN['environment']}"


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def slowly(field: str, text: str) -> list[dict[str, object]]:
    return [delta(**{field: piece}) for piece in pieces(text, 5)]


EVERYTHING = f"{KEY} {HEADER} {OWN} {PROXY} {MAIL}"
SPEAKS = stream(
    *slowly("reasoning", f"I know {EVERYTHING} and {FOREIGN['github']}"),
    *slowly("content", f"They are {EVERYTHING}; {FOREIGN['openai']} is another."),
    delta(
        tool_calls=[
            {
                "index": 0,
                "id": "c1",
                "function": {
                    "name": "Bash",
                    "arguments": json.dumps({"command": f"echo {KEY} {FOREIGN['aws']}"}),
                },
            }
        ]
    ),
    delta(finish="tool_calls"),
    pause=0.05,
)
WORKS = calls(
    bash(f"{PUT_TOGETHER}; {PUT_TOGETHER} >&2; {PRINT_FOREIGN}; env"),
    bash(f'{PUT_TOGETHER} > shown.txt; cp shown.txt "$({PUT_TOGETHER}).py"; {PRINT_FOREIGN} > foreign.txt'),
    call("Read", {"file_path": "shown.txt"}),
    call("Read", {"file_path": "foreign.txt"}),
    call("Glob", {"pattern": "**/*"}),
    bash(f'git add -A; git -c user.name=a -c user.email=b commit -qm "$({PUT_TOGETHER})"; git log -p -1'),
    # What the hidden tests print when they fail: the module that they import.
    bash(
        "for f in $(find . -name '*.py' -not -path './tests/*'); do "
        f"printf 'print(%s + %s)\\nraise ValueError(%s + %s)\\n' \"'{PIECES[0]}'\" \"'{PIECES[1]}'\" "
        f"\"'{PIECES[0]}'\" \"'{PIECES[1]}'\" > $f; done"
    ),
)
BUSY = [
    plain({"error": {"message": f"slow down, {EVERYTHING}"}}, status=429, headers={"Retry-After": "0.1"}),
    Answer(pieces=[f"<h1>{'x' * 290}{EVERYTHING}".encode()], status=502, content_type="text/html"),
    stream(*slowly("content", EVERYTHING), done=False),
    stream(delta(content="so"), {"error": {"message": json.dumps({"sent": EVERYTHING}), "code": 500}}),
]
REFUSES = plain(
    {"error": {"message": f"key {EVERYTHING} is not valid, nor is {FOREIGN['openai']}"}}, status=401
)

LAUNCH = """
from django.contrib.auth.models import User
from lab.models import Endpoint, HarnessVersion, Model, Task
from lab.services import runs
url, header, name = arguments
endpoint = Endpoint.objects.create(
    name=name, base_url=url, key_variable="ACME_API_KEY", headers={"X-Tenant-Key": header}
)
model = Model.objects.create(endpoint=endpoint, name=name, model_id="fake")
run = runs.launch(
    by=User.objects.get(), tasks=list(Task.objects.filter(slug="parse-duration")),
    harness_versions=list(HarnessVersion.objects.filter(harness__name="leaf-compatible")), models=[model],
).runs.get()
print(run.pk)
"""
TOKEN = """
from django.contrib.auth.models import User
from lab.services import tokens
print(json.dumps(tokens.make(by=User.objects.get(), name="nightly", role="operator").secret))
"""


class Watcher:
    """Keeps everything that comes over a socket, and every draft that is in the database meanwhile."""

    def __init__(self, lab: WholeLab, path: str, cookie: str) -> None:
        self.texts: list[str] = []
        self.drafts: list[str] = []
        self._lab = lab
        self._open = ExitStack()
        self._over = threading.Event()
        self._socket = self._open.enter_context(
            connect(
                lab.url.replace("http", "ws", 1) + path,
                origin=Origin(lab.url),
                additional_headers={"Cookie": cookie},
                compression=None,
                max_size=None,
            )
        )
        self._threads = [threading.Thread(target=target) for target in (self._listen, self._look)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        try:
            for message in self._socket:
                self.texts.append(str(message))
        except ConnectionClosed:
            pass

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for row in self._lab.query("SELECT content, reasoning, calls FROM lab_draft"):
                self.drafts.append(" ".join(row))

    def close(self) -> None:
        self._over.set()
        self._open.close()
        for thread in self._threads:
            thread.join()


class Story:
    """What happened in the lab: its person, its runs, everything its pages and sockets sent."""

    def __init__(self, lab: WholeLab) -> None:
        self.lab = lab
        self.person = Person(lab)
        self.token = str(lab.program(TOKEN))
        self.streams: list[str] = []
        self.drafts: list[str] = []
        self.runs = [
            self.run("speaks", SPEAKS, WORKS, *BUSY, says(f"Done with {FOREIGN['github']} and {KEY}.")),
            self.run("refuses", REFUSES),
        ]
        self.pages = dict(self.crawl())

    def run(self, name: str, *answers: Answer) -> int:
        with FakeOpenAI(*answers) as server, ExitStack() as open_ones:
            number = int(self.lab.program(LAUNCH, server.base_url, HEADER, name))
            watchers = [
                Watcher(self.lab, path, self.person.cookies)
                for path in (f"/ws/runs/{number}/?after=0", "/ws/home/")
            ]
            for watcher in watchers:
                open_ones.callback(watcher.close)
            wait_for(
                lambda: self.lab.value("SELECT status FROM lab_run WHERE id = ?", number) == "ended",
                what=f"end of run {number}", seconds=300,
            )  # fmt: skip
            wait_for(
                lambda: any('"status":"ended"' in text for text in watchers[0].texts), what="its last word"
            )
        self.streams += [text for watcher in watchers for text in watcher.texts]
        self.drafts += [text for watcher in watchers for text in watcher.drafts]
        return number

    def crawl(self) -> Iterator[tuple[str, str]]:
        """Every page that the first ones lead to, fragments and downloads among them."""
        waiting = ["/", *(f"/runs/{run}/" for run in self.runs), "/settings/"]
        parts = (
            "stdout",
            "stderr",
            "observation",
            "whole",
            "content",
            "reasoning",
            "patch",
            "log",
            "raw",
            "partial",
        )
        for run in self.runs:
            last = self.lab.value("SELECT last_seq FROM lab_run WHERE id = ?", run)
            waiting += [
                f"/runs/{run}/{name}" for name in ("map", "steps", "tests", "patch", "patch?show=diff")
            ]
            waiting += [
                f"/runs/{run}/events/{seq}/{how}?part={part}"
                for seq in range(1, last + 1)
                for how in ("body", "raw")
                for part in parts
            ]
        seen: set[str] = set()
        while waiting:
            path = waiting.pop(0)
            if path in seen or path.startswith(("/static/", "/sign-out", "/ws/")) or len(seen) > 3000:
                continue
            seen.add(path)
            try:
                text = self.person.read(path)
            except urllib.error.HTTPError as error:
                text = error.read().decode()
            yield path, text
            if "/events/" not in path:
                waiting += re.findall(r'(?:href|hx-get|data-src)="(/[^"#]*)"', text.replace("&amp;", "&"))

    def ask_api(self, path: str) -> str:
        request = urllib.request.Request(
            self.lab.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    settings = {
        "ACME_API_KEY": KEY,
        "LAB_SECRET_KEY": OWN,
        "LAB_MAIL_PASSWORD": MAIL,
        "http_proxy": f"http://me:{PROXY.replace('/', '%2F')}@127.0.0.1:9",
        "no_proxy": "127.0.0.1,localhost",
        "LAB_RUN_SLOTS": "2",
    }
    with WholeLab(**settings) as lab:
        yield Story(lab)


def known(story: Story) -> dict[str, str]:
    environment = story.lab.environment
    servers = {
        f"password of {name}": password
        for name in ("DATABASE_URL", "LAB_REDIS_URL")
        if (password := urlsplit(environment[name]).password) and len(password) >= 12
    }
    return servers | {
        "endpoint key": KEY, "header": HEADER, "own secret": OWN, "proxy password": PROXY,
        "mail password": MAIL, "API token": story.token,
    }  # fmt: skip


def test_the_story_was_told(story: Story) -> None:
    """The planted secrets did come: their places are marked, or they were kept where they may be."""
    lab = story.lab
    events = "".join(str(payload) for (payload,) in lab.query("SELECT payload FROM lab_event"))
    for name in (
        "ACME_API_KEY",
        "header X-Tenant-Key of speaks",
        "LAB_SECRET_KEY",
        "the http proxy",
        "LAB_MAIL_PASSWORD",
    ):
        assert f"[redacted: {name}]" in events, name
    assert all(is_stored(lab, value) for name, value in FOREIGN.items())
    assert len(story.drafts) > 20
    assert len(story.streams) > 20
    assert len(story.pages) > 100
    verdict = lab.value("SELECT verdict FROM lab_run_facts WHERE run_id = ?", story.runs[0])
    assert verdict == "unresolved"


def test_no_known_secret_is_stored_anywhere(story: Story) -> None:
    scanner = Scanner(known(story))
    scan_database(story.lab, scanner)
    scan_data_folder(story.lab, scanner)
    # An admin's setting, which has its place there and nowhere else.
    database = {f"{name}: header" for name in ("lab.sqlite3", "lab.sqlite3-wal")}
    assert set(scanner.found) - database == {"lab_endpoint.headers: header"}
    assert scanner.looked_at > 500


def test_no_known_secret_was_shown_or_printed(story: Story) -> None:
    lab = story.lab
    link = re.search(r"/sign-in/([^/\s]+)/", lab.link)
    assert link
    for path in ("/nowhere/", f"/sign-in/{'x' * 43}/", "/ws/nowhere/"):
        lab.get(path)
    answers = [
        story.ask_api(path)
        for path in (
            f"/api/v1/runs/{story.runs[0]}",
            f"/api/v1/runs/{story.runs[0]}/events?limit=500",
            "/api/v1/nowhere",
        )
    ]
    scanner = Scanner(known(story))
    for path, text in story.pages.items():
        scanner.text(path, text)
    for text in [*story.streams, *story.drafts, *answers]:
        scanner.text("stream, draft or API", text)
    scanner.text("the terminal", lab.output)
    assert scanner.found == []
    assert lab.output.count(link[1]) == 1
    assert "x" * 43 not in lab.output


def test_what_only_looks_like_a_key_is_on_no_page_in_no_stream_and_in_no_download(story: Story) -> None:
    scanner = Scanner(FOREIGN)
    for path, text in story.pages.items():
        scanner.text(path, text)
    for text in story.streams:
        scanner.text("stream", text)
    scanner.text("API", story.ask_api(f"/api/v1/runs/{story.runs[0]}/events?limit=500"))
    assert scanner.found == []
    assert sum("masked, looks like" in text for text in story.pages.values()) > 5
    assert any("masked, looks like" in text for text in story.streams)


def test_a_purge_takes_a_printed_key_out_of_a_lab_that_is_up(story: Story, tmp_path: Path) -> None:
    lab = story.lab
    leaked = tmp_path / "leaked"
    leaked.write_text(FOREIGN["github"])
    command = [sys.executable, str(PROJECT / "manage.py"), "purge_secret", "--reason", "printed by an agent"]
    done = subprocess.run(
        [*command, "--file", str(leaked), "--json"],
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["runs"], found["no_old_copies"]) == (0, story.runs[:1], True), done.stderr
    scanner = Scanner({"purged": FOREIGN["github"]})
    scan_database(lab, scanner)
    scan_data_folder(lab, scanner)
    assert scanner.found == []
    page = story.person.read(f"/runs/{story.runs[0]}/")
    assert "purged a leaked secret from this log: printed by an agent" in page
    assert is_stored(lab, FOREIGN["aws"])

"""Whatever order messages come in, twice, late or not at all: in the end a page shows the whole log in order.

The page is the lab's own; only its socket is played, by a server that appends, publishes, repeats, delays,
swaps and breaks off at random. Each sequence has a seed, which a failure names.
"""

from __future__ import annotations

import random
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.watching import Tab
from tests.whole_lab import WholeLab

SEQUENCES = 15
_MOST_AT_ONCE = 5
_OPERATIONS = ("append", "publish", "publish", "publish", "repeat", "swap", "cut")

BUILD = """
import datetime as dt
from django.db import transaction
from django.utils import timezone
from lab.live import messages
from lab.services.trajectories import LogReader
from tests import builders

hour = timezone.now() + dt.timedelta(hours=1)
with transaction.atomic():
    watched = builders.run()
    whole = builders.another_run(watched, seed=2)
    for run in (watched, whole):
        run.attempts.create(n=1, worker="elsewhere/1/1", lease_token=1, lease_until=hour)
        builders.start(run)
for step in range(1, 9):
    events = builders.edit_step(step)
    if step % 3:
        events = builders.bash_step(step, f"echo {step}", f"line {step}\\n")
    if step == 5:
        events = [builders.asked(5), builders.failed_request(5), builders.asked(5, request=2), *events[1:]]
    last = builders.append(whole, *events)
told = []
for after in range(2, last):
    for limit in range(1, arguments[0] + 1):
        told.append(messages.steps(LogReader(run_id=whole.pk, after=after).read(limit=limit)))
print(json.dumps([watched.pk, whole.pk, last, told]))
"""

FAKE_SOCKET = """
window.sockets = [];
window.WebSocket = class extends EventTarget {
  static CONNECTING = 0; static OPEN = 1; static CLOSING = 2; static CLOSED = 3;
  constructor(url) { super(); this.url = String(url); this.readyState = 1; window.sockets.push(this); }
  close() { this.readyState = 3; }
};
"""
SAY = "text => window.sockets.at(-1).dispatchEvent(new MessageEvent('message', { data: text }))"
CUT = """() => {
    const last = window.sockets.at(-1);
    last.readyState = 3;
    last.dispatchEvent(new Event("close"));
}"""
SOCKETS = "() => window.sockets.map((socket) => socket.url)"
ITEMS = """() => [...document.querySelectorAll("#steps > li[data-seqs]")].map((item) => [
    item.dataset.seqs, item.dataset.state ?? "", item.textContent.replace(/\\s+/g, " ").trim()])"""


class Log(NamedTuple):
    """A run that is watched and has begun, and what the server says of another one that went on from there.

    `said` holds messages by the number after which they begin and how many events they have.
    """

    watched: int
    whole: int
    last: int
    said: dict[tuple[int, int], str]


@pytest.fixture(scope="module")
def log(lab: WholeLab) -> Log:
    watched, whole, last, told = lab.program(BUILD, _MOST_AT_ONCE)
    return Log(watched, whole, last, {(after, seq - after): text for after, seq, text in told})


class Server:
    """The other end of the page's sockets."""

    def __init__(self, tab: Tab, log: Log, chance: random.Random) -> None:
        self._page, self._log, self._chance = tab.page, log, chance
        self._length = self._published = 2
        self._waiting: list[str] = []
        self._sent: list[str] = []
        self._sockets = 0
        self._answer_new_socket()

    @property
    def is_done(self) -> bool:
        return self._length == self._log.last and not self._waiting

    def act(self, operation: str) -> None:
        if operation == "append":
            self.append(self._chance.randint(1, _MOST_AT_ONCE))
        elif operation == "publish" and self._waiting:
            self._say(self._waiting.pop(0))
        elif operation == "repeat" and self._sent:
            self._say(self._chance.choice(self._sent))
        elif operation == "swap" and len(self._waiting) > 1:
            self._waiting[0], self._waiting[1] = self._waiting[1], self._waiting[0]
        elif operation == "cut":
            self._page.evaluate(CUT)
            # What the browser says when there is a network again: it need not wait.
            self._page.evaluate("() => window.dispatchEvent(new Event('online'))")
        self._answer_new_socket()

    def append(self, count: int) -> None:
        """The log grows, and the hub publishes what is new in one message or several."""
        before, self._length = self._length, min(self._length + count, self._log.last)
        self._waiting += self._messages(before)

    def _messages(self, after: int) -> list[str]:
        texts = []
        while after < self._length:
            count = self._chance.randint(1, min(_MOST_AT_ONCE, self._length - after))
            texts.append(self._log.said[after, count])
            after += count
        return texts

    def _say(self, text: str) -> None:
        self._sent.append(text)
        self._page.evaluate(SAY, text)

    def _answer_new_socket(self) -> None:
        """What a page asks for that has opened a socket: everything after its last number."""
        urls: list[str] = self._page.evaluate(SOCKETS)
        if len(urls) > self._sockets:
            self._sockets = len(urls)
            self._sent.clear()
            after = int(parse_qs(urlsplit(urls[-1]).query)["after"][0])
            self._waiting = self._messages(after)


def items_of(tab: Tab) -> list[Any]:
    """Numbers, state and text of each item, without what a clock shows."""
    found = tab.page.evaluate(ITEMS)
    return [[seqs, state, re.sub(r"\d+:\d\d(\.\d)?", "", text)] for seqs, state, text in found]


@pytest.mark.timeout(400)
def test_any_order_of_messages_ends_in_the_same_page(tab: Tab, log: Log) -> None:
    tab.page.add_init_script(FAKE_SOCKET)
    tab.open(f"/runs/{log.whole}/")
    expected = items_of(tab)
    assert [int(seq) for seqs, *_ in expected for seq in seqs.split(",")] == list(range(1, log.last + 1))
    for seed in range(SEQUENCES):
        chance = random.Random(seed)
        tab.open(f"/runs/{log.watched}/")
        server = Server(tab, log, chance)
        while not server.is_done:
            server.act(chance.choice(_OPERATIONS))
        assert items_of(tab) == expected, f"seed {seed}"
    tab.forgive()

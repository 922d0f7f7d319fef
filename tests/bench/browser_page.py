"""How soon a run can be read in a fresh browser, beside Inspect's sample page: prints one JSON.

Runs of 150 and 1,000 steps with 30 KB of output each, and an Inspect sample of 150 messages of 2 KB, are
opened in turns, each in a new browser with an empty profile. Readable is the first frame that shows a
step's command; bytes are what had come over the network half a second later.

B1: 150 steps readable in at most 0.15 of the time of Inspect's page. B5: at most 300 KB until then. I6: at
most 0.05 of Inspect's bytes. 1,000 steps take at most 1.5 times as long and as many bytes as 150.

`LAB_BENCH_INSPECT_PYTHON` names an interpreter that has inspect-ai; without it the ratios to it are null.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, CDPSession, sync_playwright

from tests.bench import figures, programs
from tests.bench.browsers import CHROMIUM, FLAGS, cookie_for
from tests.bench.contestants.lab_runs import MARK
from tests.bench.figures import Target

ROUNDS = 5
STEPS = (150, 1000)
OUTPUT_BYTES = 30_000
INSPECT = os.environ.get("LAB_BENCH_INSPECT_PYTHON", "")
NO_PEER = "LAB_BENCH_INSPECT_PYTHON names no interpreter with inspect-ai"
_SETTLE_MS = 500

# The first frame in which text with the mark can be seen, in milliseconds from the start of the navigation.
_WATCH = """
window.readable = new Promise((resolve, reject) => {
  const shown = () => {
    if (!document.body) return false;
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (text.data.includes("MARK") && text.parentElement.checkVisibility()) return true;
    }
    return false;
  };
  const look = () => {
    if (!shown()) return requestAnimationFrame(look);
    const channel = new MessageChannel();
    channel.port1.onmessage = () => resolve(performance.now());
    channel.port2.postMessage(0);
  };
  requestAnimationFrame(look);
  setTimeout(() => reject(new Error("no step could be seen within a minute")), 60000);
});
""".replace("MARK", MARK)


class Place(NamedTuple):
    """A page to open: its address, and the Cookie header that signs in, "" for none."""

    url: str
    cookie: str = ""


class Opened(NamedTuple):
    """What opening a page took."""

    readable_ms: float
    kilobytes: float
    nodes: int


def open_page(launch: Callable[[], Browser], place: Place) -> Opened:
    """Open the page in a browser of its own."""
    browser = launch()
    try:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        if place.cookie:
            context.add_cookies([cookie_for(place.url.split("/")[2], place.cookie)])
        page = context.new_page()
        page.add_init_script(_WATCH)
        received = count_bytes(context.new_cdp_session(page))
        page.goto(place.url, wait_until="commit")
        readable = page.evaluate("window.readable")
        page.wait_for_timeout(_SETTLE_MS)
        nodes = page.evaluate("document.getElementsByTagName('*').length")
        return Opened(readable, sum(received) / 1024, nodes)
    finally:
        browser.close()


def count_bytes(session: CDPSession) -> list[float]:
    """A list to which the size on the wire of each finished request is added."""
    received: list[float] = []
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    return received


def inspect_place(folder: Path, stack: ExitStack) -> tuple[Place, dict[str, Any]]:
    """Inspect's page of a sample, served by its own viewer until the stack ends."""
    program = programs.ROOT / "tests" / "bench" / "contestants" / "inspect_log.py"
    home = {"HOME": str(folder)}
    made = programs.run_whole([INSPECT, str(program), "--folder", str(folder / "logs")], environment=home)
    port = programs.free_port()
    viewer = [str(Path(INSPECT).parent / "inspect"), "view", "start", "--log-dir", str(folder / "logs")]
    serving = stack.enter_context(
        programs.running([*viewer, "--host", "127.0.0.1", "--port", str(port)], environment=home)
    )
    address = f"http://127.0.0.1:{port}/"
    programs.wait_for_http(serving, address)
    return Place(f"{address}#/logs/{made['log']}/samples/sample/1/1/"), made


def measure(rounds: int) -> tuple[dict[str, Any], list[Target]]:
    before = figures.probe()
    opened: dict[str, list[Opened]] = {}
    peer: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(programs.scratch_folder())
        environment = programs.lab_environment(folder)
        lengths = ["--steps", ",".join(map(str, STEPS)), "--bytes", str(OUTPUT_BYTES)]
        made = programs.run_whole(programs.module("lab_runs", *lengths), environment=environment)
        host = stack.enter_context(programs.lab_web(environment))
        places = {
            f"lab {steps} steps": Place(f"http://{host}/runs/{run}/", made["cookie"])
            for steps, run in made["ended"].items()
        }
        if INSPECT:
            places["inspect"], peer = inspect_place(folder, stack)
        playwright = stack.enter_context(sync_playwright())

        def launch() -> Browser:
            return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        # A server's first answer is slower than all others, for everybody.
        for place in places.values():
            open_page(launch, place)
        for _ in range(rounds):
            for name, place in places.items():
                opened.setdefault(name, []).append(open_page(launch, place))
    shown = {
        "rounds": rounds,
        "output_bytes": OUTPUT_BYTES,
        "peer": f"inspect-ai {peer['version']}, {peer['messages']} messages" if peer else None,
        "pages": {name: page_figures(pages) for name, pages in opened.items()},
        "noise": figures.noise(before, figures.probe()),
    }
    return shown, targets(opened)


def page_figures(pages: list[Opened]) -> dict[str, Any]:
    return {
        "readable_ms": figures.summary([page.readable_ms for page in pages], 1),
        "kilobytes": figures.summary([page.kilobytes for page in pages], 1),
        "nodes": max(page.nodes for page in pages),
    }


def targets(opened: dict[str, list[Opened]]) -> list[Target]:
    def median(name: str, field: str) -> float:
        return statistics.median(getattr(page, field) for page in opened[name])

    short, long = (f"lab {steps} steps" for steps in STEPS)
    found = [
        Target("B5 kilobytes until readable", round(median(short, "kilobytes"), 1), 300.0),
        *(
            Target(
                f"1,000 steps over 150, {field}", round(median(long, field) / median(short, field), 3), 1.5
            )
            for field in ("readable_ms", "kilobytes")
        ),
    ]
    ratios = {
        "B1 readable over Inspect's": ("readable_ms", 0.15),
        "I6 bytes over Inspect's": ("kilobytes", 0.05),
    }
    for name, (field, limit) in ratios.items():
        if "inspect" in opened:
            found.append(Target(name, round(median(short, field) / median("inspect", field), 3), limit))
        else:
            found.append(Target(name, None, limit, NO_PEER))
    return found


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=ROUNDS)
    figures.report(*measure(chosen.rounds))


if __name__ == "__main__":
    main()

"""Runs side by side, beside the page of one of them: prints one JSON object.

Six runs of one task, 150 steps with 30 KB of output each. The page of one run, and two, four and six of them
side by side, are opened in turns, each in a new browser with an empty profile, from the start of the
navigation to the second frame after the page is loaded. The server is also asked alone, in one process:
"cold" with nothing kept of these runs, "warm" for an answer that was given before. Then the six are scrolled:
20 jumps from top to bottom, each to its second frame, held against the same over an empty page in the same
browser; rows that the page fetches and drops on the way count.

B4: two side by side take at most 1.7 times one run's page, four at most 3 times, in the browser and on the
server. Six answer within 200 ms. A jump takes at most a quarter more than two frames of an empty page. A page
has at most 10,000 elements, and comes in at most 300 KB with all it loads.

    python -m tests.bench.compare_page [--rounds 5] [--quick]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from tests.bench import figures, programs
from tests.bench.browser_page import count_bytes
from tests.bench.browsers import CHROMIUM, FLAGS, cookie_for
from tests.bench.contestants.compared_runs import RUNS
from tests.bench.figures import Target

ROUNDS = 5
STEPS, OUTPUT_BYTES = 150, 30_000
MOST_MILLISECONDS = 200.0
MOST_NODES, MOST_KILOBYTES = 10_000, 300.0
RATIOS = {2: 1.7, 4: 3.0}
JUMPS = 20
_SETTLE_MS = 500
_EMPTY = "data:text/html,<div style='height:60000px'></div>"

# Milliseconds from the start of the navigation to the second frame after all is loaded.
_SECOND_FRAME = """
() => new Promise((resolve) =>
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now()))))
"""
# For each jump the milliseconds until its second frame has begun, when the first has been painted.
_JUMP = """
async (jumps) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const taken = [];
  for (let jump = 1; jump <= jumps; jump += 1) {
    await frame();
    const height = document.documentElement.scrollHeight - innerHeight;
    const began = performance.now();
    scrollTo({top: height * jump / jumps, behavior: "instant"});
    await frame();
    await frame();
    taken.push(performance.now() - began);
  }
  return taken;
}
"""


class Opened(NamedTuple):
    """What opening a page took."""

    second_frame_ms: float
    kilobytes: float
    nodes: int


def open_page(browser: Browser, host: str, address: str, cookie: str) -> tuple[Page, Opened]:
    """The page in a context of its own, once it is loaded and shown."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies([cookie_for(host, cookie)])
    page = context.new_page()
    received = count_bytes(context.new_cdp_session(page))
    page.goto(f"http://{host}{address}", wait_until="load")
    shown = page.evaluate(_SECOND_FRAME)
    page.wait_for_timeout(_SETTLE_MS)
    nodes = page.evaluate("document.getElementsByTagName('*').length")
    return page, Opened(shown, sum(received) / 1024, nodes)


def opened_once(launch: Callable[[], Browser], host: str, address: str, cookie: str) -> Opened:
    """What opening the page takes in a browser of its own."""
    browser = launch()
    try:
        return open_page(browser, host, address, cookie)[1]
    finally:
        browser.close()


def scrolled(launch: Callable[[], Browser], host: str, address: str, cookie: str) -> dict[str, list[float]]:
    """Milliseconds of each jump over the page, and over an empty one, in the same browser."""
    browser = launch()
    try:
        page, _ = open_page(browser, host, address, cookie)
        jumps = page.evaluate(_JUMP, JUMPS)
        page.goto(_EMPTY)
        return {"page": jumps, "empty": page.evaluate(_JUMP, JUMPS)}
    finally:
        browser.close()


def measure(rounds: int, steps: int) -> tuple[dict[str, Any], list[Target]]:
    before = figures.probe()
    opened: dict[str, list[Opened]] = {}
    jumps: dict[str, list[float]] = {"page": [], "empty": []}
    with ExitStack() as stack:
        folder = stack.enter_context(programs.scratch_folder())
        environment = programs.lab_environment(folder)
        sizes = ["--steps", str(steps), "--bytes", str(OUTPUT_BYTES)]
        made = programs.run_whole(programs.module("compared_runs", "make", *sizes), environment=environment)
        addresses = pages_of(made["runs"])
        named = [f"{name}={address}" for name, address in {**addresses, **others_of(made["runs"])}.items()]
        asking = programs.module("compared_runs", "ask", "--rounds", str(2 * rounds), "--of", *named)
        served = programs.run_whole(asking, environment=environment)
        host = stack.enter_context(programs.lab_web(environment))
        playwright = stack.enter_context(sync_playwright())

        def launch() -> Browser:
            return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        # A server's first answer is slower than all others.
        for address in addresses.values():
            opened_once(launch, host, address, made["cookie"])
        for _ in range(rounds):
            for name, address in addresses.items():
                opened.setdefault(name, []).append(opened_once(launch, host, address, made["cookie"]))
            found = scrolled(launch, host, addresses[str(RUNS)], made["cookie"])
            for name, taken in found.items():
                jumps[name] += taken
    shown = {
        "rounds": rounds,
        "steps": steps,
        "output_bytes": OUTPUT_BYTES,
        "server": {name: served_figures(page) for name, page in served.items()},
        "browser": {name: browser_figures(pages) for name, pages in opened.items()},
        "jumps": {name: jump_figures(taken) for name, taken in jumps.items()},
        "noise": figures.noise(before, figures.probe()),
    }
    return shown, targets(served, opened, jumps)


def pages_of(runs: list[int]) -> dict[str, str]:
    """One run's page, and two, four and six of them side by side, by how many runs they show."""
    numbers = [str(run) for run in runs]
    side_by_side = {str(many): f"/compare/?runs={','.join(numbers[:many])}" for many in (2, 4, len(numbers))}
    return {"1": f"/runs/{numbers[0]}/"} | side_by_side


def others_of(runs: list[int]) -> dict[str, str]:
    """What else the server is asked for: the file that needs no lab."""
    return {f"file of {len(runs)}": f"/compare/export?runs={','.join(map(str, runs))}&save=1"}


def served_figures(page: dict[str, Any]) -> dict[str, Any]:
    times = {name: figures.summary(value, 1) for name, value in page.items() if isinstance(value, list)}
    return times | {name: page[name] for name in ("bytes", "compressed", "queries")}


def browser_figures(pages: list[Opened]) -> dict[str, Any]:
    return {
        "second_frame_ms": figures.summary([page.second_frame_ms for page in pages], 1),
        "kilobytes": figures.summary([page.kilobytes for page in pages], 1),
        "nodes": max(page.nodes for page in pages),
    }


def jump_figures(taken: list[float]) -> dict[str, float]:
    return {"median_ms": round(statistics.median(taken), 1), "worst_ms": round(max(taken), 1)}


def targets(
    served: dict[str, dict[str, Any]], opened: dict[str, list[Opened]], jumps: dict[str, list[float]]
) -> list[Target]:
    """The ratios and figures that are held to a limit."""
    found = []
    for many, limit in RATIOS.items():
        shown = {name: statistics.median(page.second_frame_ms for page in opened[name]) for name in opened}
        ratio = round(shown[str(many)] / shown["1"], 2)
        found.append(Target(f"B4 {many} side by side over one, second frame", ratio, limit))
        for state in ("cold", "warm"):
            # Only ever longer than it takes: other programs share the processor's caches.
            cpu = {name: min(served[name][f"{state}_cpu_ms"]) for name in opened}
            ratio = round(cpu[str(many)] / cpu["1"], 2)
            found.append(Target(f"B4 {many} side by side over one, {state} on the server", ratio, limit))
    for state in ("cold", "warm"):
        fastest = round(min(served[str(RUNS)][f"{state}_ms"]), 1)
        found.append(Target(f"{RUNS} side by side, {state}, milliseconds", fastest, MOST_MILLISECONDS))
    ratio = statistics.median(jumps["page"]) / statistics.median(jumps["empty"])
    found.append(Target("a jump over two frames of an empty page", round(ratio, 2), 1.25))
    for name, pages in opened.items():
        found.append(Target(f"elements of {name}", max(page.nodes for page in pages), MOST_NODES))
        kilobytes = round(statistics.median(page.kilobytes for page in pages), 1)
        found.append(Target(f"kilobytes of {name}", kilobytes, MOST_KILOBYTES))
    return found


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=ROUNDS)
    figures.report(*measure(chosen.rounds, 30 if chosen.quick else STEPS))


if __name__ == "__main__":
    main()

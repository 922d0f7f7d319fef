"""From an event's commit to the painted step in a real browser: prints one JSON, times in milliseconds.

A program appends the events of a run one by one; one browser and 19 sockets watch it. The browser notes the
frame in which a step that holds the event was painted. L3: p50 at most 60 ms, p99 at most 150 ms, and nothing
lost or out of order, for the browser and for the sockets. Both clocks are the machine's.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from typing import Any

from playwright.async_api import Browser, Page, async_playwright
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.bench import figures, programs
from tests.bench.browsers import CHROMIUM, FLAGS, cookie_for
from tests.bench.figures import Target

ROUNDS = 3
STEPS = 60
EVENTS_A_SECOND = 20.0
SOCKETS = 19
WAIT_SECONDS = 20.0

# Notes for each event the first frame after which a step that holds it can be seen.
_OBSERVE = """
() => {
  const painted = (window.painted = {});
  const note = (item) => {
    const numbers = item.dataset.seqs.split(",");
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        const now = performance.timeOrigin + performance.now();
        for (const number of numbers) painted[number] ??= now;
      };
      channel.port2.postMessage(0);
    });
  };
  const steps = document.getElementById("steps");
  new MutationObserver((changes) => {
    for (const change of changes)
      for (const node of change.addedNodes) if (node.dataset?.seqs) note(node);
  }).observe(steps, { childList: true });
}
"""
_ORDER = """
() => [...document.querySelectorAll("#steps > li[data-seqs]")].map((item) => Number(item.id.slice(6)))
"""


async def one_round(browser: Browser, host: str, run: int, cookie: str, steps: int) -> dict[str, Any]:
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    await context.add_cookies([cookie_for(host, cookie)])
    page = await context.new_page()
    await page.goto(f"http://{host}/runs/{run}/")
    await page.wait_for_selector("#live-state[data-state=live]", timeout=30_000)
    await page.evaluate(_OBSERVE)
    sockets = [asyncio.create_task(follow(host, run, cookie)) for _ in range(SOCKETS)]
    await asyncio.sleep(1)
    words = ["--run", str(run), "--steps", str(steps), "--rate", str(EVENTS_A_SECOND)]
    publisher = programs.module("lab_publisher", *words)
    try:
        told = await asyncio.to_thread(programs.run_whole, publisher, environment=ENVIRONMENT)
        committed = {int(seq): at for seq, at in told["committed"].items()}
        painted = await painted_by(page, max(committed))
        order = await page.evaluate(_ORDER)
        await asyncio.sleep(0.5)
    finally:
        for socket in sockets:
            socket.cancel()
        seen = await asyncio.gather(*sockets)
        await context.close()
    return {
        "delays": [painted[seq] - at for seq, at in committed.items() if seq in painted],
        # Longer than what is meant, but no pause of the program that publishes can shorten it.
        "from_begin": [painted[int(seq)] - at for seq, at in told["begun"].items() if int(seq) in painted],
        "lost": len(committed.keys() - painted.keys()),
        "out_of_order": sum(one > two for one, two in zip(order, order[1:], strict=False)),
        "sockets_behind": sum(last < max(committed) for last, _ in seen),
        "socket_gaps": sum(gaps for _, gaps in seen),
    }


async def follow(host: str, run: int, cookie: str) -> tuple[int, int]:
    """The last event a socket got until it is cancelled, and how often something was missing before."""
    last = gaps = 0
    address = f"ws://{host}/ws/runs/{run}/?after=0"
    headers = {"Cookie": cookie, "Origin": f"http://{host}"}
    try:
        async with connect(address, additional_headers=headers, compression=None, max_size=None) as socket:
            async for text in socket:
                message = json.loads(text)
                gaps += message.get("after", 0) > last
                last = max(last, message.get("seq", 0))
    except (asyncio.CancelledError, ConnectionClosed):
        pass
    return last, gaps


async def painted_by(page: Page, last: int) -> dict[int, float]:
    """When each event was painted; waits for the last one, up to 20 s."""
    for _ in range(int(WAIT_SECONDS / 0.1)):
        painted: dict[str, float] = await page.evaluate("window.painted")
        if str(last) in painted:
            break
        await asyncio.sleep(0.1)
    return {int(seq): at for seq, at in painted.items()}


ENVIRONMENT: dict[str, str] = {}


async def measure(rounds: int, steps: int) -> tuple[dict[str, Any], list[Target]]:
    before = figures.probe()
    with programs.scratch_folder() as folder:
        ENVIRONMENT.update(programs.lab_environment(folder))
        made = programs.run_whole(programs.module("lab_runs", "--open", str(rounds)), environment=ENVIRONMENT)
        with programs.lab_web(ENVIRONMENT) as host:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                results = [await one_round(browser, host, run, made["cookie"], steps) for run in made["open"]]
                await browser.close()
    return shown(results, rounds, figures.noise(before, figures.probe()))


def shown(
    results: list[dict[str, Any]], rounds: int, noise: dict[str, Any]
) -> tuple[dict[str, Any], list[Target]]:
    delays = [delay for one in results for delay in one["delays"]]
    whole = [delay for one in results for delay in one["from_begin"]]
    middle = round(statistics.median(delays), 1)
    late = round(figures.percentile(delays, 0.99), 1)
    faults = ("lost", "out_of_order", "sockets_behind", "socket_gaps")
    counted = {name: sum(one[name] for one in results) for name in faults}
    found = {
        "rounds": rounds,
        "viewers": SOCKETS + 1,
        "events": len(delays),
        "events_a_second": EVENTS_A_SECOND,
        "p50": middle,
        "p99": late,
        "p50_with_the_commit": round(statistics.median(whole), 1),
        "p99_with_the_commit": round(figures.percentile(whole, 0.99), 1),
        "min": round(min(delays), 1),
        "max": round(max(delays), 1),
        "p50_of_rounds": [round(statistics.median(one["delays"]), 1) for one in results],
        "p99_of_rounds": [round(figures.percentile(one["delays"], 0.99), 1) for one in results],
        **counted,
        "noise": noise,
    }
    return found, [
        Target("L3 commit to paint, p50 ms", middle, 60.0),
        Target("L3 commit to paint, p99 ms", late, 150.0),
        Target("L2 lost or out of order", float(sum(counted.values())), 0.0),
    ]


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=ROUNDS)
    figures.report(*asyncio.run(measure(chosen.rounds, 15 if chosen.quick else STEPS)))


if __name__ == "__main__":
    main()

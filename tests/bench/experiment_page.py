"""How long the pages of experiments with 1,500 runs take, in the server and in a browser.

    python -m tests.bench.experiment_page [--browser]

Two experiments: 500 tasks × 3 seeds, and 250 tasks × 2 arms × 3 seeds. Times are milliseconds in the server
(test client, sessions and templates included); `…_cpu_ms` is processor time, which other programs on the
machine disturb less. Prints one JSON object. Target: each of grid, filtered grid and list at most 113 ms.

`--browser` opens the grids in Chromium as well: until its first paint, and from a key to the next frame.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

TARGET_MS = 113
_STEPS = 8
_KEYS = """async () => {
  const took = [];
  for (let at = 0; at < 60; at += 1) {
    const began = performance.now();
    const key = at % 4 === 3 ? (at % 8 === 3 ? "ArrowRight" : "ArrowLeft") : "ArrowDown";
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    took.push(performance.now() - began);
  }
  return took;
}"""


def server_figures(pages: dict[str, str], *, rounds: int) -> dict[str, object]:
    """Median, best and processor time of each page, asked in turns."""
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from tests import builders

    client = Client(raise_request_exception=True)
    client.force_login(builders.person())
    wall: dict[str, list[float]] = {name: [] for name in pages}
    cpu: dict[str, list[float]] = {name: [] for name in pages}
    for at in range(rounds + 1):
        for name, path in pages.items():
            started, used = time.perf_counter(), time.process_time()
            client.get(path)
            # The first round loads templates and what is imported late.
            if at:
                wall[name].append((time.perf_counter() - started) * 1e3)
                cpu[name].append((time.process_time() - used) * 1e3)
    found: dict[str, object] = {}
    for name, path in pages.items():
        with CaptureQueriesContext(connection) as queries:
            body = client.get(path).content
        found[name] = {
            "ms_median": round(statistics.median(wall[name]), 1),
            "ms_best": round(min(wall[name]), 1),
            "cpu_ms_median": round(statistics.median(cpu[name]), 1),
            "bytes": len(body),
            "queries": len(queries),
        }
    found["slowest_ms_median"] = round(max(statistics.median(times) for times in wall.values()), 1)
    found["slowest_cpu_ms_median"] = round(max(statistics.median(times) for times in cpu.values()), 1)
    return found


def browser_figures(pages: dict[str, str]) -> dict[str, object]:
    """Until the first paint, until everything is loaded, and how long a key takes until the next frame."""
    from playwright.sync_api import sync_playwright

    from tests import builders
    from tests.browser.conftest import FLAGS
    from tests.live.lab_server import LabServer, session_cookie

    name, _, value = session_cookie(builders.person()).partition("=")
    server = LabServer()
    server.start()
    found: dict[str, object] = {}
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            for page_name, path in pages.items():
                context = browser.new_context(viewport={"width": 1440, "height": 900})
                context.add_cookies([{"name": name, "value": value, "url": f"http://{server.host}"}])
                page = context.new_page()
                page.goto(f"http://{server.host}{path}")
                times = page.evaluate(
                    "() => [performance.getEntriesByName('first-contentful-paint')[0].startTime,"
                    " performance.getEntriesByType('navigation')[0].responseEnd,"
                    " performance.getEntriesByType('navigation')[0].loadEventEnd]"
                )
                page.locator("#grid td[data-group] a").first.focus()
                keys = sorted(page.evaluate(_KEYS))
                found[page_name] = {
                    "first_paint_ms": round(times[0]),
                    "response_ms": round(times[1]),
                    "loaded_ms": round(times[2]),
                    "key_ms_median": round(statistics.median(keys), 1),
                    "key_ms_p95": round(keys[int(0.95 * (len(keys) - 1))], 1),
                }
                context.close()
            browser.close()
    finally:
        server.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--browser", action="store_true", help="open the grids in Chromium as well")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        from tests.bench import big_lab

        big_lab.prepare(Path(folder))
        one = big_lab.fill(steps=_STEPS, arms=1, tasks=500, seeds=3).experiment
        two = big_lab.fill(steps=_STEPS, arms=2, tasks=250, seeds=3).experiment
        pages = {
            "grid_500x3": f"/experiments/{one}/",
            "grid_250x2x3": f"/experiments/{two}/",
            "filtered_500x3": f"/experiments/{one}/?show=unresolved&sort=disagreement",
            "filtered_250x2x3": f"/experiments/{two}/?show=flagged&sort=rate",
            "list_of_runs": f"/experiments/{two}/?as=list",
            "experiments": "/experiments/",
        }
        result = {"bench": "experiment_page", "target_ms": TARGET_MS}
        result |= server_figures(pages, rounds=asked.rounds)
        if asked.browser:
            grids = {name: path for name, path in pages.items() if name.startswith("grid")}
            result["browser"] = browser_figures(grids)
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""One viewer of a run: says when it watches, and what it has seen when the run has ended."""

from __future__ import annotations

import argparse
import json
import time

from websockets.sync.client import connect

_SILENCE_SECONDS = 30.0


def watch(host: str, run: int, cookie: str) -> None:
    """Read all that the run's socket says until the run has ended, or for half a minute nothing is new."""
    seen = messages = gaps = 0
    heard = time.monotonic()
    ended = False
    with connect(
        f"ws://{host}/ws/runs/{run}/?after=0",
        origin=f"http://{host}",  # type: ignore[arg-type]
        additional_headers={"Cookie": cookie},
        compression=None,
        max_size=None,
        open_timeout=30,
    ) as socket:
        print(json.dumps({"watching": run}), flush=True)
        while not ended and time.monotonic() - heard < _SILENCE_SECONDS:
            message = json.loads(socket.recv())
            if message.keys() == {"now"}:
                continue
            heard = time.monotonic()
            messages += 1
            gaps += message.get("after", 0) > seen
            seen = max(seen, message.get("seq", 0))
            ended = message.get("status") == "ended"
    print(
        json.dumps({"run": run, "messages": messages, "last_seq": seen, "gaps": gaps, "ended": ended}),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--cookie", required=True)
    chosen = parser.parse_args()
    watch(chosen.host, chosen.run, chosen.cookie)


if __name__ == "__main__":
    main()

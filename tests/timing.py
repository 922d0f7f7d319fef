"""How tests speak of time, on machines that are slow and stand still for seconds at any moment."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

# What happens at once, or within a second or two, has happened after so many seconds. What a test would wait
# for if it did not happen takes longer still.
SOON = 25.0
_ROUNDS = 8


def seconds_of(work: Callable[[], object]) -> float:
    """Processor seconds that `work` takes in this thread.

    What other tests have left in memory is kept from the garbage collector meanwhile, as a worker does it
    with what it has loaded: otherwise a collection that `work` happens to start costs more than `work`.
    """
    gc.freeze()
    try:
        started = time.thread_time()
        work()
        return time.thread_time() - started
    finally:
        gc.unfreeze()


def require_growth(work: Callable[[int], object], *, whole: int, at_most: float = 10.0) -> None:
    """Fail unless `work(whole)` takes at most so many times as long as `work(whole // 4)`.

    Linear work takes 4 times as long, quadratic work 16 times. The two are measured in turns, and the best
    of each counts, until they agree with that; a machine that is disturbed each time is not to be had.

    Raises:
        AssertionError: with the best of all rounds.
    """
    quarter_best = whole_best = float("inf")
    for _ in range(_ROUNDS):
        quarter_best = min(quarter_best, seconds_of(lambda: work(whole // 4)))
        whole_best = min(whole_best, seconds_of(lambda: work(whole)))
        if whole_best <= at_most * quarter_best:
            return
    raise AssertionError(
        f"{whole} took {whole_best:.4f} s, {whole // 4} took {quarter_best:.4f} s: "
        f"{whole_best / quarter_best:.1f} times as long, and {at_most:g} times is the most"
    )


def when(is_true: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Act as soon as something is true, on a thread of its own, which is returned."""

    def look() -> None:
        until = time.monotonic() + 150
        while not is_true():
            if time.monotonic() > until:
                return
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


def odd_seconds(first: int) -> str:
    """Seconds of a long sleep that stand on no command line of another test process.

    `first` is a digit by which the files of tests differ.
    """
    return f"{first}{os.getpid():07d}.25"


def sleeping(seconds: str) -> list[int]:
    """The processes that are a `sleep` of just so many seconds."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [seconds.encode()] and words[0].endswith(b"sleep"):
                found.append(int(path.name))
    return found

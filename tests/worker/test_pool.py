from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, time
from billiard.exceptions import TimeoutError
from lab.worker.pool import LastingPool

pool = LastingPool(3)


def answers():
    # What a child took in the moment of its death is lost with it, as a message may be; the next one is not.
    for _ in range(4):
        try:
            return pool.apply_async(os.getpid).get(timeout=15)
        except TimeoutError:
            pass
    return None


answered = []
for _ in range(6):
    answered.append(answers())
    time.sleep(0.3)
    idle = pool._pool[-1].pid if _ % 2 else pool._pool[0].pid
    os.kill(idle, signal.SIGKILL)
for process in list(pool._pool):
    os.kill(process.pid, signal.SIGKILL)
print(all([*answered, *(answers() for _ in range(20))]), flush=True)
# Billiard's own end of a pool may wait for a child that was made meanwhile: that is not asked here.
os.killpg(0, signal.SIGKILL)
"""

LOCK = """
import os, signal, time
from lab.worker.pool import KernelLock

lock = KernelLock()
child = os.fork()
if not child:
    lock.acquire()
    time.sleep(600)
while lock.acquire(block=False):
    lock.release()
    time.sleep(0.01)
held = [lock.acquire(timeout=0.2)]
os.kill(child, signal.SIGKILL)
held.append(lock.acquire(timeout=60))
os.waitpid(child, 0)
print(held)
"""


def run(program: str) -> str:
    """In a process of its own: this one has threads, and must not fork."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.strip()


def test_children_that_are_killed_while_they_wait_for_work_keep_nobody_from_it() -> None:
    assert run(PROGRAM) == "True"


def test_a_lock_goes_with_its_holder() -> None:
    assert run(LOCK) == "[False, True]"

"""What a preflight adds to the time that a server takes: all probes of a server that answers at once.

Prints one JSON object. The examined server is the tests' healthy one; `added_seconds` is the time from the
claim to the stored result without that between each request and its answer.

Target: under 10 s.

    python -m tests.bench.preflight [--rounds 5] [--quick]
"""

from __future__ import annotations

import time
from typing import Any

from tests.bench import figures
from tests.bench.figures import Target
from tests.fakes.model_server import MODEL, ModelServer
from tests.whole_lab import WholeLab

_EXAMINE = """
from lab.models import Endpoint, Model
from lab.services import preflight_work, preflights
from lab.services.processes import process_identity
import time
endpoint = Endpoint.objects.get_or_create(name="fast", defaults={"base_url": arguments[0]})[0]
model = Model.objects.get_or_create(endpoint=endpoint, name="fast", defaults={"model_id": arguments[1]})[0]
began = time.perf_counter()
ended = preflight_work.conduct(preflight=preflights.begin(model=model, worker=process_identity()))
passed = time.perf_counter() - began
assert ended.outcome == "healthy", ended.findings
print(json.dumps([passed, sum(probe.get("seconds", 0.0) for probe in ended.probes)]))
"""


def measure(rounds: int) -> dict[str, Any]:
    """Seconds in all, and those that no request was under way, by round."""
    whole: list[float] = []
    added: list[float] = []
    with ModelServer() as server, WholeLab() as lab:
        for _ in range(rounds):
            passed, asked = lab.program(_EXAMINE, server.base_url, MODEL)
            whole.append(passed)
            added.append(passed - asked)
            time.sleep(0.1)
    return {"seconds": figures.summary(whole), "added_seconds": figures.summary(added)}


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=5)
    before = figures.probe()
    found = measure(2 if chosen.quick else chosen.rounds)
    targets = [Target("added seconds", found["added_seconds"]["median"], 10.0)]
    figures.report({**found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()

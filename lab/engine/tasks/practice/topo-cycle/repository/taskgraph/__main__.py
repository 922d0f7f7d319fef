"""python -m taskgraph FILE [TARGET...]"""

import sys
from pathlib import Path

from taskgraph import GraphError, TaskGraph


def main(arguments):
    if not arguments:
        print("usage: python -m taskgraph FILE [TARGET...]", file=sys.stderr)
        return 2
    file, *targets = arguments
    try:
        plan = TaskGraph.from_text(Path(file).read_text(encoding="utf-8")).plan(*targets)
    except GraphError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for number, batch in enumerate(plan.batches(), start=1):
        print(f"{number}. {', '.join(batch)}")
    for name, missing in plan.skipped.items():
        print(f"skipped {name}: {missing} does not exist")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

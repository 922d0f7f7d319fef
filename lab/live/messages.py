"""What goes over a socket: JSON with fragments of the page, each with an id of its own.

`seq` and `after` say which numbers of the log a message covers, `steps` holds step fragments, `map` their
links in the minimap, `parts` replace elements by id, `rows` are rows of a list, `cells` those of a grid,
`draft` is text that still streams. Of runs side by side, `runs` only says how far each of them is.
`now` is the server's clock in milliseconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from lab.live.hub import Message
from lab.services.trajectories import Batch


def _text(fields: Mapping[str, object]) -> str:
    return json.dumps({**fields, "now": int(time.time() * 1000)}, ensure_ascii=True, separators=(",", ":"))


def steps(batch: Batch) -> Message:
    """New and changed fragments. Where a secret was purged, the page is to load itself anew."""
    fields = {
        "after": batch.after,
        "seq": batch.last,
        "steps": "".join(fragment.html for fragment in batch.fragments),
        "map": "".join(fragment.map_html for fragment in batch.fragments),
    }
    if batch.purged:
        fields["reload"] = True
    return Message(batch.after, batch.last, _text(fields))


def parts(changed: Sequence[str], *, status: str, last: int) -> Message:
    """Elements to put in the place of those with the same id, and what the run's last number was.

    They may come before the steps of that number: a page whose run has ended waits for these.
    """
    return Message(0, 0, _text({"parts": "".join(changed), "status": status, "last": last}))


def draft(html: str, *, seq: int, step: int, version: int) -> Message:
    """The streaming text of the open step."""
    return Message(seq, seq, _text({"draft": html, "step": step, "version": version, "of": seq}))


def rows(html: Sequence[str], *, parts: Sequence[str] = (), seq: int = 0) -> Message:
    """Rows of a list of runs, and what the page says of the list as a whole."""
    return Message(seq, seq, _text({"rows": "".join(html), "parts": "".join(parts)}))


def cells(html: Sequence[str], *, parts: Sequence[str], counts: Mapping[str, int], mark: int) -> Message:
    """Cells of a grid, what stands beside them, and up to which event of the lab that is (`mark`).

    `counts` are the numbers of its filters; by that of all a page sees that runs were added.
    """
    fields: dict[str, object] = {"cells": "".join(html), "parts": "".join(parts), "mark": mark}
    fields |= {"counts": dict(counts)} if counts else {}
    return Message(mark, mark, _text(fields))


def comparison(states: Mapping[int, tuple[int, str]]) -> Message:
    """How far each compared run is: its last number and its status. The page fetches what it shows."""
    told = {str(run): {"seq": seq, "status": status} for run, (seq, status) in states.items()}
    return Message(0, 0, _text({"runs": told}))


def alive() -> str:
    """Says that the socket works, however quiet the run is."""
    return _text({})


def caught_up(seq: int) -> str:
    """Everything up to `seq` has been sent."""
    return _text({"live": seq})

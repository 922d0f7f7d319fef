"""What a label must say before it is submitted."""

from __future__ import annotations

from lab.engine.labels.label import Label, Owner


def missing(label: Label) -> dict[str, str]:
    """Field -> what is missing and how to give it; empty for a label that can be submitted.

    Needed are whose fault it is and how sure one is; where it is the agent's, at least one error event with a
    category and the pointer to the one that is the root cause. Any event that there is needs its category.
    """
    problems: dict[str, str] = {}
    if label.owner is None:
        problems["owner"] = "Whose fault? is not answered; choose one, “inconclusive” if nobody can tell."
    for event in label.events:
        if not event.category:
            problems["events"] = (
                f"E{event.key} (step {event.step}) has no category; choose one, or remove the event."
            )
            break
    if label.owner is Owner.AGENT:
        if not label.events:
            problems["events"] = "There is no error event; add one at the step that went wrong (n)."
        elif label.root_cause is None:
            problems["root_cause"] = "No event is the root cause; go to its step and press r, or choose it."
    if label.sure is None:
        problems["sure"] = "Sure or unsure is not answered; press s."
    return problems

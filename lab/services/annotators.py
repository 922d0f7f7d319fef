"""Whose reading a label is."""

from __future__ import annotations

from django.contrib.auth.models import User

from lab.models import Annotator, Model


def annotator_of(person: User) -> Annotator:
    """The person as an annotator, made when they label for the first time."""
    found, _ = Annotator.objects.get_or_create(
        person=person, defaults={"kind": Annotator.Kind.PERSON, "name": person.get_username()}
    )
    return found


def known_annotator(person: User) -> Annotator | None:
    """The person as an annotator, None as long as they have labelled nothing."""
    return Annotator.objects.filter(person=person).first()


def imported_annotator(name: str) -> Annotator:
    """Somebody of whom only a file's name for them is known."""
    found, _ = Annotator.objects.get_or_create(kind=Annotator.Kind.IMPORTED, name=name)
    return found


def judge_annotator(model: Model) -> Annotator:
    """A model that reads runs; each version of a model is a judge of its own."""
    found, _ = Annotator.objects.get_or_create(
        model=model, defaults={"kind": Annotator.Kind.JUDGE, "name": f"{model.name} ({model.pk})"}
    )
    return found

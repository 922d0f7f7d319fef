"""A text of each column held against the first column's: what is equal, and the marks on what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile

from lab.render.marks import Marks, compared, lines_of, without_numbers
from lab.render.normal_form import StoredText, output_of
from lab.render.text import Excerpt


class Sameness(Enum):
    """How a text relates to those of the other columns."""

    ALONE = "no other column has one"
    EQUAL = "equal"
    NEARLY = "equal but for what means nothing"
    OTHER = "other"


@dataclass(slots=True)
class Held:
    """How the text of one column stands to the first one's.

    `first`: the letter of that column, "" for the first itself. `remark`: what marks cannot say; of what is
    nearly equal in what it differs, such as "durations".
    """

    sameness: Sameness = Sameness.ALONE
    first: str = ""
    marks: Marks = field(default_factory=Marks)
    remark: str = ""


def held_against(
    texts: Sequence[Excerpt | None], letters: Sequence[str], *, printed: bool = False
) -> list[Held]:
    """How each column's text stands to that of the first column that has one; None: this column has none.

    The first is marked wherever one of the others differs from it. `printed`: it is output, of which
    durations and the like mean nothing.
    """
    answers = [Held() for _ in texts]
    places = [place for place, text in enumerate(texts) if text is not None]
    if len(places) < 2:
        return answers
    first = answers[places[0]]
    first.sameness = Sameness.EQUAL
    for place in places[1:]:
        base, text = texts[places[0]], texts[place]
        if base is None or text is None:
            continue
        held, of_first = _pair(base, text, printed=printed)
        held.first = letters[places[0]]
        answers[place] = held
        first.marks.take_in(of_first)
        if _RANKS.index(held.sameness) > _RANKS.index(first.sameness):
            first.sameness, first.remark = held.sameness, held.remark
    return answers


_RANKS = [Sameness.EQUAL, Sameness.NEARLY, Sameness.OTHER]


def _pair(base: Excerpt, text: Excerpt, *, printed: bool) -> tuple[Held, Marks]:
    if are_equal(base, text):
        return Held(Sameness.EQUAL), Marks()
    left, right = lines_of(base.text), lines_of(text.text)
    plain_left, plain_right = (without_numbers(left), without_numbers(right)) if printed else (left, right)
    of_base, of_text = compared(plain_left, plain_right)
    _number_partners(of_base, left, plain_left)
    _number_partners(of_text, right, plain_right)
    if not text.whole:
        _forget_end(of_base, left, of_text, right)
    if not base.whole:
        _forget_end(of_text, right, of_base, left)
    if not (base.whole and text.whole):
        common = min(len(base.text), len(text.text))
        has_marks = of_base.differs or of_text.differs
        remark = "" if has_marks else f"equal in the first {common:,} characters; they differ later"
        return Held(Sameness.OTHER, marks=of_text, remark=remark), of_base
    if left == right:
        return Held(*_but_for_ends(base.text, text.text)), of_base
    if plain_left == plain_right:
        return Held(Sameness.NEARLY, remark="the numbers of lines"), of_base
    if printed and _means_the_same(plain_left, of_base, plain_right, of_text):
        return Held(Sameness.NEARLY, marks=of_text, remark="durations"), of_base
    return Held(Sameness.OTHER, marks=of_text), of_base


def _number_partners(marks: Marks, lines: Sequence[str], plain: Sequence[str]) -> None:
    """Have each partner begin with the number of the line it stands for: numbers are no words that differ."""
    if plain is not lines:
        for place, partner in marks.partners.items():
            number = lines[place][: len(lines[place]) - len(plain[place])]
            marks.partners[place] = number + partner


def _but_for_ends(base: str, text: str) -> tuple[Sameness, str, Marks, str]:
    """How texts relate whose lines are equal."""
    if base == text:
        return Sameness.OTHER, "", Marks(), "they differ in what looks like a key and is masked here"
    at_end = base.rstrip("\r\n") == text.rstrip("\r\n")
    return Sameness.NEARLY, "", Marks(), "the newline at the end" if at_end else "the ends of lines"


def _means_the_same(left: Sequence[str], of_left: Marks, right: Sequence[str], of_right: Marks) -> bool:
    """Whether lines differ only in what differs each time the same is done."""
    pairs = zip(sorted(of_left.differs), sorted(of_right.differs), strict=False)
    same_number = len(of_left.differs) == len(of_right.differs) > 0
    return same_number and all(output_of(left[i]) == output_of(right[j]) for i, j in pairs)


def are_equal(one: Excerpt, other: Excerpt) -> bool:
    """Whether two texts are equal to their ends, as far as that is known."""
    if isinstance(one, StoredText) and isinstance(other, StoredText):
        return one.sha256 == other.sha256
    return one.whole and other.whole and one.text == other.text


def _forget_end(own: Marks, lines: Sequence[str], other: Marks, cut: Sequence[str]) -> None:
    """Take back marks at the end where the other text was only cut before it comes to those lines."""
    if cut and len(cut) - 1 in other.differs and len(cut) - 1 not in other.partners:
        return
    end = takewhile(lambda place: place in own.differs, range(len(lines) - 1, -1, -1))
    for place in list(end):
        if place not in own.partners:
            own.differs.discard(place)

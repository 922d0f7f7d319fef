import pytest

from slugs import slugify


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Hello, world!", "hello-world"),
        ("  spaces   everywhere ", "spaces-everywhere"),
        ("What's new?", "whats-new"),
        ("snake_case and-hyphens", "snake-case-and-hyphens"),
        ("Crème brûlée", "creme-brulee"),
        ("Straße nach Łódź", "strasse-nach-lodz"),
        ("Python 3.12", "python-3-12"),
        ("!?", ""),
    ],
    ids=["comma", "spaces", "apostrophe", "underscore", "accents", "letters", "digits", "nothing"],
)
def test_ascii(title, slug):
    assert slugify(title) == slug


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Crème brûlée", "crème-brûlée"),
        ("Как испечь хлеб", "как-испечь-хлеб"),
        ("東京の天気", "東京の天気"),
        ("10 € für alle", "10-für-alle"),
    ],
    ids=["french", "russian", "japanese", "sign"],
)
def test_unicode(title, slug):
    assert slugify(title, unicode=True) == slug


def test_decomposed_accents_are_dropped_in_ascii():
    assert slugify("Cre\u0300me bru\u0302le\u0301e") == "creme-brulee"


def test_cut_between_words():
    assert slugify("one two three", limit=9) == "one-two"
    assert slugify("one two three", limit=7) == "one-two"


def test_a_first_word_that_is_too_long_is_cut_hard():
    assert slugify("incomprehensibilities", limit=6) == "incomp"

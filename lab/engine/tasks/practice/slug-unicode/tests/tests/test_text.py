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


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Mon re\u0301sume\u0301", "mon-r\u00e9sum\u00e9"),
        ("Ko\u0308ln im U\u0308berblick", "k\u00f6ln-im-\u00fcberblick"),
        ("Tie\u0302\u0301ng Vie\u0323\u0302t", "ti\u1ebfng-vi\u1ec7t"),
    ],
    ids=["french", "german", "vietnamese"],
)
def test_decomposed_accents_are_composed(title, slug):
    assert slugify(title, unicode=True) == slug


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("हिन्दी में समाचार", "हिन्दी-में-समाचार"),
        ("ตำนานของที่นี่", "ตำนานของที่นี่"),
        ("மழை பெய்தது", "மழை-பெய்தது"),
    ],
    ids=["hindi", "thai", "tamil"],
)
def test_vowel_signs_are_part_of_their_word(title, slug):
    assert slugify(title, unicode=True) == slug


def test_accents_that_have_no_composed_form_stay():
    assert slugify("x\u0304 and p\u0302", unicode=True) == "x\u0304-and-p\u0302"


def test_underscores_still_separate_words():
    assert slugify("snake_case und Gro\u0308\u00dfe", unicode=True) == "snake-case-und-gr\u00f6\u00dfe"

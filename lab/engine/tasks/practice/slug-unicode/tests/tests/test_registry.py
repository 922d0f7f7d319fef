import pytest

from slugs import Registry
from slugs.__main__ import main


def test_the_second_of_a_kind_is_numbered():
    pages = Registry()
    assert [pages.claim("News"), pages.claim("News!"), pages.claim("news")] == ["news", "news-2", "news-3"]


def test_numbers_fit_into_the_limit():
    pages = Registry(limit=6)
    assert [pages.claim("abcdefgh"), pages.claim("abcdefgh")] == ["abcdef", "abcd-2"]


def test_a_title_without_letters_is_a_page():
    assert Registry().claim("...") == "page"


def test_release():
    pages = Registry()
    slug = pages.claim("News")
    assert pages.title(slug) == "News"
    pages.release(slug)
    assert slug not in pages
    with pytest.raises(KeyError):
        pages.release(slug)


def test_command_line(capsys):
    assert main(["Größe", "Größe", "--unicode"]) == 0
    assert capsys.readouterr().out.split() == ["größe", "größe-2"]


def test_titles_that_look_the_same_share_a_slug():
    pages = Registry(unicode=True)
    assert pages.claim("Cafe\u0301") == "caf\u00e9"
    assert pages.claim("Caf\u00e9") == "caf\u00e9-2"


def test_command_line_keeps_words_whole(capsys):
    assert main(["नमस्ते दुनिया", "--unicode"]) == 0
    assert capsys.readouterr().out.split() == ["नमस्ते-दुनिया"]

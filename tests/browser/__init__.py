import pytest

# Their assertions are to say what they compared.
pytest.register_assert_rewrite("tests.browser.watching", "tests.browser.acting")

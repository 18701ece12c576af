"""The book builds without a warning in both languages, no translation is outdated, and a browser shows every page."""

import pytest
from test_tools import check

device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_book():
    check("scripts/book.py", "--check")


def test_pages_in_a_browser():
    check("scripts/check_book_pages.py")

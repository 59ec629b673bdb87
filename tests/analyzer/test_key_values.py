"""Options of the form key=value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.key_values import only_known, parse_options

WORDS = st.text("abcxyz0129-", min_size=1)


@given(st.dictionaries(WORDS, WORDS))
def test_what_is_written_is_read(options):
    text = " , ".join(f"{key} = {value}" for key, value in options.items())
    assert parse_options(text, "--option") == options


def test_a_value_may_contain_an_equals_sign():
    assert parse_options("a=b=c,", "x") == {"a": "b=c"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "--option: 'a' is not key=value"),
        ("a=", "--option: 'a=' is not key=value"),
        ("a=1,b=2,a=1", "--option: a is given twice"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(UsageError, match=message):
        parse_options(text, "--option")


@pytest.mark.parametrize(("known", "has"), [(("a", "b"), "a, b"), ((), "no options")])
def test_a_key_that_is_not_known(known, has):
    only_known(known, known, "--option has no")
    with pytest.raises(UsageError, match=f"^--option has no 'c'; it has {has}$"):
        only_known([*known, "c"], known, "--option has no")

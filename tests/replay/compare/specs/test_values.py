"""Times, shares and numbers in options."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.values import ratio, share, time_ps, whole


def test_values():
    assert (time_ps("0", "x"), time_ps("50us", "x"), time_ps("7ns", "x")) == (0, 50 * 10**6, 7000)
    assert (share("0%", "x"), share("1%", "x"), share("100%", "x")) == (0.0, 0.01, 1.0)
    assert (whole("0", "x"), whole("999999999", "x")) == (0, 999_999_999)
    assert (ratio("1/8", "x"), ratio("0.125", "x")) == (0.125, 0.125)


@pytest.mark.parametrize(
    ("function", "texts", "message"),
    [
        (time_ps, ["", "5", "5 parsecs", "-1us"], "--fail: .* is not a time; write it like 50us"),
        (share, ["1", "101%", "-1%", "%", "nan%"], "--fail: .* is not a share"),
        (whole, ["", "-1", "1.5", "1e3", "٣", "9999999999"], "--fail=.* is not a whole number"),
        (ratio, ["", "1/0", "a/b", "1/2/3"], "--fail: .* is not a number"),
    ],
)
def test_mistakes(function, texts, message):
    for text in texts:
        with pytest.raises(UsageError, match=message):
            function(text, "--fail")

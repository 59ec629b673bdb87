"""Options of schemes: defaults, names, mistakes in one line."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.schemes.options import Options

DEFAULTS = {"rto": "1ms", "cc": "no", "by": "a", "n": "3"}


def test_values_are_the_defaults_or_those_given():
    options = Options("x", {"rto": "2us", "cc": "no"}, DEFAULTS)
    assert options.name == "x:rto=2us"
    assert options.ps("rto") == 2_000_000 and not options.on("cc")
    assert options.one_of("by", "a", "b") == "a" and options.number("n", 0, 9) == 3
    assert Options("x", {"rto": "off"}, DEFAULTS).ps("rto") == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"what": "1"}, "no option 'what'; it has rto, cc, by, n"),
        ({"rto": "soon"}, "scheme x: rto"),
        ({"cc": "maybe"}, "yes or no"),
        ({"by": "c"}, "a or b"),
        ({"n": "10"}, "0 to 9"),
        ({"n": "9" * 5000}, "0 to 9"),
    ],
)
def test_mistakes(given, said):
    with pytest.raises(UsageError, match=said):
        options = Options("x", given, DEFAULTS)
        options.ps("rto"), options.on("cc"), options.one_of("by", "a", "b")
        options.number("n", 0, 9)

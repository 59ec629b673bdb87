"""Options of strategies."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.strategies.base import Configured


class Some(Configured):
    name = "some"


def test_values_and_defaults():
    given = Some({"k": "7", "mode": "b", "gap": "5us"})
    assert (given.whole("k", 1, 1, 9), Some({}).whole("k", 1, 1, 9)) == (7, 1)
    assert (given.word("mode", "a", "b"), Some({}).word("mode", "a", "b")) == ("b", "a")
    assert given.duration_ps("gap", "1ms") == (5 * 10**6, "5us")
    assert Some({}).duration_ps("gap", "1ms") == (10**9, "1ms")
    given.known("k", "mode", "gap")


def test_a_default_that_another_strategy_sets():
    assert Some({"k": "7"}).with_default("k", "3").options == {"k": "7"}
    assert Some({}).with_default("k", "3").options == {"k": "3"}
    assert Some({}, "other").name == "other" and Some({}).name == "some"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda s: s.whole("k", 1, 1, 9), "some: k '10' is not a whole number from 1 to 9"),
        (lambda s: s.word("k", "a", "b"), "some: k=10: use a or b"),
        (lambda s: s.known("x"), "some has no option 'k'; it has x"),
        (lambda s: s.known(), "some has no option 'k'; it has no options"),
        (lambda s: s.duration_ps("k", "1s"), "some: k"),
    ],
)
def test_mistakes(read, message):
    with pytest.raises(UsageError, match=message):
        read(Some({"k": "10"}))

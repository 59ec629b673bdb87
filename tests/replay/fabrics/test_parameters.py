"""Parameters of a fabric in a spec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.units import parse_rate
from rocescope.replay.fabrics.parameters import (
    COUNT,
    RATE_AND_DELAY,
    UPLINKS,
    Parameter,
    checked,
    rate_text,
    split_options,
)

PARAMETERS = {"leaves": Parameter(COUNT, 2, "leaves", most=8), **RATE_AND_DELAY, **UPLINKS}


def test_changes_are_apart_and_add_up():
    text = "leaves=4, down=leaf1-spine2+host1,slow=a-b:100G+c>d:1.6T,down=7,"
    options, changes = split_options(text, "leaf-spine")
    assert options == {"leaves": "4"}
    assert changes.down == ("leaf1-spine2", "host1", "7")
    assert changes.slow == (("a-b", 100 * 10**9), ("c>d", 1600 * 10**9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("leaves", "'leaves' is not key=value"),
        ("leaves=1,leaves=2", "leaves is given twice"),
        ("slow=leaf1-spine2", "slow=leaf1-spine2 has no rate"),
        ("slow=leaf1-spine2:fast", "slow=leaf1-spine2"),
    ],
)
def test_mistakes_in_the_text(text, message):
    with pytest.raises(UsageError, match=f"leaf-spine: {message}"):
        split_options(text, "leaf-spine")


def test_values_and_defaults():
    values = checked("x", {"leaves": "8", "delay": "0", "rate": "1.5G"}, PARAMETERS)
    assert [values.count(key) for key in ("leaves", "delay", "rate")] == [8, 0, 1_500_000_000]
    assert values.uplink_rate(10**12, 4) == 1_500_000_000
    four = checked("x", {"oversubscription": "4:1"}, PARAMETERS)
    assert four.uplink_rate(10**12, 5) == 50 * 10**9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leafs": "1"}, "x has no parameter 'leafs'; .*leaves"),
        ({"leaves": "9"}, "x: leaves '9' is not a whole number from 1 to 8"),
        ({"leaves": "-1"}, "x: leaves '-1' is not a whole number"),
        ({"leaves": "²"}, "x: leaves '²' is not a whole number"),
        ({"rate": "fast"}, "x: .*rate"),
        ({"oversubscription": "0"}, "x: oversubscription '0' is not a ratio above 0"),
        ({"oversubscription": "inf"}, "x: oversubscription 'inf' is not a ratio"),
    ],
)
def test_mistakes_in_values(options, message):
    with pytest.raises(UsageError, match=message):
        checked("x", options, PARAMETERS)


def test_two_ways_to_give_the_rate_of_uplinks():
    both = checked("x", {"oversubscription": "2", "uplink_rate": "1G"}, PARAMETERS)
    with pytest.raises(UsageError, match="uplink_rate cannot be combined with oversubscription"):
        both.uplink_rate(10**12, 4)
    with pytest.raises(UsageError, match="leaves no uplink rate"):
        checked("x", {"oversubscription": "999999"}, PARAMETERS).uplink_rate(10**5, 4)


@given(st.integers(1, 10**15))
def test_a_rate_is_read_as_it_is_written(rate):
    assert parse_rate(rate_text(rate), "rate") == rate

"""Schemes by name."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.schemes.registry import SCHEMES, parse_schemes


def test_all_without_a_name_and_those_named():
    assert [one.name for one in parse_schemes([])] == [*SCHEMES, "ring", "tree"]
    assert [one.name for one in parse_schemes(["atp", "atp:cc=yes"])] == ["atp", "atp:cc=yes"]


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["sharp"], "no scheme 'sharp'; there are switchml"),
        (["atp", "atp:rto=200us"], "given twice"),
        (["esa:x"], "not key=value"),
    ],
)
def test_mistakes(specs, said):
    with pytest.raises(UsageError, match=said):
        parse_schemes(specs)

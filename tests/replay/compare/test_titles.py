"""Titles of strategies."""

from __future__ import annotations

import csv

import pytest

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.replay.results.replay import ReplayResult, short_titles
from rocescope.report.files.replay import encode

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G,delay=500ns"
PATTERN = "permutation:message-size=8192"


def _replayed(*strategies: str) -> ReplayResult:
    request = ReplayRequest(FABRIC, strategies, pattern=PATTERN, packets=True)
    return PreparedReplay(request).by_packets(strategies, None)[0]


@pytest.mark.parametrize(
    ("strategies", "titles", "short"),
    [
        (
            ("host-spray:evs=9", "host-spray:evs=9,order=turns", "drill"),
            ["host-spray (evs=9)", "host-spray (evs=9, order=turns)", "drill"],
            ["host-spray (evs=9)", "host-spray (evs=9, order=turns)", "drill"],
        ),
        (
            ("jsq:ties=first", "jsq", "ecmp"),
            [
                "jsq (ties=first, acks=random)",
                "jsq (ties=random, acks=random)",
                "ecmp (hash=linux)",
            ],
            ["jsq (ties=first, acks=random)", "jsq (ties=random, acks=random)", "ecmp"],
        ),
    ],
)
def test_parameters_in_which_strategies_of_one_name_differ_are_in_their_titles(
    strategies: tuple[str, ...], titles: list[str], short: list[str]
) -> None:
    result = _replayed(*strategies)
    assert [one.title for one in result.strategies] == titles
    assert short_titles(result.strategies) == short
    rows = csv.DictReader(encode(result, "csv").decode().splitlines())
    assert list(dict.fromkeys(row["strategy"] for row in rows)) == short


def test_titles_of_varied_cases() -> None:
    request = ReplayRequest(FABRIC, ("jsq:ties=first", "jsq"), pattern=PATTERN, packets=True)
    result, whole = replay_varied(request, ["rate=100G,400G"])
    assert (
        whole
        and [short_titles(one.strategies) for one in result.varied]
        == [["jsq (ties=first, acks=random)", "jsq (ties=random, acks=random)"]] * 2
    )

"""`--transport`, `--fail` and `--converge`: what they mean, and one line for a mistake."""

from __future__ import annotations

import re

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.failures import parse_failures
from rocescope.replay.fabrics.parse import parse_fabric

PLANES = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G")
US = 1_000_000


def events(text: str) -> list[tuple[int, str, str, float]]:
    return [
        (e.time_ps, PLANES.link_name(int(e.link)), e.what, e.value)
        for e in parse_failures([text], "never", PLANES, 1).events
    ]


def test_a_cable_is_down_for_a_while() -> None:
    one, other = "plane1.leaf1>plane1.spine2", "plane1.spine2>plane1.leaf1"
    assert events("plane1.leaf1-plane1.spine2@2us..3us") == [
        (2 * US, one, "down", 0), (2 * US, other, "down", 0),
        (3 * US, one, "up", 0), (3 * US, other, "up", 0),
    ]  # fmt: skip
    assert events(one) == [(0, one, "down", 0)]


def test_slow_lossy_and_flapping_links() -> None:
    link = "plane1.leaf1>plane1.spine2"
    assert events(f"{link}=10G@1us..2us") == [
        (US, link, "slow", 1e10),
        (2 * US, link, "slow", 1e11),
    ]
    assert events(f"{link}=0.5%@1us..2us") == [
        (US, link, "lossy", 0.005), (2 * US, link, "lossy", 0),
    ]  # fmt: skip
    assert events(f"{link}=flap:2us:3us@1us..8us") == [
        (1 * US, link, "down", 0), (3 * US, link, "up", 0),
        (6 * US, link, "down", 0), (8 * US, link, "up", 0),
    ]  # fmt: skip


def test_lengths_and_random_times() -> None:
    link = "plane1.leaf1>plane1.spine2"
    assert events(f"{link}@2us+3us") == [(2 * US, link, "down", 0), (5 * US, link, "up", 0)]
    begins = set()
    for seed in range(20):
        down, up = parse_failures([f"{link}@1us~9us+2us"], "never", PLANES, seed).events
        assert US <= down.time_ps <= 9 * US and up.time_ps == down.time_ps + 2 * US
        begins.add(down.time_ps)
    assert len(begins) == 20
    cables = parse_failures(["100%@0~50us"], "never", PLANES, 1).events
    assert len(cables) == 16 and len({event.time_ps for event in cables}) == 8  # both ways at once


def test_switches_planes_and_a_share_of_all_cables() -> None:
    assert len(events("plane1.spine1")) == 4
    assert len(events("plane2")) == 2 * (2 * 2 + 4)
    assert len(events("100%")) == 2 * 8 and events("0%") == []
    assert parse_failures(["plane1"], "5us", PLANES, 1).convergence_ps == 5 * US
    assert parse_failures(["plane1"], "0", PLANES, 1).convergence_ps == 0
    assert parse_failures(["plane1"], "never", PLANES, 1).convergence_ps is None


@pytest.mark.parametrize(
    "text",
    ["plane3", "plane1.spine1@2us..1us", "plane1.spine1@1us..", "plane1.spine1=fast", "101%",
     "1%=10G", "plane1.spine1=flap:1us:1us", "plane1.spine1@soon",
     "plane1@2us~1us", "plane1@1us+0"],
)  # fmt: skip
def test_failures_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--fail {re.escape(text)}: "):
        parse_failures([text], "never", PLANES, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flap:0:1us", "flapping needs a link.* leaf1-spine1=flap:20us:20us@0..500us$"),
        ("plane1.spine1=1@0", "'1' is not a rate, .* plane1.spine1=100G, plane1.spine1=0.1% or"),
        ("plane1.spine1=flap:0:1us@0..5us", "above 0, for example plane1.spine1=flap:20us:20us@"),
        ("plane1.spine1=@0", "'' is not a rate"),
    ],
)
def test_mistakes_are_told_with_an_example(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^--fail {re.escape(text)}: .*{words}"):
        parse_failures([text], "never", PLANES, 1)

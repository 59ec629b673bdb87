"""`--transport`, `--fail` and `--converge`: what they mean, and one line for a mistake."""

from __future__ import annotations

import json
import re

import pytest

from rocescope import cli
from rocescope.analyzer.errors import UsageError
from rocescope.commands.replay.failure_options import parse_failures, parse_transport
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


def test_transport() -> None:
    found = parse_transport("recovery=sack,congestion=nscc,reordering=6,rto=50us,rate=90%")
    assert (found.recovery, found.congestion, found.reordering_packets) == ("sack", "nscc", 6)
    assert (found.rto_ps, found.rate_share) == (50 * US, 0.9)
    found = parse_transport("mpr=1024,linear=3,rate=rho-max")
    assert (found.mpr_packets, found.linear_retries, found.rate_share) == (1024, 3, 1.0)


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
        ("flap:0:1us", "which link flaps.* leaf1-spine1=flap:20us:20us@0..500us$"),
        ("plane1.spine1=1@0", "'1' is no rate, .* plane1.spine1=100G, plane1.spine1=0.1% or"),
        ("plane1.spine1=flap:0:1us@0..5us", "above 0, for example plane1.spine1=flap:20us:20us@"),
        ("plane1.spine1=@0", "'' is no rate"),
    ],
)
def test_mistakes_are_told_with_an_example(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^--fail {re.escape(text)}: .*{words}"):
        parse_failures([text], "never", PLANES, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recovery=magic", "recovery must be one of none, ideal, sack, go-back-n"),
        ("rto=1h", "rto must be"),
        ("rate=0%", "rate must be"),
        ("reordering=0", "reordering must be"),
        ("mpr=9999999", "mpr must be"),
        ("window=3", "--transport has no 'window'"),
    ],
)
def test_transport_names_the_parameter(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_transport(text)


def test_a_run_with_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = "leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns"
    words = ["replay", "--pattern", "permutation:message-size=256KiB", "--fabric", fabric]
    both = []
    for more in (["--fail", "spine1@10us"], ["--fail", "spine1@10us", "--transport", "rto=70us"]):
        assert cli.run([*words, "-s", "host-spray", *more, "--format", "json"]) == 0
        both += json.loads(capsys.readouterr().out)["strategies"]
    recovered, lost = both
    assert recovered["completion_time_ns"] and recovered["packets"]["model"]["recovery"] == "ideal"
    assert recovered["packets"]["sent_again"] > 0 == lost["packets"]["sent_again"]
    assert cli.run([*words, "-s", "switch-rr", "--fail", "25%@0", "--converge", "0",
                    "--transport", "recovery=ideal,rate=rho-max"]) == 0  # fmt: skip
    text = " ".join(capsys.readouterr().out.split())
    assert "Conditions: recovery ideal" in text and "rate rho-max, fail 25%@0, converge 0" in text
    words[-1] = fabric.replace("leaves=2", "leaves=3")
    uneven = ["--fail", "leaf1-spine1@0", "--converge", "0"]
    assert cli.run([*words, "-s", "host-dr", *uneven]) == 2
    assert "same number of uplinks" in capsys.readouterr().err
    assert cli.run([*words, "-s", "jsq", "--converge", "0"]) == 2
    assert "add --fail" in capsys.readouterr().err
    assert lost["completion_time_ns"] is None and "nothing recovers" in lost["notes"][-1]

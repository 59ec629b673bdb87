"""Titles of strategies."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest, with_words
from rocescope.replay.compare.vary import replay_varied
from rocescope.replay.results import ReplayResult, short_titles
from rocescope.report.files.results import encode

# Titles of strategies.

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


# What is asked of a replay, in words.

PLAIN = ReplayRequest("fat-tree:k=4", captures=("a.pcap",), map="order")


def test_words_say_all_that_can_be_changed() -> None:
    text = (
        "fat-tree:k=8 exact --fail 1% --transport recovery=sack --fail=leaf1-spine1@0 --converge 0"
    )
    found = with_words(PLAIN, text)
    assert found == replace(
        PLAIN,
        fabric="fat-tree:k=8",
        map="exact",
        fail=("1%", "leaf1-spine1@0"),
        transport="recovery=sack",
        converge="0",
    )
    assert with_words(PLAIN, found.words) == found
    assert found.options.count("--fail") == 2 and "--pattern" not in found.options
    assert with_words(found, "fat-tree:k=4 order") == PLAIN  # options do not stay
    spaces = replace(PLAIN, fabric="my fabric.yaml")
    assert with_words(PLAIN, spaces.words) == spaces


def test_what_needs_the_packet_engine() -> None:
    assert not PLAIN.by_packet
    for change in ({"fail": ("1%",)}, {"model": "buffer=1MB"}, {"runs": 2}, {"packets": True}):
        assert replace(PLAIN, **change).by_packet  # type: ignore[arg-type]
    assert replace(PLAIN, strategies=("ecmp", "jsq:acks=shortest")).by_packet


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give a fabric"),
        ("a b c", "give a fabric"),
        ("a --fail", "--fail needs a value"),
        ("a --runs 3", "there is no option --runs; there are --pattern, --jobs, --model"),
        ("a --model x --model y", "--model is given twice"),
        ("a 'b", "No closing quotation"),
    ],
)
def test_words_that_make_no_sense(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        with_words(PLAIN, text)

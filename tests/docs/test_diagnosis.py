"""The page of the diagnosis defines every kind, with the thresholds of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from rocescope.analyzer.diagnosis import finding, known
from rocescope.analyzer.diagnosis import finding as deaths
from rocescope.analyzer.diagnosis.finders import captures, delays, hosts, losses, marks, moves
from rocescope.analyzer.results.diagnosis import Kind

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
SECTIONS = {
    title: " ".join(text.split())
    for title, text in re.findall(r"^### (\S+)\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def test_every_kind_has_its_section_in_the_order_of_the_schema():
    assert list(SECTIONS) == list(get_args(Kind))


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_a_next_step(kind):
    assert "Next:" in SECTIONS[kind]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("loss", losses.LATE_SHARE, "25 %"),
        ("loss", losses.RARE, "0.3 %"),
        ("blackhole", losses.TOTAL_PACKETS, "3 packets in a row"),
        ("rate-limit", losses.OVERFLOW_NS / 1e6, "0.5 ms"),
        ("rate-limit", losses.LIMITED_WINDOWS, "8 windows"),
        ("queueing", delays.QUEUE_NS / 1e6, "0.2 ms"),
        ("incast", losses.INCAST_SOURCES, "three sources"),
        ("rehash", moves.LEAST_FLOWS, "three flows"),
        ("rehash", moves.TOGETHER_NS / 1e6, "100 ms"),
        ("reordering", delays.SLOW_PATH_SHARE, "80 %"),
        ("duplication", marks.TWICE, "40 %"),
        ("stalled", deaths.ROUNDS, "three rewinds"),
        ("stalled", deaths.SILENCE_NS / 1e9, "half a second"),
        ("timeout-recovery", finding.WORTH_A_WARNING, "1 %"),
        ("retry-storm", hosts.ROUNDS, "four times in a row"),
        ("dscp-mismatch", hosts.AGREEMENT, "75 %"),
        ("pause", delays.PAUSE_WORTH_A_WARNING, "1 %"),
        ("pause", delays.PAUSE_STORM, "50 %"),
        ("mark-without-cnp", marks.ENOUGH_MARKS, "ten marked"),
        ("clock", captures.OFFSET_NS / 1e6, "1 ms"),
    ],
)
def test_thresholds_are_those_of_the_code(kind, value, words):
    numbers = {"half": 0.5, "three": 3, "four": 4, "ten": 10}
    first = words.split()[0]
    stated = numbers.get(first) if first in numbers else float(first)
    assert value == pytest.approx(stated / 100 if words.endswith("%") else stated)
    assert words in SECTIONS[kind]


def test_words_on_time():
    text = " ".join(PAGE.split())
    assert finding.EXPECTED == 5 and "five more hits" in text
    assert finding.PAUSES == 2 and "more than twice as long as the longest pause" in text
    assert finding.ONSET == 3 and "three times the mean time between two hits" in text
    assert known.AFTERMATH_NS == 5e9 and "up to 5 s after the end of its cause" in text
    assert finding.MOST_OF_THE_TIME == 0.5 and "more than 50 %" in text

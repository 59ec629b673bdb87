"""Sentences of the diagnosis."""

from __future__ import annotations

import factories_results as factories
import msgspec
import pytest

from rocescope.analyzer.results.diagnosis import Diagnosis, Place, Severity
from rocescope.report.words import diagnosis as words

FOUND = factories.diagnosis()
CLEAN = Diagnosis("", [], [], [])


def test_heading_counts_by_severity() -> None:
    assert words.heading(FOUND) == "1 warning, 1 note"
    assert words.heading(CLEAN) == "no finding"


def test_sentence_ends_with_the_next_step() -> None:
    text = words.sentence(FOUND.findings[0])
    assert text.startswith("spine2 drops 0.9 %")
    assert text.endswith("lost 310 ms; next: check the link leaf2-spine2, or drain spine2")


def test_names_from_files_cannot_steer_the_terminal() -> None:
    hostile = msgspec.structs.replace(FOUND.findings[0], sentence="\x1b[2Jgone", next_step="a\nb")
    assert words.sentence(hostile) == "?[2Jgone; next: a?b"
    assert words.place(Place(device="\x1b[2J")) == "?[2J"
    assert words.healthy(Diagnosis("", [], ["a\x07", "b."], [])) == ["a?", "b"]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Place("leaf1-spine2", "leaf2-spine2", "spine2", "up"), "spine2, up"),
        (Place("leaf1-spine2", "leaf2-spine2"), "leaf1-spine2 > leaf2-spine2"),
        (Place("leaf1-spine2"), "after leaf1-spine2"),
        (Place(to_tap="leaf1-spine2"), "before leaf1-spine2"),
        (Place(host="10.0.0.1", dest_qp=17), "10.0.0.1 QP 0x000011"),
        (Place(capture="a.pcap"), "a.pcap"),
        (Place(direction="before the tap"), "before the tap"),
        (Place(to_tap="leaf1-spine2", direction="before the tap"), "before leaf1-spine2"),
        (Place(), ""),
    ],
)  # fmt: skip
def test_place(where: Place, text: str) -> None:
    assert words.place(where) == text


def test_place_has_short_names_of_taps() -> None:
    assert words.place(Place("a.pcap", "b.pcap"), {"a.pcap": "a", "b.pcap": "b"}) == "a > b"


@pytest.mark.parametrize(
    ("worst", "severity", "reached"),
    [
        ("critical", "critical", True),
        ("warning", "critical", False),
        ("warning", "warning", True),
        ("note", "warning", False),
        ("note", "note", True),
    ],
)
def test_reaches(worst: Severity, severity: Severity, reached: bool) -> None:
    finding = msgspec.structs.replace(FOUND.findings[0], severity=worst)
    assert words.reaches(Diagnosis("", [finding], [], []), severity) == reached
    assert not words.reaches(CLEAN, severity)

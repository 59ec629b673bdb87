"""Sentences of the diagnosis."""

from __future__ import annotations

import factories_results as factories
import msgspec
import pytest

from rocescope.analyzer.results.base import Event
from rocescope.analyzer.results.diagnosis import Diagnosis, Place, Severity
from rocescope.analyzer.track import batch as verdicts
from rocescope.report import notes as words
from rocescope.report.notes import Sight, counted_kind, event_text, psn_note, psn_steps

# Sentences of the diagnosis.

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


# Events in the words of the screens.


def event(kind, text):
    return Event(time_ns=0, kind=kind, flow=0, frame_number=1, tap=None, text=text)


@pytest.mark.parametrize(
    ("kind", "text", "long", "short"),
    [
        (
            "nak",
            "10.0.0.2 > 10.0.0.1 QP 0x00002a: NAK, PSN sequence error, PSN 5842039",
            "10.0.0.2 > 10.0.0.1 QP 0x00002a: PSN sequence error, PSN 5842039",
            "0x00002a: PSN sequence error, PSN 5842039",
        ),
        (
            "rewind",
            "10.0.0.1 > 10.0.0.2 QP 0x00002a: retransmits from PSN 16777215 (nak)",
            "10.0.0.1 > 10.0.0.2 QP 0x00002a: retransmits from PSN 16777215 (nak)",
            "0x00002a: from PSN 16777215 (nak)",
        ),
        (
            "sequence_restart",
            "a > b QP 0x000011: PSN jumps to 17: the queue pair restarted",
            "a > b QP 0x000011: PSN jumps to 17: the queue pair restarted",
            "0x000011: PSN jumps to 17: the queue pair restarted",
        ),
        (
            "plane_down",
            "plane 3 is unreachable",
            "plane 3 is unreachable",
            "plane 3 is unreachable",
        ),
    ],
)
def test_psns_as_the_packets_show_them_and_nothing_twice(kind, text, long, short):
    assert event_text(event(kind, text)) == long
    assert event_text(event(kind, text), short=True) == short


def test_what_differs_is_seen_where_there_is_little_room():
    text = (
        "fd00::1 > fd00::2 QP 0x000100: entropy value 61005/0x41c2 of plane fcbb:bb00:0200 retired"
    )
    one = event("ev_retired", f"{text} (inferred: port down)")
    long = "0x000100: EV 61005/0x41c2 of plane fcbb:bb00:0200 (inferred: port down)"
    assert event_text(one, room=100) == f"fd00::1 > fd00::2 QP {long}"
    assert event_text(one, room=80) == event_text(one, short=True) == long
    shortest = "0x000100: 61005/0x41c2 on …0200 (port down)"
    assert event_text(one, room=44) == event_text(one, short=True, room=44) == shortest
    back = event("ev_returned", "a > b QP 0x000100: entropy value 1/0x2 of plane left used again")
    assert event_text(back, short=True, room=20) == "0x000100: 1/0x2 on left"


def test_counts():
    assert counted_kind(1, "nak") == "1 NAK" and counted_kind(1_234, "nak") == "1,234 NAKs"
    assert counted_kind(2, "rewind") == "2 rewinds" and counted_kind(2, "plane_up") == "2 plane up"


# Notes on single packets.

NOTHING = Sight(-1, -1, -1, -1, -1, -1, -1)


def test_steps_count_over_the_end_of_the_psns():
    assert psn_steps(2, 0xFFFFFE) == 4 and psn_steps(0xFFFFFE, 2) == -4


@pytest.mark.parametrize(
    ("kind", "sight", "note"),
    [
        (verdicts.AHEAD, NOTHING._replace(due=7, gap=0), "gap: 3 missing"),
        (verdicts.AHEAD, NOTHING, "gap"),
        (verdicts.REORDERED, NOTHING._replace(due=12), "late by 2"),
        (
            verdicts.REORDERED,
            NOTHING._replace(due=12, extent=4, late_ns=1500),
            "late by 2, extent 4, 1.50 us",
        ),
        (verdicts.REORDERED, NOTHING, "late"),
        (verdicts.TAP_COPY, NOTHING, "copy at leaf1"),
        (verdicts.IN_ORDER, NOTHING._replace(due=10), ""),
        (verdicts.NOT_SEQUENCED, NOTHING, ""),
    ],
)
def test_notes(kind, sight, note):
    assert psn_note(kind, 10, sight, "leaf1") == note


def test_every_other_verdict_has_a_note():
    usual = (verdicts.IN_ORDER, verdicts.NOT_SEQUENCED)
    for kind in range(len(verdicts.VERDICT_NAMES)):
        assert bool(psn_note(kind, 10, NOTHING, "tap")) == (kind not in usual)

"""Events in the words of the screens."""

from __future__ import annotations

import pytest

from rocescope.analyzer.results.events import Event
from rocescope.report.words.events import counted_kind, event_text


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

"""Lines of a live analysis: what is in which column, and what is said before."""

from __future__ import annotations

import time

import msgspec

from rocescope.analyzer.results.live import LiveInterval
from rocescope.report.terminal.intervals import interval_lines

NOON_NS = int(time.mktime((2026, 3, 1, 12, 0, 5, 0, 0, 0))) * 10**9
INTERVAL = LiveInterval(
    interval=2,
    end_time_ns=NOON_NS,
    duration_ns=500_000_000,
    dropped_frames=0,
    dropped_frames_total=0,
    too_short_frames=0,
    merged_frames=0,
    frames=700,
    packets=600,
    wire_bytes=60_000,
    packets_per_second=1200.4,
    bits_per_second=960_000.0,
    flows=3,
    flows_total=9,
    reordered_packets=11,
    retransmitted_packets=12,
    missing_packets_total=13,
    ecn_marked_packets=14,
    cnps=15,
    naks=16,
    rnr_naks=1,
    interfaces_gone=[],
)


def test_one_line():
    (line,) = interval_lines(INTERVAL)
    assert line == (
        "12:00:05      1,200    960 kb/s      3     11       12       13      14     15     17"
    )


def test_a_heading_from_time_to_time():
    for number, lines in ((1, 2), (2, 1), (20, 1), (21, 2)):
        found = interval_lines(msgspec.structs.replace(INTERVAL, interval=number))
        assert len(found) == lines
    assert found[0] == (
        "    time  packets/s        rate  flows   late  retrans  missing      CE    CNP    NAK"
    )
    assert len(found[0]) == len(found[1])


def test_losses_of_the_capture_come_first():
    lossy = msgspec.structs.replace(
        INTERVAL, dropped_frames=1, dropped_frames_total=1200, interfaces_gone=["eth9"]
    )
    assert interval_lines(lossy)[:2] == [
        "the capture dropped 1 packet (1,200 in total): use a larger --ring",
        "interface eth9 disappeared",
    ]

"""What captures cannot tell."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import capture, case_of, table_of
from conformance_traces import answer, last, write

from rocescope.analyzer.diagnosis.diagnose import limits
from rocescope.analyzer.measures.hops.hops import TapHops
from rocescope.analyzer.measures.hops.state import VISIT
from rocescope.analyzer.results.captures import CaptureGap, Ended, Pause, Sampling

ROWS = [write(0), last(1), answer(1)]


def said(rows=ROWS, **changes):
    return " | ".join(limits(case_of(rows, **changes)))


def with_tap(**changes):
    one = capture(table_of(ROWS))
    tap = msgspec.structs.replace(one.taps[0], **changes)
    return [msgspec.structs.replace(one, taps=[tap])]


def test_one_tap_without_icrc():
    assert "one tap: loss after it" in said()
    assert "ICRCs were not checked (analyze FILE --icrc)" in said()
    live = msgspec.structs.replace(capture(table_of(ROWS)), format="live")
    assert "ICRCs were not checked (analyze FILE --icrc checks those" in said(captures=[live])
    assert "not state dropped frames" not in said()


def test_drops_of_the_capture():
    assert "tap dropped 3 frames itself" in said(captures=with_tap(dropped_frames=3))
    assert "does not state dropped frames" in said(captures=with_tap(dropped_frames=None))


def test_packets_whose_way_is_known_in_part():
    ways = TapHops([], [], np.zeros(0, VISIT), 1, 0, 0, 3, 0, 2, [], {}, ["1 of 2 taps"], 1)
    assert "3 packets still between two taps" in said(tap_hops=ways)
    assert "2 packets tracked for a short time only" in said(tap_hops=ways)
    assert "1 of 2 taps" in said(tap_hops=ways)
    assert "1 lost or retransmitted packet without an exact time" in said(tap_hops=ways)


def test_taps_that_no_packet_passes_one_after_the_other():
    alone = TapHops([], [], np.zeros(0, VISIT), 1, 0, 0, 0, 0, 0, [], {}, (), 0)
    text = "no packet was seen at two of the 2 taps"
    taps = [msgspec.structs.replace(capture(table_of(ROWS)), name=name) for name in ("a", "b")]
    assert text in said(tap_hops=alone, captures=taps)
    assert text not in said(tap_hops=alone)
    assert text not in said(captures=taps)
    flows = case_of(ROWS).flows
    sprayed = [msgspec.structs.replace(flow, taps={"a": 1, "b": 1}) for flow in flows]
    assert text in said(tap_hops=alone, captures=taps, flows=sprayed)
    both = [msgspec.structs.replace(flow, tap_copies=1) for flow in flows]
    assert text not in said(tap_hops=alone, captures=taps, flows=both)


def test_samples():
    sampling = Sampling(one_in=100, estimated_packets=1, estimated_wire_bytes=1, error_percent=1)
    assert "samples only" in said(captures=with_tap(sampling=sampling))


def test_truncated_frames():
    cut = [capture(table_of(ROWS), icrc={"ok": 1, "bad": 0, "truncated": 2})]
    assert "2 frames are truncated" in said(captures=cut)


@pytest.mark.parametrize(
    ("priorities", "option"),
    [({}, " (--dscp-priority)"), ({26: 3}, " (--dscp-priority)"), (None, "")],
)
def test_the_option_for_priorities_is_named_where_the_analysis_has_it(priorities, option):
    paused = with_tap(pauses=[Pause(3, 1, 0, 9, 10.0, 10, 60)])
    told = said(captures=paused, dscp_priority=priorities)
    assert f"the priority of DSCP 0 in the switches is unknown{option}: DSCP / 8 decides" in told


def test_how_it_was_read():
    assert said(complete=False).startswith("incomplete")
    cut = [capture(table_of(ROWS), damaged_places=1)]
    assert "cannot be read in full" in said(captures=cut)
    ring = [capture(table_of(ROWS), damaged_places=1, gaps=[CaptureGap(1, 2, "x is cut short")])]
    assert "cannot be read in full" not in said(captures=ring)  # the gap tells more


def test_a_filter_of_the_analysis():
    case = case_of(ROWS, filtered=True)
    case.measuring.filtered = True
    assert limits(case)[0].startswith("a filter is set")
    case.registry.taps[0].filter = "qp == 0x11"
    assert limits(case)[0].startswith("captured with a filter (qp == 0x11)")
    assert limits(case)[1].startswith("a filter is set")


def test_a_filter_of_the_capture_is_named():
    case = case_of(ROWS, filtered=True)
    case.registry.taps[0].filter = "udp dst port 4791"
    assert not any("filter" in line for line in limits(case))
    case.registry.taps[0].filter = "qp == 0x11"
    assert limits(case)[0] == (
        "captured with a filter (qp == 0x11): packets outside it are not counted, and their "
        "loss is unknown"
    )
    assert not any("a filter is set" in line for line in limits(case))


def test_one_direction():
    assert "1 flow without any packet of the other direction" in said(ROWS[:2])
    assert "other direction" not in said()


def test_names_are_plain():
    assert "\x1b" not in said(captures=with_tap(name="a\x1bb", dropped_frames=1))


def test_nothing_to_limit():
    assert limits(case_of([])) == []


def test_what_is_unknown_of_flows_that_left():
    case = case_of(ROWS)
    case.measuring.ended = Ended(
        flows=9, partial_flows=1, untapped_flows=2, unknown_between_taps=465, missed_by_captures=3
    )
    found = " | ".join(limits(case))
    assert "1 flow seen only in part" in found
    assert "2 flows on paths without a tap" in found
    assert "465 packets of flows that were removed from memory, which the next tap did not" in found
    assert "3 packets of flows that were removed from memory are missing in the capture" in found

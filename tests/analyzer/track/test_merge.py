"""Windows of two trackers become one."""

from __future__ import annotations

import numpy as np
from traffic import WRITE_ONLY, packets, track

from rocescope.analyzer.track.batch import RECOVERED, REORDERED
from rocescope.analyzer.track.merge import merge_trackers
from rocescope.analyzer.track.state import REQUESTS
from rocescope.analyzer.track.tracker import FlowTracker

HOSTS, TAPS = np.arange(2, dtype=np.uint32), np.arange(1, dtype=np.uint16)
QPS = (17, 18)


def writes(psns, **more):
    rows = [{"psn": n, "opcode": WRITE_ONLY, "dest_qp": qp, **more} for n in psns for qp in QPS]
    return packets(rows)


def missing(tracker):
    return [tracker.missing(flow, REQUESTS)[0] for flow in range(len(QPS))]


def test_windows_of_any_size_are_merged():
    """A gap of 389 PSNs needs 512 slots; of two flows, so that their windows may not overlap."""
    one, two = FlowTracker(), FlowTracker()
    track(one, writes(range(10)))
    track(two, writes([10, 400]))
    merge_trackers(one, two, HOSTS, TAPS)
    assert missing(one) == [389, 389]
    verdicts = track(one, writes(range(11, 400)))
    assert np.isin(verdicts, (RECOVERED, REORDERED)).all()
    assert missing(one) == [0, 0]
    assert not one.state.streams["missing_evicted"].any()


def test_packets_before_the_first_of_a_merged_part_may_be_late():
    """Between the parts PSNs 3 to 39 are open; 8 and 39 are the last and the first of those that
    the second part recognises by itself."""
    whole, one, two = FlowTracker(), FlowTracker(), FlowTracker()
    early, later, late = writes([0, 1, 2]), writes([40, 41]), writes([39, 8], ip_id=5)
    track(two, later)
    track(two, late.slice(0, 2))  # one of them has a slot already
    track(one, early)
    merge_trackers(one, two, HOSTS, TAPS)
    for table in (early, later, late.slice(0, 2)):
        track(whole, table)
    rest = late.slice(2, 4)
    assert np.array_equal(track(one, rest), track(whole, rest))

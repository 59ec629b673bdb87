"""Parts of a capture measured apart, and mirror sessions that show only while reading."""

from __future__ import annotations

import numpy as np
import pytest
from captures import DATA
from conformance_traces import NAK, answer, write
from traffic import packets

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.measures.conformance.taps import Conformance
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.summary.conformance import conformance
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry

WINDOW_NS = 100_000_000
FILES = [DATA / f"i01_write_loss0.5_AtoB.at{host}.pcap.gz" for host in "AB"]


def measured(paths, many_taps):
    """(Measuring, its registry) of captures read one after the other."""
    registry = Registry()
    measuring = Measuring(WINDOW_NS, many_taps, ConformanceOptions())
    for path in paths:
        capture = open_capture(str(path), registry.taps)
        decoder = Decoder(registry)
        for frames in capture.batches():
            measuring.update(decoder.decode(frames), decoder.take_cm_messages())
    return measuring, registry


def summed(measuring, registry):
    """What every rule counted, and the CE marks per tap."""
    found = conformance(measuring.conformance, measuring.tracker, registry)
    rules = [(rule.id, rule.judged, rule.undecided, rule.reasons) for rule in found.rules]
    return rules, found.latency, [cnp.scopes for cnp in found.cnp]


def test_parts_of_one_tap_add_up() -> None:
    parts = [FILES[1], DATA / "i13_write_ecn_ce2_AtoB.atB.pcap.gz"]
    alone = [summed(*measured([path], False)) for path in parts]
    ours, theirs = (measured([path], False) for path in parts)
    maps = ours[1].joined(theirs[1])._replace(taps=np.zeros(1, np.uint16))
    ours[0].merge(theirs[0], maps)
    rules, latency, scopes = summed(*ours)
    for together, one, other in zip(rules, alone[0][0], alone[1][0], strict=True):
        assert together[1:3] == (one[1] + other[1], one[2] + other[2])
    assert latency == alone[0][1]  # the other capture lost nothing
    assert scopes == alone[1][2]  # and the first has no marks


@pytest.mark.thorough
def test_taps_of_parts_stay_apart() -> None:
    whole = summed(*measured(FILES, True))
    ours, theirs = (measured([path], True) for path in FILES)
    ours[0].merge(theirs[0], ours[1].joined(theirs[1]))
    assert summed(*ours) == whole


def test_a_mirror_session_is_judged_by_itself() -> None:
    rows = [write(1), write(3), answer(2, NAK), answer(2, NAK)]
    first, second = packets(rows[:1]), packets([{**row, "tap": 1} for row in rows])
    measuring = Measuring(WINDOW_NS, False, ConformanceOptions())
    measuring.update(first)
    measuring.update(second)
    one, other = (measuring.conformance.taps[tap].keeper.book for tap in (0, 1))
    assert one.states["requests"].sum() == 1
    assert other.states["requests"].sum() == 2


@pytest.mark.thorough
def test_hundreds_of_interfaces_with_a_flow_each_take_little_memory() -> None:
    """A hostile pcapng has thousands of interfaces: a book begins with room for few flows."""
    taps = 600
    rows = [write(psn) | {"tap": tap} for psn in range(2) for tap in range(taps)]
    measured = Conformance(ConformanceOptions(), many_taps=True)
    tracker = FlowTracker(taps)
    measured.update(tracker.update(packets(rows)), tracker.flows)
    assert len(measured.taps) == taps
    books = [one.keeper.book for one in measured.taps.values()]
    assert all(len(book.states) == 8 for book in books)
    allocated = sum(array.nbytes for book in books for array in book[:-1])
    assert allocated < 300 << 20

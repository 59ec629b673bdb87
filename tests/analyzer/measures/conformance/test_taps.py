"""Parts of a capture measured apart, and mirror sessions that show only while reading."""

from __future__ import annotations

import pytest
from captures import DATA
from conformance_traces import NAK, answer, write
from traffic import packets

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.measures.conformance.taps import Conformance
from rocescope.analyzer.measures.measuring import Measuring
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

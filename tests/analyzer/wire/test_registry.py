"""Numbers of a part of an analysis in those of the whole."""

from __future__ import annotations

from rocescope.analyzer.wire.frames import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import SampledFrames, Tap

CARRIER = 0xFCBB_BB00_0101_0201 << 64


def test_parts_join_by_what_their_numbers_stand_for() -> None:
    ours, theirs = Registry(), Registry()
    for text in ("10.0.0.1", "10.0.0.2"):
        ours.endpoints.add(text)
    for text in ("10.0.0.3", "10.0.0.2"):
        theirs.endpoints.add(text)
    ours.taps.add(Tap("a", LINKTYPE_ETHERNET, frames=3, dropped=1))
    theirs.taps.add(Tap("b", LINKTYPE_ETHERNET))
    theirs.taps.add(Tap("session", LINKTYPE_ETHERNET, carrier=0))
    theirs.taps.add(
        Tap("a", LINKTYPE_ETHERNET, frames=4, dropped=2, sampled=SampledFrames(1, 10, 640))
    )
    ours.segments.add((CARRIER,))
    theirs.segments.add((CARRIER + 1,))
    theirs.segments.add((CARRIER,))
    maps = ours.joined(theirs)
    assert maps.endpoints.tolist() == [2, 1]
    assert maps.taps.tolist() == [1, 2, 0]
    assert maps.segments.tolist() == [0, 2, 1]
    assert ours.endpoints.texts() == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert ours.tap_names == ["a", "b", "session"]
    assert ours.taps[2].carrier == 1
    a = ours.taps[0]
    assert (a.frames, a.dropped, a.sampled) == (7, 3, SampledFrames(1, 10, 640))
    assert theirs.tap_names == ["b", "session", "a"]

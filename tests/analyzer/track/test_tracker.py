"""Room that is made ahead changes nothing but what growing costs."""

from __future__ import annotations

from captures import data

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Taps


def test_expected_flows_are_tracked_as_others_and_nothing_grows_for_them():
    taps, plain, expecting = Taps(), FlowTracker(), FlowTracker()
    expecting.expect(1_000)
    room = expecting.state
    verdicts = []
    with open_capture(str(data("i01_write_loss0.5_AtoB.atB")), taps) as capture:
        decoder = Decoder(Registry(taps=taps))
        for frames in capture.batches():
            table = decoder.decode(frames)
            verdicts.append((plain.update(table).verdict, expecting.update(table).verdict))
    assert verdicts and all((a == b).all() for a, b in verdicts)
    assert (plain.flows == expecting.flows).all() and len(plain) == len(expecting) > 0
    for name in ("flows", "streams", "slots", "recents"):
        assert getattr(expecting.state, name) is getattr(room, name)
    expecting.expect(10)
    assert len(expecting.state.flows) == 1_000

"""Which taps are planes: the ports of one sender, not the links of different senders."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.measures.mrc import EV, LANES
from rocescope.analyzer.summary.mrc import Planes
from rocescope.analyzer.summary.names import Names, PlaneBy
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry


@pytest.mark.parametrize(
    ("seen", "by"),
    [
        ([(0, 0), (0, 1), (1, 0), (1, 1)], "tap"),
        ([(0, 0), (0, 0), (1, 1), (1, 1)], ""),
        ([(0, 3), (1, 3)], ""),
    ],
    ids=["ports of each sender", "a link of each sender", "one tap"],
)
def test_taps_are_planes_if_a_sender_has_several(seen, by):
    sent = np.zeros(len(seen), EV)
    sent["lane"] = [LANES * flow for flow, _ in seen]
    sent["tap"] = [tap for _, tap in seen]
    assert Planes(sent, Names(FlowTracker(), Registry()), PlaneBy()).by == by

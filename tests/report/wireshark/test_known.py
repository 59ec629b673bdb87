"""What a reading to the end tells."""

from __future__ import annotations

import numpy as np
from tracked_batches import tracked

from rocescope.analyzer.track.batch import AHEAD, OVERTAKEN, REORDERED
from rocescope.analyzer.track.references import REFERENCE
from rocescope.report.wireshark.known import Known, LateOfGaps


def test_late_packets_are_counted_by_gap():
    late = LateOfGaps()
    batch = tracked([{"verdict": v} for v in (AHEAD, REORDERED, REORDERED, OVERTAKEN)])
    sights = np.full(4, -1, REFERENCE)
    sights["gap"] = 200_000, 200_000, 3, 200_000
    late.add(200_001, sights, batch)
    late.add(500_000, sights[:0], tracked([]))
    assert [late.get(gap) for gap in (0, 3, 200_000)] == [0, 1, 2]
    assert Known(late).late_of_gap(200_000) == 2
    assert Known(late).late_of_gap(10**9) is None and Known().late_of_gap(0) is None

"""Flows of many sizes, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from pattern_settings import made

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.patterns.trace_like import trace_like


def test_trace_like_flows_offer_the_load_and_have_a_heavy_tail():
    demand = made(trace_like, flows=50_000)
    gaps = np.diff(demand.start_ns, prepend=0)
    offered = 8 * float((demand.message_bytes * demand.messages).sum()) * 1e9 / demand.start_ns[-1]
    assert offered == pytest.approx(0.5 * 16 * 10**11, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # exponential
    assert np.median(demand.message_bytes) == pytest.approx(1 << 20, rel=0.03)
    largest = np.sort(demand.message_bytes)[-5000:].sum() / demand.message_bytes.sum()
    assert 0.5 < largest < 0.65
    for load in (0, 1.5):
        with pytest.raises(UsageError, match="--load must be above 0"):
            made(trace_like, load=load)

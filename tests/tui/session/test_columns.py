"""Rates: steady where packets came steadily, however they are read, and none of the past."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.tui.session.columns import RateMeter
from rocescope.tui.session.snapshot import SourceState

EVERY_NS = 1_000_000
"""A thousand packets a second, of 100 bytes, of which one flow has every fourth."""
BEGIN_NS = 1_700_000_000 * 10**9


def read(meter, packets, now, **state):
    """The rates when so many packets of the stream were read."""
    source = SourceState("veth0", "live", packets=packets, **state)
    wire_bytes = np.array([75, 25]) * packets
    span = (BEGIN_NS, BEGIN_NS + max(0, packets - 1) * EVERY_NS) if packets else (0, 0)
    return meter.of(source, wire_bytes if packets else np.zeros(0, np.int64), span, now)


def test_packets_that_are_read_in_steps_have_a_steady_rate():
    meter = RateMeter()
    assert read(meter, 0, 0.0).packets_per_second is None
    read(meter, 300, 0.3)
    seen = 300
    for step in range(60):
        now = 0.55 + 0.25 * step
        if step % 5 in (0, 3, 4):  # a reader looks at the file now and then
            seen = int(now * 1000) - (step % 3) * 90
        rates = read(meter, seen, now)
        if now > 1.6:
            assert rates.packets_per_second == pytest.approx(1000, rel=0.002)
            assert rates.bits_per_second == pytest.approx(800_000, rel=0.002)
            assert rates.by_flow == pytest.approx([600_000, 200_000], rel=0.002)


def test_many_packets_at_once_were_not_sent_at_once():
    """Kernels were compiled for half a minute; the file was filled meanwhile."""
    meter = RateMeter()
    for packets, now in ((0, 0.0), (16_000, 30.0), (30_250, 30.25), (30_500, 30.5)):
        rates = read(meter, packets, now)
    assert rates.packets_per_second == pytest.approx(1000, rel=0.001)


def test_a_burst_counts_for_a_second_and_silence_is_0():
    meter = RateMeter()
    read(meter, 0, 0.0)
    assert read(meter, 50, 0.1).packets_per_second == 50
    assert read(meter, 50, 0.9).packets_per_second == 50
    assert read(meter, 50, 1.3).packets_per_second == 0
    for now in range(2, 61):
        assert read(meter, 50, float(now)).packets_per_second == 0
    late = SourceState("veth0", "live", packets=150)
    span = (BEGIN_NS, BEGIN_NS + 60 * 10**9)
    again = meter.of(late, np.array([7500, 2500]), span, 60.1)
    assert 45 < again.packets_per_second < 101


def test_what_is_stopped_or_read_again_has_the_mean_of_its_own_time():
    for state in ({"running": False}, {"bytes_total": 9, "bytes_done": 3}):
        meter = RateMeter()
        read(meter, 16_000, 0.1)
        rates = read(meter, 4_001, 0.2, **state)
        assert rates.packets_per_second == pytest.approx(1000, rel=0.001)
        assert rates.bits_per_second == pytest.approx(800_000, rel=0.001)
        assert rates.by_flow is None  # each flow has that over its own life

"""DCQCN against the formulas, by hand (SIGCOMM 2015)."""

import numpy as np
import pytest

from rocescope.replay.packets.hosts.congestion import dcqcn
from rocescope.replay.packets.hosts.congestion.algorithm import Line, congestion
from rocescope.replay.packets.hosts.congestion.dcqcn import DCQCN, RATE_PS
from rocescope.replay.packets.model.round_trip import RoundTrips

MSS, RTT, RATE = 4160, 8_000_000, 400_000_000_000
TRIPS = RoundTrips(np.array([RTT]), np.array([RATE]), np.array([4]))


def test_dcqcn_halves_once_per_interval_and_recovers() -> None:
    control = congestion(DCQCN, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    line = rows[0, RATE_PS]
    dcqcn.on_ack(rows, params, 0, MSS, RTT, True, 0)
    assert rows[0, RATE_PS] == pytest.approx(2 * line)  # alpha starts at 1
    dcqcn.on_ack(rows, params, 0, MSS, RTT, True, 10_000_000)
    assert rows[0, RATE_PS] == pytest.approx(2 * line)  # within 50 us
    rates = []
    for i in range(1, 6):
        dcqcn.on_ack(rows, params, 0, MSS, RTT, False, 60_000_000 * i)
        rates.append(line / rows[0, RATE_PS])
    assert np.all(np.diff(rates) > 0) and rates[0] == pytest.approx(0.75)  # fast recovery


def test_dcqcn_raises_by_time_alone_and_keeps_a_least_rate() -> None:
    control = congestion(DCQCN, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    line = rows[0, RATE_PS]
    dcqcn.on_ack(rows, params, 0, MSS, RTT, True, 0)
    # Without an ACK since: halfway to the target after each of the five periods of fast recovery.
    assert dcqcn.on_send(rows, params, 0, 1_000, 54_999_999) == round(2_000 * line)
    for period in range(1, 6):
        share = 1 - 0.5 ** (period + 1)
        pace = dcqcn.on_send(rows, params, 0, 1_000, 55_000_000 * period)
        assert pace == pytest.approx(1_000 * line / share, rel=1e-3)
    for i in range(400):
        dcqcn.on_ack(rows, params, 0, MSS, RTT, True, 10**9 + 50_000_000 * i)
    assert (
        dcqcn.on_send(rows, params, 0, 1_000, 10**9 + 50_000_000 * 399) == 80_000 * 1_000
    )  # 100 Mb/s

"""NSCC against the formulas, by hand (uet-htsim)."""

import numpy as np
import pytest

from rocescope.kernels.kernel import Floats
from rocescope.replay.packets.hosts.congestion import nscc
from rocescope.replay.packets.hosts.congestion.algorithm import WINDOW, Heard, Line, congestion
from rocescope.replay.packets.hosts.congestion.nscc import ETA, MOST, NSCC, TARGET
from rocescope.replay.packets.model.round_trip import RoundTrips

MSS, RTT, RATE = 4160, 8_000_000, 400_000_000_000
TRIPS = RoundTrips(np.array([RTT]), np.array([RATE]), np.array([4]))
BDP = RATE / 8e12 * RTT


def heard(rows: Floats, params: Floats, rtt_ps: int, marked: bool, now_ps: int) -> None:
    nscc.on_ack(rows, params, Heard(0, MSS, rtt_ps, int(marked), 4, now_ps))


def test_nscc_starts_at_one_and_a_half_bdp_and_cuts_by_delay() -> None:
    control = congestion(NSCC, 1, Line(MSS, TRIPS, True))
    rows, params = control.rows, control.params
    assert rows[0, WINDOW] == rows[0, MOST] == pytest.approx(1.5 * BDP)
    assert params[TARGET] == 0.75 * RTT
    mean, now = 0.0, 10 * RTT
    delay = 3 * RTT
    for _ in range(400):
        now += 100_000
        before = rows[0, WINDOW]
        heard(rows, params, RTT + delay, True, now)
        mean += 0.0125 * (delay - mean)
        if rows[0, WINDOW] < before:
            cut = max(1 - 0.8 * (mean - params[TARGET]) / mean, 0.5)
            assert rows[0, WINDOW] == pytest.approx(max(MSS, before * cut), rel=0.02)
    assert rows[0, WINDOW] < BDP


def test_nscc_ignores_marks_without_delay_and_grows_without_marks() -> None:
    control = congestion(NSCC, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    rows[0, WINDOW] = BDP / 2
    for i in range(20):
        heard(rows, params, RTT, True, 1_000 * i)
    assert rows[0, WINDOW] <= BDP / 2 + params[ETA]  # eta once per period at most
    before = rows[0, WINDOW]
    for i in range(100):
        heard(rows, params, RTT, False, 100_000 + 1_000 * i)
    assert before < rows[0, WINDOW] <= rows[0, MOST]


def test_nscc_gives_back_what_was_trimmed() -> None:
    control = congestion(NSCC, 1, Line(MSS, TRIPS, True))
    before = control.rows[0, WINDOW]
    nscc.on_loss(control.rows, control.params, 0, MSS, True, 1_000)
    assert control.rows[0, WINDOW] == before - MSS


def test_trims_adapt_quickly_losses_do_not() -> None:
    """A period of 1.75 round trips in which 3 packets came through: after a trim that is the
    window, and marks do not count until a window's worth is acknowledged."""
    control = congestion(NSCC, 1, Line(MSS, TRIPS, True))
    rows, params = control.rows, control.params
    whole, now = rows[0, WINDOW], 2 * RTT

    def acks(count: int, marked: bool, delay: int = 0) -> None:
        for _ in range(count):
            heard(rows, params, RTT + delay, marked, now)

    acks(1, False)  # the first period begins
    acks(3, False)
    now += 2 * RTT
    nscc.on_loss(rows, params, 0, MSS, False, now)
    assert rows[0, WINDOW] == whole - MSS
    nscc.on_loss(rows, params, 0, MSS, True, now)
    assert rows[0, WINDOW] == 3 * MSS
    now += RTT
    before = rows[0, WINDOW]
    acks(5, True, 3 * RTT)
    assert rows[0, WINDOW] == before
    acks(20, False)
    assert rows[0, WINDOW] > before


def test_every_flow_has_its_own_round_trip_and_the_network_the_longest() -> None:
    near_and_far = RoundTrips(np.array([RTT // 4, RTT]), np.array([RATE, RATE]), np.array([2, 4]))
    control = congestion(NSCC, 2, Line(MSS, near_and_far, False))
    assert control.rows[:, WINDOW] == pytest.approx([1.5 * BDP / 4, 1.5 * BDP])
    assert control.params[TARGET] == RTT

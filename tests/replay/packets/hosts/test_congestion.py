"""Congestion control against the formulas, by hand (uet-htsim; DCQCN, SIGCOMM 2015)."""

import numpy as np
import pytest

from rocescope.replay.packets.hosts.congestion import (
    DCQCN,
    MOST,
    NSCC,
    RATE_PS,
    TARGET,
    WINDOW,
    congestion,
    on_ack,
    on_loss,
    pace_ps,
)

MSS, RTT, RATE = 4160, 8_000_000, 400_000_000_000
BDP = RATE / 8e12 * RTT


def test_nscc_starts_at_one_and_a_half_bdp_and_cuts_by_delay() -> None:
    control = congestion(NSCC, 1, MSS, RTT, RATE, trimming=True)
    rows, params = control.rows, control.params
    assert rows[0, WINDOW] == params[MOST] == pytest.approx(1.5 * BDP)
    assert params[TARGET] == 0.75 * RTT
    mean, now = 0.0, 10 * RTT
    delay = 3 * RTT
    for _ in range(400):
        now += 100_000
        before = rows[0, WINDOW]
        on_ack(NSCC, rows, params, 0, MSS, RTT + delay, True, now)
        mean += 0.0125 * (delay - mean)
        if rows[0, WINDOW] < before:
            cut = max(1 - 0.8 * (mean - params[TARGET]) / mean, 0.5)
            assert rows[0, WINDOW] == pytest.approx(max(MSS, before * cut), rel=0.02)
    assert rows[0, WINDOW] < BDP


def test_nscc_ignores_marks_without_delay_and_grows_without_marks() -> None:
    control = congestion(NSCC, 1, MSS, RTT, RATE, trimming=False)
    rows, params = control.rows, control.params
    rows[0, WINDOW] = BDP / 2
    for i in range(20):
        on_ack(NSCC, rows, params, 0, MSS, RTT, True, 1_000 * i)
    assert rows[0, WINDOW] <= BDP / 2 + params[6]  # eta once per period at most
    before = rows[0, WINDOW]
    for i in range(100):
        on_ack(NSCC, rows, params, 0, MSS, RTT, False, 100_000 + 1_000 * i)
    assert before < rows[0, WINDOW] <= params[MOST]


def test_nscc_gives_back_what_was_trimmed() -> None:
    control = congestion(NSCC, 1, MSS, RTT, RATE, trimming=True)
    before = control.rows[0, WINDOW]
    on_loss(NSCC, control.rows, control.params, 0, MSS, True, 1_000)
    assert control.rows[0, WINDOW] == before - MSS


def test_trims_adapt_quickly_losses_do_not() -> None:
    """A period of 1.75 round trips in which 3 packets came through: after a trim that is the
    window, and marks do not count until a window's worth is acknowledged."""
    control = congestion(NSCC, 1, MSS, RTT, RATE, trimming=True)
    rows, params = control.rows, control.params
    whole, now = rows[0, WINDOW], 2 * RTT

    def acks(count: int, marked: bool, delay: int = 0) -> None:
        for _ in range(count):
            on_ack(NSCC, rows, params, 0, MSS, RTT + delay, marked, now)

    acks(1, False)  # the first period begins
    acks(3, False)
    now += 2 * RTT
    on_loss(NSCC, rows, params, 0, MSS, False, now)
    assert rows[0, WINDOW] == whole - MSS
    on_loss(NSCC, rows, params, 0, MSS, True, now)
    assert rows[0, WINDOW] == 3 * MSS
    now += RTT
    before = rows[0, WINDOW]
    acks(5, True, 3 * RTT)
    assert rows[0, WINDOW] == before
    acks(20, False)
    assert rows[0, WINDOW] > before


def test_dcqcn_halves_once_per_interval_and_recovers() -> None:
    control = congestion(DCQCN, 1, MSS, RTT, RATE, trimming=False)
    rows, params = control.rows, control.params
    line = rows[0, RATE_PS]
    on_ack(DCQCN, rows, params, 0, MSS, RTT, True, 0)
    assert rows[0, RATE_PS] == pytest.approx(2 * line)  # alpha starts at 1
    on_ack(DCQCN, rows, params, 0, MSS, RTT, True, 10_000_000)
    assert rows[0, RATE_PS] == pytest.approx(2 * line)  # within 50 us
    rates = []
    for i in range(1, 6):
        on_ack(DCQCN, rows, params, 0, MSS, RTT, False, 60_000_000 * i)
        rates.append(line / rows[0, RATE_PS])
    assert np.all(np.diff(rates) > 0) and rates[0] == pytest.approx(0.75)  # fast recovery


def test_dcqcn_raises_by_time_alone_and_keeps_a_least_rate() -> None:
    control = congestion(DCQCN, 1, MSS, RTT, RATE, trimming=False)
    rows, params = control.rows, control.params
    line = rows[0, RATE_PS]
    on_ack(DCQCN, rows, params, 0, MSS, RTT, True, 0)
    # Without an ACK since: halfway to the target after each of the five periods of fast recovery.
    assert pace_ps(rows, params, 0, 1_000, 54_999_999) == round(2_000 * line)
    for period in range(1, 6):
        share = 1 - 0.5 ** (period + 1)
        pace = pace_ps(rows, params, 0, 1_000, 55_000_000 * period)
        assert pace == pytest.approx(1_000 * line / share, rel=1e-3)
    for i in range(400):
        on_ack(DCQCN, rows, params, 0, MSS, RTT, True, 10**9 + 50_000_000 * i)
    assert pace_ps(rows, params, 0, 1_000, 10**9 + 50_000_000 * 399) == 80_000 * 1_000  # 100 Mb/s

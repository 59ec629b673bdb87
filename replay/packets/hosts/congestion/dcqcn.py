"""DCQCN (Zhu et al., SIGCOMM 2015), simplified.

It controls a rate by marks alone; here acknowledgements carry the marks, and at most one mark per
interval counts as a CNP. Timers are evaluated when a packet is sent or an acknowledgement arrives,
the only times that need them. Not implemented: byte counter and hyper increase.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .....kernels.kernel import Floats, Int, subkernel
from .algorithm import OWN_COLUMNS, Algorithm, Line

RATE_PS, ALPHA, TARGET_PS, LAST_CNP, LAST_RAISE, STAGE = range(OWN_COLUMNS, OWN_COLUMNS + 6)
"""Rate (ps per byte), share of marks, target (ps per byte), times, raises since the last cut."""
LINE_PS = OWN_COLUMNS + 6
"""The line's ps per byte."""

CNP_PS: Final = 50_000_000
"""At most one cut per 50 us (paper: N = 50 us)."""
RAISE_PS: Final = 55_000_000
"""One raise per 55 us (paper: T = 55 us)."""
DCQCN_G: Final = 1.0 / 256.0
FAST_STAGES: Final = 5
RAISE_BITS_PER_SECOND: Final = 40e6
"""R_AI = 40 Mb/s (paper)."""
LEAST_BITS_PER_SECOND: Final = 100e6
"""Minimum rate: 100 Mb/s (assumed)."""


def _start(rows: Floats, params: Floats, line: Line) -> None:
    rows[:, LINE_PS] = 8e12 / line.trips.bits_per_second
    rows[:, RATE_PS] = rows[:, TARGET_PS] = rows[:, LINE_PS]
    rows[:, ALPHA], rows[:, LAST_CNP] = 1.0, -1e18


@subkernel
def on_ack(
    rows: Floats, params: Floats, flow: Int, acked: Int, rtt_ps: Int, marked: Int, now_ps: Int
) -> Int:
    row = rows[flow]
    now = np.float64(now_ps)
    _timers(rows, params, flow, now_ps)
    if marked and now - row[LAST_CNP] >= CNP_PS:
        row[TARGET_PS] = row[RATE_PS]
        slowest = max(row[LINE_PS], 8e12 / LEAST_BITS_PER_SECOND)
        row[RATE_PS] = min(slowest, row[RATE_PS] / (1.0 - row[ALPHA] / 2.0))
        row[ALPHA] = (1.0 - DCQCN_G) * row[ALPHA] + DCQCN_G
        row[LAST_CNP] = now
        row[LAST_RAISE] = now
        row[STAGE] = 0.0
    return np.int64(0)


@subkernel
def on_send(rows: Floats, params: Floats, flow: Int, size: Int, now_ps: Int) -> Int:
    _timers(rows, params, flow, now_ps)
    return np.int64(np.float64(size) * rows[flow, RATE_PS])


@subkernel
def _timers(rows: Floats, params: Floats, flow: Int, now_ps: Int) -> None:
    """Apply all increases of the rate, and decreases of alpha, that are due."""
    row = rows[flow]
    now, line = np.float64(now_ps), row[LINE_PS]
    while row[LAST_RAISE] + RAISE_PS <= now:
        row[LAST_RAISE] += RAISE_PS
        if row[RATE_PS] <= line:  # at line rate; alpha matters only after a cut
            row[LAST_RAISE] = now
            return
        row[ALPHA] *= 1.0 - DCQCN_G
        row[STAGE] += 1.0
        target = 8e12 / row[TARGET_PS]
        if row[STAGE] > FAST_STAGES:
            target += RAISE_BITS_PER_SECOND
        target = min(target, 8e12 / line)
        rate = (target + 8e12 / row[RATE_PS]) / 2.0
        row[TARGET_PS] = 8e12 / target
        row[RATE_PS] = max(line, 8e12 / rate)


DCQCN = Algorithm(_start, on_ack, on_send=on_send)

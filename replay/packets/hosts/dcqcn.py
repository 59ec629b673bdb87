"""DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015).

The receiver (notification point, section 3.1) sends a CNP for a marked packet, at most one per flow
and 50 us. At every CNP the sender (reaction point) cuts its rate by half of alpha (equation 1).
Alpha estimates the share of time with congestion and decays while no CNP arrives (equation 2).
A timer and a byte counter count stages since the last cut; at the end of each stage the rate rises
(algorithm 1): halfway to the rate before the cut (fast recovery) while neither has passed F stages,
faster with every stage when both have (hyper increase), else by R_AI (additive increase).
By equation (1) every CNP also makes the current rate the target of recovery: `dcqcn-clamp`. Then
flows that start together at line rate, and receive CNPs until the queue is empty, need
milliseconds to recover. By default a CNP lowers the target only if the rate has risen since the
previous CNP, as in adapters (clamp_tgt_rate off, clamp_tgt_rate_after_time_inc on).
Timers are evaluated when a packet is sent or a CNP arrives, the only times that need them.

| parameter | value | source |
|---|---|---|
| CNP interval N | 50 us | paper, section 3.1 |
| g, alpha timer K | 1/256, 55 us | paper, section 5.2 |
| timer T, byte counter B, F | 55 us, 10 MB, 5 | paper, section 5.2 |
| R_AI | 1/1000 of the line: 40 Mb/s at the paper's 40 Gb/s | paper; that it scales: assumed |
| R_HAI | 10 R_AI, times the stages beyond F | IEEE 802.1Qau (5 and 50 Mb/s), which it follows |
| least rate | 1/400 of the line: 100 Mb/s at 40 Gb/s | ns-3's RDMA model; that it scales: assumed |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Floats, Int, inlined, subkernel
from .congestion import OWN_COLUMNS, OWN_PARAMETERS, Algorithm, Line

RATE, TARGET, LINE, DCQCN_ALPHA, ALPHA_SINCE, TIMER_SINCE, TIMER_STAGES, BYTES, BYTE_STAGES = range(
    OWN_COLUMNS, OWN_COLUMNS + 9
)
"""Current rate R_C, target rate R_T and line rate in bytes per ps; alpha; start of the
current intervals of the alpha timer and of the rate timer (ps), completed stages of the rate timer;
bytes since the last stage of the byte counter, its completed stages."""
CLAMP = OWN_PARAMETERS
"""1: every CNP lowers the target."""

CNP_PS: Final = 50_000_000
ALPHA_PS: Final = 55_000_000
TIMER_PS: Final = 55_000_000
COUNTER_BYTES: Final = 10_000_000.0
DCQCN_G: Final = 1.0 / 256.0
FAST_STAGES: Final = 5.0
ADDITIVE: Final = 1.0 / 1000.0
HYPER: Final = 10.0 / 1000.0
LEAST: Final = 1.0 / 400.0
"""R_AI, R_HAI and the least rate, as shares of line rate."""


def _start(rows: Floats, params: Floats, line: Line) -> None:
    """Flows begin at line rate, with alpha 1."""
    rows[:, LINE] = rows[:, RATE] = rows[:, TARGET] = line.trips.bits_per_second / 8e12
    rows[:, DCQCN_ALPHA] = 1.0


def _start_clamped(rows: Floats, params: Floats, line: Line) -> None:
    _start(rows, params, line)
    params[CLAMP] = 1.0


@subkernel
def on_cnp(rows: Floats, params: Floats, flow: Int, now_ps: Int) -> Int:
    """Apply equation (1); restart timers and counter."""
    _timers(rows, flow, now_ps)
    row, now = rows[flow], np.float64(now_ps)
    if params[CLAMP] or row[TIMER_STAGES] > 0.0 or row[BYTE_STAGES] > 0.0:
        row[TARGET] = row[RATE]
    row[RATE] = max(LEAST * row[LINE], row[RATE] * (1.0 - row[DCQCN_ALPHA] / 2.0))
    row[DCQCN_ALPHA] = (1.0 - DCQCN_G) * row[DCQCN_ALPHA] + DCQCN_G
    row[ALPHA_SINCE] = row[TIMER_SINCE] = now
    row[TIMER_STAGES] = row[BYTE_STAGES] = row[BYTES] = 0.0
    return np.int64(0)


@subkernel
def on_send(rows: Floats, params: Floats, flow: Int, size: Int, now_ps: Int) -> Int:
    _timers(rows, flow, now_ps)
    row = rows[flow]
    row[BYTES] += size
    while row[BYTES] >= COUNTER_BYTES:
        row[BYTES] -= COUNTER_BYTES
        row[BYTE_STAGES] += 1.0
        _raise(rows, flow)
    return np.int64(np.float64(size) / row[RATE])


@subkernel
def _timers(rows: Floats, flow: Int, now_ps: Int) -> None:
    """Apply all decreases of alpha, equation (2), and increases of the rate that are due."""
    row, now = rows[flow], np.float64(now_ps)
    passed = np.floor((now - row[ALPHA_SINCE]) / ALPHA_PS)
    if passed > 0.0:
        row[ALPHA_SINCE] += passed * ALPHA_PS
        row[DCQCN_ALPHA] *= (1.0 - DCQCN_G) ** passed
    while row[TIMER_SINCE] + TIMER_PS <= now:
        if row[RATE] >= row[LINE]:  # nothing is limited: stages do not matter before the next cut
            row[TIMER_SINCE] = now
            return
        row[TIMER_SINCE] += TIMER_PS
        row[TIMER_STAGES] += 1.0
        _raise(rows, flow)


@inlined
def _raise(rows: Floats, flow: Int) -> None:
    """Algorithm 1 at the end of a stage."""
    row = rows[flow]
    if max(row[TIMER_STAGES], row[BYTE_STAGES]) > FAST_STAGES:
        beyond = min(row[TIMER_STAGES], row[BYTE_STAGES]) - FAST_STAGES
        step = HYPER * beyond if beyond > 0.0 else ADDITIVE
        row[TARGET] = min(row[LINE], row[TARGET] + step * row[LINE])
    row[RATE] = min(row[LINE], (row[RATE] + row[TARGET]) / 2.0)


DCQCN = Algorithm(_start, on_send=on_send, on_cnp=on_cnp, cnp_ps=CNP_PS)
DCQCN_CLAMP = DCQCN._replace(start=_start_clamped)

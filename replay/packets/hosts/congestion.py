"""Congestion control of hosts: none (line rate), NSCC with the parameters of UET, DCQCN-like.

NSCC (Ultra Ethernet 1.0 as its public reference simulator computes it, ultraethernet/uet-htsim)
keeps a window in bytes from delay and ECN marks; a trimmed packet may cut it down to what came
through lately, one that is lost without a trim takes its own bytes off it and no more (a path has
failed, nothing says that it was congested). Left out: its fast increase.

DCQCN (Zhu et al., SIGCOMM 2015) keeps a rate from marks alone; here marks ride on acknowledgements
and at most one per interval counts as a CNP. Its timers are caught up with whenever a packet is
sent or an acknowledgement comes, which is when they matter. Left out: its byte counter and hyper
increase.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Int, subkernel

NONE, NSCC, DCQCN = range(3)
WINDOW, RATE_PS, INCREASE, DELAY, LAST_ADJUST, LAST_DECREASE, ACKED_SINCE, ACHIEVED, QUICK_END = (
    range(9)
)
"""Columns of NSCC: window (bytes), unused, increase to come (bytes^2), mean delay (ps), times (ps),
bytes acknowledged since the last adjustment, bytes that came through since `QUICK_END` began."""
IGNORE, TRIMS = 9, 10
"""Bytes whose marks are ignored after a quick adaptation; trims since the last one."""
ALPHA, TARGET_PS, LAST_CNP, LAST_RAISE, STAGE = 2, 3, 4, 5, 6
"""Columns of DCQCN: share of marks, target (ps per byte), times, raises since the last cut."""
COLUMNS: Final = 12

(
    MSS,
    BASE_RTT,
    TARGET,
    MOST,
    NSCC_ALPHA,
    FAIR,
    ETA,
    GAMMA,
    QUICK_GATE,
    QUICK_DELAY,
    ADJUST_PS,
    ADJUST_BYTES,
    LINE_PS,
) = range(13)
"""Items of `params`: bytes, ps and the factors of the formulas; the line's ps per byte."""

CNP_PS: Final = 50_000_000
"""DCQCN: at most one cut per 50 us (paper: N = 50 us)."""
RAISE_PS: Final = 55_000_000
"""DCQCN: one raise per 55 us (paper: T = 55 us)."""
DCQCN_G: Final = 1.0 / 256.0
FAST_STAGES: Final = 5
RAISE_BITS_PER_SECOND: Final = 40e6
"""DCQCN: R_AI = 40 Mb/s (paper)."""
LEAST_BITS_PER_SECOND: Final = 100e6
"""DCQCN: it sends no slower than at 100 Mb/s (assumed)."""


class Congestion(NamedTuple):
    """Congestion control of all flows."""

    kind: int
    rows: NDArray[np.float64]
    """float64[flows, COLUMNS]."""
    params: NDArray[np.float64]


def congestion(
    kind: int, flows: int, mss: int, base_rtt_ps: int, line_bits_per_second: int, trimming: bool
) -> Congestion:
    """Start values: everything may send at line rate.

    mss: wire bytes of a full packet. The factors are those of uet-htsim: scaled from a network of
    100 Gb/s and 12 us.
    """
    bdp = line_bits_per_second / 8e12 * base_rtt_ps
    scale = bdp / (100e9 / 8e12 * 12e6)
    target = (0.75 if trimming else 1.0) * base_rtt_ps
    params = np.zeros(16)
    params[MSS], params[BASE_RTT], params[TARGET] = mss, base_rtt_ps, target
    params[MOST] = max(1.5 * bdp, mss)
    params[NSCC_ALPHA] = 4.0 * mss * scale * (target / 12e6) / target
    params[FAIR], params[ETA], params[GAMMA] = 5.0 * mss * scale, 0.15 * mss * scale, 0.8
    params[QUICK_GATE], params[QUICK_DELAY] = 3.0, 4.0 * target
    params[ADJUST_PS], params[ADJUST_BYTES] = base_rtt_ps, 8.0 * mss
    params[LINE_PS] = 8e12 / line_bits_per_second
    rows = np.zeros((flows, COLUMNS))
    if kind == NSCC:
        rows[:, WINDOW] = params[MOST]
    else:
        rows[:, WINDOW] = np.inf
        rows[:, RATE_PS] = rows[:, TARGET_PS] = params[LINE_PS]
        rows[:, ALPHA] = 1.0
        rows[:, LAST_CNP] = -1e18
    return Congestion(kind, rows, params)


@subkernel
def on_ack(
    kind: Int,
    rows: NDArray[np.float64],
    params: NDArray[np.float64],
    flow: Int,
    acked: Int,
    rtt_ps: Int,
    marked: Int,
    now_ps: Int,
) -> None:
    """An acknowledgement of `acked` bytes arrived."""
    if kind == NSCC:
        _nscc_ack(rows, params, flow, acked, rtt_ps, marked, now_ps)
    elif kind == DCQCN:
        _dcqcn_ack(rows, params, flow, marked, now_ps)


@subkernel
def on_loss(
    kind: Int,
    rows: NDArray[np.float64],
    params: NDArray[np.float64],
    flow: Int,
    lost: Int,
    trimmed: Int,
    now_ps: Int,
) -> None:
    """`lost` bytes were trimmed, or given up without a trim."""
    if kind == NSCC:
        if trimmed:
            rows[flow, TRIMS] += 1.0
            if _quick(rows, params, flow, np.float64(0.0), np.float64(now_ps)):
                return
        rows[flow, WINDOW] = max(params[MSS], rows[flow, WINDOW] - lost)


@subkernel
def _quick(
    rows: NDArray[np.float64],
    params: NDArray[np.float64],
    flow: Int,
    delay: np.float64,
    now: np.float64,
) -> bool:
    """NSCC's quick adaptation: down to what really came through in the last round trip."""
    row = rows[flow]
    adapted = False
    if now >= row[QUICK_END]:
        bad = row[TRIMS] > 0.0 or delay > params[QUICK_DELAY]
        few = row[ACHIEVED] < params[MOST] / 2.0 ** params[QUICK_GATE]
        if row[QUICK_END] > 0.0 and bad and few:
            row[IGNORE] = row[WINDOW]
            row[WINDOW] = max(row[ACHIEVED], params[MSS])
            row[INCREASE] = 0.0
            adapted = True
        row[QUICK_END] = now + params[BASE_RTT] + params[TARGET]
        row[ACHIEVED] = 0.0
        row[TRIMS] = 0.0
    return adapted


@subkernel
def _nscc_ack(
    rows: NDArray[np.float64],
    params: NDArray[np.float64],
    flow: Int,
    acked: Int,
    rtt_ps: Int,
    marked: Int,
    now_ps: Int,
) -> None:
    row = rows[flow]
    size, now = np.float64(acked), np.float64(now_ps)
    delay = max(0.0, np.float64(rtt_ps) - params[BASE_RTT])
    row[ACHIEVED] += size
    row[DELAY] += 0.0125 * (delay - row[DELAY])
    ignored = row[IGNORE] > 0.0
    row[IGNORE] = max(0.0, row[IGNORE] - size)
    if marked and ignored:
        row[INCREASE] = 0.0
        row[ACKED_SINCE] = 0.0
        return
    if _quick(rows, params, flow, delay, now):
        return
    target = params[TARGET]
    if not marked and delay < target:
        row[INCREASE] += params[NSCC_ALPHA] * size * (target - delay)
    elif not marked:
        row[INCREASE] += params[FAIR] * size
    elif delay >= target and now - row[LAST_DECREASE] > params[BASE_RTT]:
        mean = row[DELAY]
        if mean > target:
            cut = max(1.0 - params[GAMMA] * (mean - target) / mean, 0.5)
            row[WINDOW] = max(params[MSS], row[WINDOW] * cut)
        row[LAST_DECREASE] = now
    row[ACKED_SINCE] += size
    late = now - row[LAST_ADJUST] >= params[ADJUST_PS]
    if late or row[ACKED_SINCE] >= params[ADJUST_BYTES]:
        row[WINDOW] += row[INCREASE] / row[WINDOW]
        if late:
            row[WINDOW] += params[ETA]
            row[LAST_ADJUST] = now
        row[WINDOW] = min(params[MOST], row[WINDOW])
        row[INCREASE] = 0.0
        row[ACKED_SINCE] = 0.0


@subkernel
def _dcqcn_ack(
    rows: NDArray[np.float64], params: NDArray[np.float64], flow: Int, marked: Int, now_ps: Int
) -> None:
    row = rows[flow]
    now = np.float64(now_ps)
    _dcqcn_timers(rows, params, flow, now_ps)
    if marked and now - row[LAST_CNP] >= CNP_PS:
        row[TARGET_PS] = row[RATE_PS]
        slowest = max(params[LINE_PS], 8e12 / LEAST_BITS_PER_SECOND)
        row[RATE_PS] = min(slowest, row[RATE_PS] / (1.0 - row[ALPHA] / 2.0))
        row[ALPHA] = (1.0 - DCQCN_G) * row[ALPHA] + DCQCN_G
        row[LAST_CNP] = now
        row[LAST_RAISE] = now
        row[STAGE] = 0.0


@subkernel
def _dcqcn_timers(
    rows: NDArray[np.float64], params: NDArray[np.float64], flow: Int, now_ps: Int
) -> None:
    """All raises of the rate, and falls of alpha, that are due by now."""
    row = rows[flow]
    now, line = np.float64(now_ps), params[LINE_PS]
    while row[LAST_RAISE] + RAISE_PS <= now:
        row[LAST_RAISE] += RAISE_PS
        if row[RATE_PS] <= line:  # nothing to raise; alpha is of use after a cut only
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


@subkernel
def pace_ps(
    rows: NDArray[np.float64], params: NDArray[np.float64], flow: Int, size: Int, now_ps: Int
) -> Int:
    """DCQCN: from a packet of `size` bytes that is sent now to the flow's next one."""
    _dcqcn_timers(rows, params, flow, now_ps)
    return np.int64(np.float64(size) * rows[flow, RATE_PS])

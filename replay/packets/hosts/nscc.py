"""NSCC of Ultra Ethernet 1.0, as its public reference simulator computes it (uet-htsim).

It controls a window in bytes by delay and ECN marks; a trimmed packet may reduce the window to the
bytes delivered recently; a packet lost without a trim reduces it by its own bytes only (a failed
path, not congestion). Not implemented: the fast increase.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Floats, Int, subkernel
from .congestion import MSS, OWN_COLUMNS, OWN_PARAMETERS, WINDOW, Algorithm, Heard, Line

INCREASE, DELAY, LAST_ADJUST, LAST_DECREASE, ACKED_SINCE, ACHIEVED, QUICK_END, IGNORE, TRIMS = (
    range(OWN_COLUMNS, OWN_COLUMNS + 9)
)
BASE_RTT, MOST = OWN_COLUMNS + 9, OWN_COLUMNS + 10
"""Pending increase (bytes^2), mean delay (ps), times (ps), bytes acknowledged since the last
adjustment, bytes delivered since `QUICK_END` was set, end of the quick adaptation interval, bytes
whose marks are ignored after a quick adaptation, trims since the last quick adaptation; base RTT
of the flow (ps) and its largest window."""
(
    TARGET,
    NSCC_ALPHA,
    FAIR,
    ETA,
    GAMMA,
    QUICK_GATE,
    QUICK_DELAY,
    ADJUST_PS,
    ADJUST_BYTES,
) = range(OWN_PARAMETERS, OWN_PARAMETERS + 9)
"""Bytes, ps and factors of the formulas."""


def _start(rows: Floats, params: Floats, line: Line) -> None:
    """Factors of uet-htsim, scaled from a network of 100 Gb/s and 12 us: those of the network by
    its longest base RTT, the largest window and the round trip by those of the flow."""
    trips = line.trips
    longest = int(trips.ps.max(initial=1))
    bdp = trips.bits_per_second / 8e12 * trips.ps
    scale = float(trips.bits_per_second.max(initial=1)) * longest / (100e9 * 12e6)
    target = (0.75 if line.trimming else 1.0) * longest
    rows[:, BASE_RTT], params[TARGET] = trips.ps, target
    rows[:, MOST] = rows[:, WINDOW] = np.maximum(1.5 * bdp, line.mss)
    params[NSCC_ALPHA] = 4.0 * line.mss * scale * (target / 12e6) / target
    params[FAIR], params[ETA] = 5.0 * line.mss * scale, 0.15 * line.mss * scale
    params[GAMMA], params[QUICK_GATE], params[QUICK_DELAY] = 0.8, 3.0, 4.0 * target
    params[ADJUST_PS], params[ADJUST_BYTES] = longest, 8.0 * line.mss


@subkernel
def on_ack(rows: Floats, params: Floats, heard: Heard) -> Int:
    flow, marked = heard.flow, heard.marked
    row = rows[flow]
    size, now = np.float64(heard.acked), np.float64(heard.now_ps)
    delay = max(0.0, np.float64(heard.rtt_ps) - row[BASE_RTT])
    row[ACHIEVED] += size
    row[DELAY] += 0.0125 * (delay - row[DELAY])
    ignored = row[IGNORE] > 0.0
    row[IGNORE] = max(0.0, row[IGNORE] - size)
    if marked and ignored:
        row[INCREASE] = 0.0
        row[ACKED_SINCE] = 0.0
        return np.int64(0)
    if _quick(rows, params, flow, delay, now):
        return np.int64(0)
    target = params[TARGET]
    if not marked and delay < target:
        row[INCREASE] += params[NSCC_ALPHA] * size * (target - delay)
    elif not marked:
        row[INCREASE] += params[FAIR] * size
    elif delay >= target and now - row[LAST_DECREASE] > row[BASE_RTT]:
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
        row[WINDOW] = min(row[MOST], row[WINDOW])
        row[INCREASE] = 0.0
        row[ACKED_SINCE] = 0.0
    return np.int64(0)


@subkernel
def on_loss(rows: Floats, params: Floats, flow: Int, lost: Int, trimmed: Int, now_ps: Int) -> Int:
    if trimmed:
        rows[flow, TRIMS] += 1.0
        if _quick(rows, params, flow, np.float64(0.0), np.float64(now_ps)):
            return np.int64(0)
    rows[flow, WINDOW] = max(params[MSS], rows[flow, WINDOW] - lost)
    return np.int64(0)


@subkernel
def _quick(rows: Floats, params: Floats, flow: Int, delay: float, now: float) -> bool:
    """Quick adaptation of NSCC: reduce the window to the bytes delivered in the last round trip."""
    row = rows[flow]
    adapted = False
    if now >= row[QUICK_END]:
        bad = row[TRIMS] > 0.0 or delay > params[QUICK_DELAY]
        few = row[ACHIEVED] < row[MOST] / 2.0 ** params[QUICK_GATE]
        if row[QUICK_END] > 0.0 and bad and few:
            row[IGNORE] = row[WINDOW]
            row[WINDOW] = max(row[ACHIEVED], params[MSS])
            row[INCREASE] = 0.0
            adapted = True
        row[QUICK_END] = now + row[BASE_RTT] + params[TARGET]
        row[ACHIEVED] = 0.0
        row[TRIMS] = 0.0
    return adapted


NSCC = Algorithm(_start, on_ack, on_loss)

"""Swift: a window from delay alone (Kumar et al., SIGCOMM 2020, algorithm 1).

While the delay of a packet and its ACK is below a target the window grows by `ai` packets per round
trip, else it shrinks once per round trip by the excess over the target. The target grows with the
links of the path (section 3.5, topology scaling) and with 1 / sqrt(window) (flow scaling), so that
many flows may keep the queue that they cause. Hosts add no delay here, so the window for hosts is
left out. Below one packet the window becomes pacing: one packet per RTT / window.

| parameter | value | source |
|---|---|---|
| base target | base RTT of the flow | paper: one for the fabric; every pair its own: assumed |
| per link | base target / 6.55 | csg-htsim, a guess there |
| flow scaling | up to 5 base targets, for windows from 0.1 to 100 packets | csg-htsim |
| ai, beta, largest decrease | 1 packet, 0.8, 0.5 | csg-htsim, guesses there |
| losses in a row before the least window | 5 | csg-htsim, a guess there |
| least window | 0.01 packets | assumed; csg-htsim: 10 bytes, a guess there |
| largest window | 1.5 BDP, at the start too | assumed, as NSCC |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Floats, Int, inlined, subkernel
from .congestion import MSS, OWN_COLUMNS, WINDOW, Algorithm, Heard, Line

CWND, MOST, BASE, RTT, LAST_CUT, LOSSES = range(OWN_COLUMNS, OWN_COLUMNS + 6)
"""Window in packets, also below 1; largest window; base target, latest round trip and time of the
latest decrease (ps); losses in a row."""

INCREASE: Final = 1.0
BETA: Final = 0.8
MOST_CUT: Final = 0.5
PER_LINK: Final = 1.0 / 6.55
SCALING: Final = 5.0
FEWEST, MANIEST = 0.1, 100.0
_PER_ROOT: Final = SCALING / (FEWEST**-0.5 - MANIEST**-0.5)
LOSSES_TO_LEAST: Final = 5.0
LEAST: Final = 0.01
"""Packets."""


def _start(rows: Floats, params: Floats, line: Line) -> None:
    trips = line.trips
    packets = trips.bits_per_second / 8e12 * trips.ps / line.mss
    rows[:, MOST] = rows[:, CWND] = np.maximum(1.5 * packets, 1.0)
    rows[:, WINDOW] = rows[:, CWND] * line.mss
    rows[:, BASE] = rows[:, RTT] = trips.ps
    rows[:, LAST_CUT] = -1e18


@inlined
def target_ps(rows: Floats, flow: Int, hops: Int) -> float:
    """The delay that Swift accepts, ps."""
    row = rows[flow]
    cwnd = min(max(row[CWND], FEWEST), MANIEST)
    scaling = _PER_ROOT * (cwnd**-0.5 - MANIEST**-0.5)
    return row[BASE] * (1.0 + PER_LINK * np.float64(hops) + scaling)


@subkernel
def on_ack(rows: Floats, params: Floats, heard: Heard) -> Int:
    row, now = rows[heard.flow], np.float64(heard.now_ps)
    delay = row[RTT] = np.float64(heard.rtt_ps)
    row[LOSSES] = 0.0
    target = target_ps(rows, heard.flow, heard.hops)
    if delay < target:
        acked = np.float64(heard.acked) / params[MSS]
        row[CWND] += INCREASE * acked / max(1.0, row[CWND])
    elif now - row[LAST_CUT] >= delay:
        row[CWND] *= max(1.0 - BETA * (delay - target) / delay, 1.0 - MOST_CUT)
        row[LAST_CUT] = now
    _bound(rows, params, heard.flow)
    return np.int64(0)


@subkernel
def on_loss(rows: Floats, params: Floats, flow: Int, lost: Int, trimmed: Int, now_ps: Int) -> Int:
    row, now = rows[flow], np.float64(now_ps)
    if now - row[LAST_CUT] >= row[RTT]:
        row[LOSSES] += 1.0
        row[CWND] *= 1.0 - MOST_CUT
        if row[LOSSES] >= LOSSES_TO_LEAST:
            row[CWND] = LEAST
        row[LAST_CUT] = now
    _bound(rows, params, flow)
    return np.int64(0)


@subkernel
def on_send(rows: Floats, params: Floats, flow: Int, size: Int, now_ps: Int) -> Int:
    cwnd = rows[flow, CWND]
    return np.int64(0) if cwnd >= 1.0 else np.int64(rows[flow, RTT] / cwnd)


@inlined
def _bound(rows: Floats, params: Floats, flow: Int) -> None:
    row = rows[flow]
    row[CWND] = min(max(row[CWND], LEAST), row[MOST])
    row[WINDOW] = max(1.0, row[CWND]) * params[MSS]


SWIFT = Algorithm(_start, on_ack, on_loss, on_send)

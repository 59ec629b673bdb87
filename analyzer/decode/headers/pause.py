"""Flow control frames: priority flow control (PFC) and global pause.

Source: IEEE 802.3 Annex 31B (pause), 31D and IEEE 802.1Q clause 36 (PFC). A
frame sets the pause timer of a priority to a number of quanta of 512 bit
times; a later frame replaces the timer, and time 0 (XON) ends the pause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....kernels.kernel import Int, Ints, kernel
from ...wire.packets import I64, U8
from ..outcomes import OTHER_ETHERTYPE, PAUSE, TRUNCATED_PAUSE
from .load import be16

GLOBAL_PAUSE_OPCODE = 0x0001
PFC_OPCODE = 0x0101
QUANTUM_BITS = 512
GLOBAL = 8
"""Row of the global pause after the eight priorities."""
N_CLASSES = 9

# Columns of the state array int64[taps, N_CLASSES, N_FIELDS].
FRAMES, XON, QUANTA, PAUSED_NS, BEGAN_NS, ENDS_NS = range(6)
N_FIELDS = 6


@kernel
def _set_timer(state: I64, time_ns: Int, quanta: Int, bits_per_second: Int) -> None:
    """Apply one frame to one priority: state is int64[N_FIELDS]."""
    state[FRAMES] += 1
    state[QUANTA] += quanta
    if quanta == 0:
        state[XON] += 1
    if bits_per_second <= 0:
        return
    duration_ns = np.int64(quanta * (QUANTUM_BITS * 1e9 / bits_per_second) + 0.5)
    if time_ns >= state[ENDS_NS]:  # the previous pause has expired
        state[PAUSED_NS] += state[ENDS_NS] - state[BEGAN_NS]
        state[BEGAN_NS] = time_ns
    else:  # the pause continues; frames out of time order cannot precede its start
        time_ns = max(time_ns, state[BEGAN_NS])
    state[ENDS_NS] = time_ns + duration_ns


@kernel
def pause_frame(data: U8, at: Int, end: Int, time_ns: Int, state: I64, bits_per_second: Int) -> Int:
    """Count a MAC control frame with its opcode at `at`; returns the outcome of the frame.

    state: int64[N_CLASSES, N_FIELDS] of the frame's tap; bits_per_second: 0 when unknown.
    """
    if end - at < 2:
        return TRUNCATED_PAUSE
    opcode = be16(data, at)
    if opcode == GLOBAL_PAUSE_OPCODE:
        if end - at < 4:
            return TRUNCATED_PAUSE
        _set_timer(state[GLOBAL], time_ns, be16(data, at + 2), bits_per_second)
        return PAUSE
    if opcode == PFC_OPCODE:
        if end - at < 20:
            return TRUNCATED_PAUSE
        enabled = be16(data, at + 2)
        for priority in range(8):
            if (enabled >> priority) & 1:
                quanta = be16(data, at + 4 + 2 * priority)
                _set_timer(state[priority], time_ns, quanta, bits_per_second)
        return PAUSE
    return OTHER_ETHERTYPE


@dataclass(frozen=True, slots=True)
class PauseCounts:
    """Pause frames of one tap and priority."""

    tap: int
    priority: int | None
    """0 to 7; None for the global pause."""
    frames: int
    xon_frames: int
    """Frames that end a pause (time 0)."""
    quanta: int
    """Sum of the requested pause times, in quanta of 512 bit times."""
    paused_ns: int | None
    """Paused time of the link as seen at this tap, ns; None when its rate is unknown."""


def pause_counts(state: Ints, rates: Ints) -> list[PauseCounts]:
    """The counters: one entry per tap and priority with frames.

    state: int64[taps, N_CLASSES, N_FIELDS]; rates: int64[taps], bit/s, 0 when unknown.
    """
    counts = []
    for tap, row in zip(*np.nonzero(state[:, :, FRAMES]), strict=True):
        s = [int(value) for value in state[tap, row]]
        paused = s[PAUSED_NS] + s[ENDS_NS] - s[BEGAN_NS] if rates[tap] > 0 else None
        priority = None if row == GLOBAL else int(row)
        counts.append(PauseCounts(int(tap), priority, s[FRAMES], s[XON], s[QUANTA], paused))
    return counts

"""Flow control frames: priority flow control (PFC) and global pause.

Source: IEEE 802.3 Annex 31B (pause), 31D and IEEE 802.1Q clause 36 (PFC). A
frame sets the pause timer of a priority to a number of quanta of 512 bit
times; a later frame replaces the timer, and time 0 (XON) ends the pause.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, kernel
from ...results.captures import Pause, PauseSpan
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
(
    FRAMES, XON, QUANTA, PAUSED_NS, BEGAN_NS, ENDS_NS, FIRST_NS, LAST_NS, FIRST_FRAME, LAST_FRAME,
    SPANS, APART_NS, SPAN_NS,
) = range(13)  # fmt: skip
MOST_SPANS = 32
"""Spans of pauses that are kept: begin and end of each from SPAN_NS on."""
N_FIELDS = SPAN_NS + 2 * MOST_SPANS


@kernel
def _add_span(state: I64, begin: Int, end: Int) -> None:
    """Note a pause. Spans closer than APART_NS are one; it doubles until all spans have room."""
    last = SPAN_NS + 2 * state[SPANS] - 1
    if state[SPANS] > 0 and begin <= state[last] + state[APART_NS]:
        state[last] = max(end, begin)
        return
    while state[SPANS] == MOST_SPANS:
        state[APART_NS] = max(2 * state[APART_NS], 1000)
        kept = 1
        for i in range(1, MOST_SPANS):
            at, to = SPAN_NS + 2 * i, SPAN_NS + 2 * kept
            if state[at] <= state[to - 1] + state[APART_NS]:
                state[to - 1] = max(state[to - 1], state[at + 1])
            else:
                state[to], state[to + 1] = state[at], state[at + 1]
                kept += 1
        state[SPANS] = kept
    at = SPAN_NS + 2 * state[SPANS]
    state[at], state[at + 1] = begin, end
    state[SPANS] += 1


@kernel
def _set_timer(
    state: I64, time_ns: Int, frame_number: Int, quanta: Int, bits_per_second: Int
) -> None:
    """Apply one frame to one priority: state is int64[N_FIELDS]."""
    state[FRAMES] += 1
    state[QUANTA] += quanta
    if quanta == 0:
        state[XON] += 1
    elif state[FRAMES] == state[XON] + 1:
        state[FIRST_NS] = state[LAST_NS] = time_ns
        state[FIRST_FRAME] = state[LAST_FRAME] = frame_number
    else:
        if time_ns < state[FIRST_NS]:
            state[FIRST_NS], state[FIRST_FRAME] = time_ns, frame_number
        if time_ns >= state[LAST_NS]:
            state[LAST_NS], state[LAST_FRAME] = time_ns, frame_number
    if bits_per_second <= 0:
        return
    duration_ns = np.int64(quanta * (QUANTUM_BITS * 1e9 / bits_per_second) + 0.5)
    if time_ns >= state[ENDS_NS]:  # the previous pause has expired
        state[PAUSED_NS] += state[ENDS_NS] - state[BEGAN_NS]
        state[BEGAN_NS] = time_ns
    else:  # the pause continues; frames out of time order cannot precede its start
        time_ns = max(time_ns, state[BEGAN_NS])
    if quanta > 0 or time_ns < state[ENDS_NS]:
        _add_span(state, time_ns, time_ns + duration_ns)
    state[ENDS_NS] = time_ns + duration_ns


@kernel
def pause_frame(
    data: U8,
    at: Int,
    end: Int,
    time_ns: Int,
    frame_number: Int,
    state: I64,
    bits_per_second: Int,
) -> Int:
    """Count a MAC control frame with its opcode at `at`; returns the outcome of the frame.

    state: int64[N_CLASSES, N_FIELDS] of the frame's tap; bits_per_second: 0 when unknown.
    """
    if end - at < 2:
        return TRUNCATED_PAUSE
    opcode = be16(data, at)
    if opcode == GLOBAL_PAUSE_OPCODE:
        if end - at < 4:
            return TRUNCATED_PAUSE
        quanta = be16(data, at + 2)
        _set_timer(state[GLOBAL], time_ns, frame_number, quanta, bits_per_second)
        return PAUSE
    if opcode == PFC_OPCODE:
        if end - at < 20:
            return TRUNCATED_PAUSE
        enabled = be16(data, at + 2)
        for priority in range(8):
            if (enabled >> priority) & 1:
                quanta = be16(data, at + 4 + 2 * priority)
                _set_timer(state[priority], time_ns, frame_number, quanta, bits_per_second)
        return PAUSE
    return OTHER_ETHERTYPE


def pauses_of(state: Ints, rate: int) -> list[Pause]:
    """The pauses of one tap: one record per priority with frames.

    state: int64[N_CLASSES, N_FIELDS]; rate: bit/s, 0 when unknown.
    """
    pauses = []
    for row in np.flatnonzero(state[:, FRAMES]).tolist():
        s = state[row].tolist()
        times: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
        if s[FRAMES] > s[XON]:
            times = s[FIRST_NS], s[LAST_NS], s[FIRST_FRAME], s[LAST_FRAME]
        edges = s[SPAN_NS : SPAN_NS + 2 * s[SPANS]]
        pauses.append(
            Pause(
                None if row == GLOBAL else row,
                s[FRAMES],
                s[XON],
                s[QUANTA],
                s[PAUSED_NS] + s[ENDS_NS] - s[BEGAN_NS] if rate > 0 else None,
                *times,
                [PauseSpan(*span) for span in zip(edges[::2], edges[1::2], strict=True)],
            )
        )
    return pauses

"""Hardware timestamps of mirroring switches in place of capture times.

ERSPAN III has 32 bits in a unit of its own (draft-foschiano-erspan-03); some platforms add
upper bits or seconds in a sub-header. Arista has seconds and nanoseconds. A timestamp that wraps is
unwrapped with the capture time, which must be right within half a period. A counter with an unknown
start is set to the capture time of the first frame of its tap; times of day stay unchanged.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, inlined, kernel
from ...wire.packets import I64, U8, U16, PacketTable
from ...wire.taps import Taps
from ..headers.load import be16, be32, byte
from ..tunnels.headers import arista_timestamp
from ..tunnels.walk import ARISTA_STAMP

# State of the clock of a tap, int64[taps, N_FIELDS].
STATE, OFFSET, LAST_HARDWARE, LAST_CAPTURE, STAMPED, UNSTAMPED, COARSE = range(7)
N_FIELDS = 7
UNKNOWN, OF_DAY, COUNTER = 0, 1, 2

_SECOND = 1_000_000_000
_DAY_NS = 86_400 * _SECOND
_WIDE_BITS = 45
"""Bits kept of stamps with upper bits: the time in nanoseconds stays within 63."""
_TICK_100_US, _TICK_100_NS, _IEEE_1588 = 0, 1, 2


@inlined
def _of_erspan(data: U8, at: Int) -> tuple[Int, Int, Int]:
    """(stamp in ns, its period in ns or 0, unit) of the ERSPAN III header at `at`; unit -1: none.

    The walk has checked that the header and its sub-header are captured.
    """
    stamp, last = be32(data, at + 4), be16(data, at + 10)
    unit = (last >> 1) & 3
    platform: Int = -1
    extra: Int = 0
    if last & 1:
        platform = byte(data, at + 12) >> 2
        extra = be32(data, at + 16)
    upper = platform == 0 or platform == 3 or platform == 7
    if unit == _IEEE_1588:
        if (platform == 5 or platform == 6) and stamp < _SECOND:
            return extra * _SECOND + stamp, 0, unit
        if upper:
            return ((extra & 0x3FFFFFFF) << 32) | stamp, 1 << 62, unit
        return stamp, _SECOND if stamp < _SECOND else 1 << 32, unit
    if unit == 3:
        return 0, 0, -1  # a unit that only the switch's configuration defines
    tick = 100_000 if unit == _TICK_100_US else 100
    if upper:
        value = ((extra << 32) | stamp) & ((1 << _WIDE_BITS) - 1)
        return value * tick, tick << _WIDE_BITS, unit
    return stamp * tick, tick << 32, unit


@inlined
def _nearest(value: Int, period: Int, expected: Int) -> Int:
    """The time that is `value` modulo `period` and nearest to `expected`."""
    if period == 0:
        return value
    return value + (expected - value + (period >> 1)) // period * period


@inlined
def _place(value: Int, period: Int, of_day: Bool, capture: Int, clock: I64) -> Int:
    """The timestamp as time since the epoch, by the state of its tap's clock.

    It differs from the capture time by at most a day, for any timestamp.
    """
    placed = capture
    if clock[STATE] == UNKNOWN and of_day:
        clock[STATE] = OF_DAY
    if clock[STATE] == OF_DAY:
        placed = _nearest(value, period, capture)
    elif clock[STATE] == COUNTER:
        expected = clock[LAST_HARDWARE] + capture - clock[LAST_CAPTURE] - clock[OFFSET]
        placed = _nearest(value, period, expected) + clock[OFFSET]
    if clock[STATE] == UNKNOWN or abs(np.float64(placed) - np.float64(capture)) > _DAY_NS:
        # A counter, or a clock that was never set: start at the capture time.
        clock[STATE] = COUNTER
        clock[OFFSET] = capture - value
        placed = capture
    clock[LAST_HARDWARE] = placed
    clock[LAST_CAPTURE] = capture
    return placed


@kernel
def set_times(data: U8, stamp: I64, tap: U16, time_ns: I64, clocks: I64) -> None:
    """Replace the times of rows with a timestamp.

    stamp: int64[rows], positions from the walk, -1 for none; clocks:
    int64[taps, N_FIELDS], updated.
    """
    for i in range(len(stamp)):
        clock = clocks[np.uint64(tap[i])]
        at = stamp[i]
        if at < 0:
            clock[UNSTAMPED] += 1
            continue
        if at & ARISTA_STAMP:
            at ^= ARISTA_STAMP
            _, seconds, nanoseconds = arista_timestamp(data, at, at + 14)
            value: Int = seconds * _SECOND + nanoseconds
            period: Int = 0 if be16(data, at + 2) == 0x10 else 65536 * _SECOND
            of_day: Bool = True
        else:
            unit: Int
            value, period, unit = _of_erspan(data, at)
            if unit < 0:
                clock[UNSTAMPED] += 1
                continue
            # Without a sub-header, IEEE 1588 stamps are the nanoseconds of a second, or, where
            # one is too large for that, the low bits of a counter.
            of_day = unit == _IEEE_1588 and period <= _SECOND
            if unit == _IEEE_1588 and period == _SECOND and clock[STATE] == COUNTER:
                period = 1 << 32
            elif period == 1 << 32 and clock[STATE] == OF_DAY:
                clock[STATE] = UNKNOWN
            if unit == _IEEE_1588 and period == 1 << 62:
                of_day = True
            clock[COARSE] += unit == _TICK_100_US
        time_ns[i] = _place(value, period, of_day, time_ns[i], clock)
        clock[STAMPED] += 1


class HardwareClock:
    """The clocks of all taps of one capture."""

    def __init__(self, taps: Taps) -> None:
        self._taps = taps
        self._clocks = np.zeros((0, N_FIELDS), np.int64)

    def set_times(self, data: U8, stamp: I64, table: PacketTable) -> None:
        """Set the rows of a table to the times of their timestamps; stamp: -1 for rows without."""
        more = len(self._taps) - len(self._clocks)
        self._clocks = np.pad(self._clocks, ((0, more), (0, 0)))
        set_times(data, stamp, table.tap, table.time_ns, self._clocks)

    @property
    def stamped(self) -> int:
        """Rows with a usable timestamp."""
        return int(self._clocks[:, STAMPED].sum())

    def warnings(self) -> list[str]:
        """Warnings about taps that keep capture time, and about coarse timestamps."""
        lines = []
        for tap, clock in enumerate(self._clocks.tolist()):
            name = self._taps[tap].name
            if clock[UNSTAMPED]:
                lines.append(
                    f"{name}: {clock[UNSTAMPED]} packets have no hardware timestamp and keep"
                    " capture time"
                )
            if clock[COARSE]:
                lines.append(f"{name}: its hardware timestamps have a resolution of 100 us")
        return lines

"""RFC 5236 reorder density (RD) and reorder buffer-occupancy density (RBD), exact and streaming.

Both metrics use the first copies of consecutive sequence numbers, one stream per flow and PSN
space. A packet displaced by more than the threshold (DT and BT of the RFC, one value here) counts
as lost, so each metric needs only a window of threshold + 1 arrivals.

While the window holds consecutive numbers in order, every packet leaves it with displacement 0 and
an empty buffer, and the next number alone describes the window: the window is virtual. The first
disorder or gap stores a real window in a slot of a pool; after a whole window in order it becomes
virtual again.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...kernels.kernel import Int, Ints, NamedTuple, Record, RecordArray, inlined, subkernel
from .per_flow import PerFlow, Pool, Rows

MAX_THRESHOLD = 32
"""Default and upper limit of the threshold. Flows sprayed over tens of paths displace packets by
tens of positions, which the threshold 8 of the RFC's examples would report as lost."""

REQUESTS, RESPONSES = range(2)
"""The PSN spaces of a flow: its own requests, and the READ responses it carries."""

_BEYOND = np.iinfo(np.int64).max  # larger than every number
_RING = 64  # slots of a window ring: a power of two above MAX_THRESHOLD + 1

STATE = np.dtype(
    [
        ("next", np.int64),  # the number after the newest one, while `ordered`
        ("in_order", np.int64),  # packets that left a virtual window, all undisplaced
        ("count", np.int32),  # packets in the virtual window
        ("slot", np.int32),  # 1 + slot in the pool; 0 without disorder so far
        ("full", np.uint8),  # 1: the virtual window is full; 0: it fills, or is real
        ("disordered", np.uint8),  # 1: the windows are real, in `slot`
    ],
    align=True,
)

# One window with its receive buffer. Numbers below `expected` are no longer expected:
# in RD it is the receive index RI, in RBD the E of the last step, or E + 1 once E was taken.
QUEUE = np.dtype(
    [
        ("expected", np.int64),
        ("low", np.int64),  # the smallest number in the window, before RD's first step and in RBD
        ("newest", np.int64),  # the largest number ever appended
        ("last", np.int64),  # the number appended last
        ("run", np.int64),  # length of the latest run of consecutive appended numbers
        ("head", np.int64),  # position of the oldest number in the window
        ("count", np.int64),  # numbers in the window
        ("held", np.int64),  # numbers in the buffer
        ("started", np.int64),  # 0 while the window fills for the first time
        ("window", np.int64, (_RING,)),
        ("buffer", np.int64, (MAX_THRESHOLD,)),
    ],
    align=True,
)


class StateRecord(Record):
    """An element of STATE."""


class QueueRecord(Record):
    """An element of QUEUE."""


class DensityArrays(NamedTuple):
    """Arrays of the kernels; see `Densities`."""

    state: RecordArray
    """STATE[2 * flows]: stream 2 * flow + space."""
    queues: RecordArray
    """QUEUE[slots, 2]: of RD and RBD."""
    displacement: Ints
    """int64[slots, 2 * MAX_THRESHOLD + 1]: packets per displacement, from -MAX_THRESHOLD."""
    occupancy: Ints
    """int64[slots, MAX_THRESHOLD + 1]: arrivals per packets held in the buffer."""
    used: Ints
    """int64[1]: slots handed out."""
    threshold: int


@inlined
def density_push(arrays: DensityArrays, stream: Int, number: Int) -> None:
    """Count the arrival of the first copy of `number` (int64, never wrapping) of a stream.

    A stream is 2 * flow + space. Numbers are consecutive when none is missing; range -2**61..2**61.
    """
    s = arrays.state[stream]
    if s.full == 1 and number == s.next:
        s.in_order += 1
        s.next = number + 1
    else:
        _push_slowly(arrays, stream, number)


@subkernel
def _push_slowly(arrays: DensityArrays, stream: Int, number: Int) -> None:
    s = arrays.state[stream]
    size = arrays.threshold + 1
    if s.disordered == 0:
        if s.count == 0 or number == s.next:
            s.count += 1
            s.full = s.count == size
            s.next = number + 1
            return
        _make_windows(arrays, s)
    slot = s.slot - 1
    displacements, occupancies = arrays.queues[slot, 0], arrays.queues[slot, 1]
    if displacements.count == size:
        _displace(displacements, arrays.displacement[slot], arrays.threshold)
    _append(displacements, number)
    if occupancies.count == size:
        _occupy(occupancies, arrays.occupancy[slot], arrays.threshold)
    _append(occupancies, number)
    if _in_order(displacements, size) and _in_order(occupancies, size):
        s.disordered = 0
        s.full = 1
        s.count = size
        s.next = number + 1


@subkernel
def density_finish(arrays: DensityArrays, stream: Int) -> None:
    """End a stream: count the packets still in its windows; a new stream may follow."""
    s = arrays.state[stream]
    if s.disordered == 0:
        s.in_order += s.count
    else:
        slot = s.slot - 1
        displacements, occupancies = arrays.queues[slot, 0], arrays.queues[slot, 1]
        while displacements.count > 0:
            _displace(displacements, arrays.displacement[slot], arrays.threshold)
        while occupancies.count > 0:
            _occupy(occupancies, arrays.occupancy[slot], arrays.threshold)
    s.count = 0
    s.full = 0
    s.disordered = 0


@inlined
def _in_order(q: QueueRecord, size: Int) -> bool:
    return bool(q.run >= size and q.count == size and q.held == 0)


@subkernel
def _make_windows(arrays: DensityArrays, s: StateRecord) -> None:
    """Write the virtual window of consecutive numbers into both queues."""
    if s.slot == 0:
        arrays.used[0] += 1
        s.slot = arrays.used[0]
    for which in range(2):
        q = arrays.queues[s.slot - 1, which]
        q.head = 0
        q.count = s.count
        q.held = 0
        q.run = s.count
        q.last = s.next - 1
        q.newest = s.next - 1
        q.low = s.next - s.count
        q.started = 0
        for i in range(s.count):
            q.window[i] = q.low + i
    s.full = 0
    s.count = 0
    s.disordered = 1


@inlined
def _pop(q: QueueRecord) -> Int:
    number = q.window[q.head & (_RING - 1)]
    q.head += 1
    q.count -= 1
    return np.int64(number)


@inlined
def _in_window(q: QueueRecord, number: Int) -> bool:
    for i in range(q.head, q.head + q.count):
        if q.window[i & (_RING - 1)] == number:
            return True
    return False


@inlined
def _place_in_buffer(q: QueueRecord, number: Int) -> Int:
    """Position of a number in the buffer, -1 when absent."""
    for i in range(q.held):
        if q.buffer[i] == number:
            return i
    return -1


@inlined
def _drop_from_buffer(q: QueueRecord, place: Int) -> None:
    q.held -= 1
    q.buffer[place] = q.buffer[q.held]


@subkernel
def _append(q: QueueRecord, number: Int) -> None:
    """Append an arrival to the window unless it is too late or a duplicate.

    The RFC's get_next_arrival: only numbers that are still expected count.
    """
    if q.started and number < q.expected:
        return
    if number <= q.newest and (_in_window(q, number) or _place_in_buffer(q, number) >= 0):
        return
    q.window[(q.head + q.count) & (_RING - 1)] = number
    q.count += 1
    q.run = q.run + 1 if number == q.last + 1 else 1
    q.last = number
    q.newest = max(q.newest, number)
    q.low = min(q.low, number)


@subkernel
def _displace(q: QueueRecord, frequency: Ints, threshold: Int) -> None:
    """RD: move the receive index to the next available number and judge the oldest packet."""
    if not q.started:
        q.started = 1
        q.expected = q.low
    while True:
        place = _place_in_buffer(q, q.expected)
        if place < 0 and not _in_window(q, q.expected):
            q.expected = _next_at_hand(q)
            continue
        number = _pop(q)
        displacement = q.expected - number
        if abs(displacement) <= threshold:
            frequency[MAX_THRESHOLD + displacement] += 1
            if place >= 0:
                _drop_from_buffer(q, place)
            if displacement < 0:
                q.buffer[q.held] = number
                q.held += 1
            q.expected += 1
        return


@inlined
def _next_at_hand(q: QueueRecord) -> Int:
    """Smallest number above `expected` in window or buffer.

    It exists: for every late packet in the window an early packet took its place, and that packet
    is still in the buffer.
    """
    low = _BEYOND
    for i in range(q.head, q.head + q.count):
        number = q.window[i & (_RING - 1)]
        if number > q.expected:
            low = min(low, number)
    for i in range(q.held):
        if q.buffer[i] > q.expected:
            low = min(low, q.buffer[i])
    return low


@subkernel
def _occupy(q: QueueRecord, frequency: Ints, threshold: Int) -> None:
    """RBD: deliver or buffer the oldest packet and count the buffer's occupancy."""
    q.started = 1
    q.expected = q.low
    number = _pop(q)
    if number == q.expected:
        q.expected += 1
        q.low = _smallest(q)
        for place in range(q.held - 1, -1, -1):
            if q.buffer[place] < q.low:
                _drop_from_buffer(q, place)
    elif q.held == threshold:
        return  # the expected packet is later than the threshold and the buffer is full
    else:
        q.buffer[q.held] = number
        q.held += 1
    frequency[q.held] += 1


@inlined
def _smallest(q: QueueRecord) -> Int:
    """Smallest number in the window; above every number when the window is empty."""
    low = _BEYOND
    if q.count > 0 and q.window[q.head & (_RING - 1)] == q.expected:
        return np.int64(q.expected)
    for i in range(q.head, q.head + q.count):
        low = min(low, q.window[i & (_RING - 1)])
    return low


class Densities(PerFlow[DensityArrays]):
    """RD and RBD of any number of flows, both spaces of each.

    The tracker's kernel pushes into `arrays` after `grow`. Slots are reserved for every flow, but
    only those of disordered flows are touched.
    """

    layout: ClassVar = {
        "state": Rows(per=2),
        "queues": Pool(("state", "slot"), used=0),
        "displacement": Pool(("state", "slot"), used=0),
        "occupancy": Pool(("state", "slot"), used=0),
    }

    def __init__(self, threshold: int = MAX_THRESHOLD) -> None:
        if not 1 <= threshold <= MAX_THRESHOLD:
            raise ValueError(f"threshold must be 1 to {MAX_THRESHOLD}, not {threshold}")
        super().__init__(_empty(0, 0, threshold))
        self.threshold = threshold

    def density(self, flow: int, space: int) -> dict[int, int]:
        """Packets per displacement (early < 0 < late) if the stream ended here: RFC 5236 RD."""
        return self._counts("displacement", 2 * flow + space, MAX_THRESHOLD)

    def buffer_density(self, flow: int, space: int) -> dict[int, int]:
        """Arrivals per buffer occupancy if the stream ended here: RFC 5236 RBD."""
        return self._counts("occupancy", 2 * flow + space, 0)

    def _counts(self, name: str, stream: int, zero: int) -> dict[int, int]:
        """Packets by value; zero: the place of those in order."""
        packets = self._undisturbed(stream)
        if packets is not None:
            return {0: packets} if packets else {}
        part = self._finished(stream)
        counts = getattr(part, name)[0]
        counts[zero] += part.state[0]["in_order"]
        return {int(at) - zero: int(counts[at]) for at in np.flatnonzero(counts)}

    def _undisturbed(self, stream: int) -> int | None:
        """Packets of a stream that was always in order; None otherwise."""
        known = self.arrays.state
        if stream >= len(known):
            return 0
        s = known[stream]
        return None if s["slot"] else int(s["in_order"] + s["count"])

    def _finished(self, stream: int) -> DensityArrays:
        """A copy of one stream, finished here."""
        part = self._copy(stream)
        density_finish(part, 0)
        return part

    def _copy(self, stream: int) -> DensityArrays:
        """One stream alone, as stream 0 and slot 0 of new arrays."""
        part = _empty(1, 1, self.threshold)
        part.state[0] = self.arrays.state[stream]
        slot = int(part.state[0]["slot"])
        if slot:
            part.state[0]["slot"] = 1
            part.queues[0] = self.arrays.queues[slot - 1]
            part.displacement[0] = self.arrays.displacement[slot - 1]
            part.occupancy[0] = self.arrays.occupancy[slot - 1]
        return part


def _empty(streams: int, slots: int, threshold: int) -> DensityArrays:
    return DensityArrays(
        np.zeros(streams, STATE),
        np.zeros((slots, 2), QUEUE),
        np.zeros((slots, 2 * MAX_THRESHOLD + 1), np.int64),
        np.zeros((slots, MAX_THRESHOLD + 1), np.int64),
        np.zeros(1, np.int64),
        threshold,
    )

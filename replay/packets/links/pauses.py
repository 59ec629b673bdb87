"""PFC in the network: buffers of ports, pause frames, pauses. State and rules: `pause_state`."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, Int32s, Ints, inlined, subkernel
from ..model import classes as cl
from ..model import pause_state as ps
from ..model import run_state as rs
from ..model.model import NEVER, message_of, service_ps
from ..model.pause_state import Pauses
from ..model.pfc import PAUSE_BYTES, QUANTUM_BITS
from ..model.run_state import Net, Network
from ..model.wheel import schedule
from .classes import class_of, is_held, open_classes, row_of
from .slots import free_slot, link_next, new_slot, next_of, size_of


@inlined
def is_paused(run: Network, link: Int, of: Int, time: Int) -> Bool:
    """Whether data of a class must not start at a time."""
    if run.settings[rs.PFC] == 0:
        return False
    return is_held(run, row_of(run, link, of), time)


@inlined
def can_start(run: Network, link: Int, time: Int) -> Bool:
    """Whether one of the packets that wait at a link may start."""
    if run.links[link, rs.ACK_HEAD] >= 0:
        return True
    if run.settings[rs.CLASSES] > 1:
        return open_classes(run, link, time) != 0
    return not is_paused(run, link, np.int64(0), time)


@inlined
def queue_bytes(run: Network, link: Int, of: Int) -> Int:
    """Bytes of a class that wait at a link."""
    if run.settings[rs.CLASSES] == 1:
        return run.links[link, rs.WAITING_DATA]
    return run.classes.queues[row_of(run, link, of), cl.BYTES]


@inlined
def first_waiting(run: Network, link: Int, of: Int) -> Int:
    """The first packet of a class that waits at a link, -1 for none."""
    if run.settings[rs.CLASSES] == 1:
        return run.links[link, rs.DATA_HEAD]
    return run.classes.queues[row_of(run, link, of), cl.HEAD]


@inlined
def threshold(pauses: Pauses, row: Int) -> Int:
    """Bytes from the port of `row` that its class may hold in the shared buffer."""
    return min(_limit(pauses, row), pauses.rows[row, ps.SHARED] + _free(pauses, row))


@inlined
def _free(pauses: Pauses, row: Int) -> Int:
    pool = pauses.rows[row, ps.SWITCH]
    return pauses.pools[pool, ps.SIZE] - pauses.pools[pool, ps.USED]


@inlined
def _limit(pauses: Pauses, row: Int) -> Int:
    limit = pauses.rows[row, ps.LIMIT]
    if limit == NEVER:  # in two parts, each below 2^63
        free, alpha = _free(pauses, row), pauses.rows[row, ps.ALPHA]
        low = free & np.int64(0xFFFFF)
        limit = alpha * (free >> np.int64(20)) + ((alpha * low) >> np.int64(20))
    return limit


@inlined
def admit(
    net: Net, out_start: Ints, out_links: Int32s, link: Int, out: Int, slot: Int, time: Int
) -> Bool:
    """Count a data packet that came over `link` and has to wait for `out`; False without room.

    Without room in the shared buffer the port asks for a pause, even if the headroom is smaller
    than the packet; but not if no packet of the port waits: no departure could end the pause.
    """
    pauses, rows = net.pauses, net.pauses.rows
    size, of = size_of(net.slots, slot), class_of(net, net.slots[slot, rs.KEY])
    row = row_of(net, link, of)
    net.slots[slot, rs.TIME] = link
    if net.classes.rules[of, cl.LOSSLESS] == 0:
        most = min(_limit(pauses, row), queue_bytes(net, out, of) + _free(pauses, row))
        if queue_bytes(net, out, of) + size > most:
            return False
        rows[row, ps.SHARED] += size
        pauses.pools[rows[row, ps.SWITCH], ps.USED] += size
        return True
    if rows[row, ps.SHARED] + size <= threshold(pauses, row):
        rows[row, ps.SHARED] += size
        pauses.pools[rows[row, ps.SWITCH], ps.USED] += size
        return True
    fits = rows[row, ps.HEADROOM] + size <= rows[row, ps.ROOM]
    if fits:
        rows[row, ps.HEADROOM] += size
        rows[row, ps.MOST_HEADROOM] = max(rows[row, ps.MOST_HEADROOM], rows[row, ps.HEADROOM])
    else:
        rows[row, ps.NO_ROOM] += 1
    waiting = rows[row, ps.SHARED] + rows[row, ps.HEADROOM]
    if rows[row, ps.ASKED] == 0 and waiting > 0:
        rows[row, ps.ASKED] = 1
        _send_frame(net, link, row, time)
        _find_root(net, out_start, out_links, rows[row, ps.SWITCH], of, time)
    return fits


@inlined
def leave(run: Network, slot: Int, size: Int, time: Int) -> None:
    """Free the buffer of a data packet whose transmission begins or that is dropped from its queue;
    a host's own packets use none."""
    link = run.slots[slot, rs.TIME]
    if link >= 0:
        pauses, rows = run.pauses, run.pauses.rows
        row = row_of(run, link, class_of(run, run.slots[slot, rs.KEY]))
        below = min(size, rows[row, ps.HEADROOM])
        rows[row, ps.HEADROOM] -= below
        rows[row, ps.SHARED] -= size - below
        pauses.pools[rows[row, ps.SWITCH], ps.USED] -= size - below
        if rows[row, ps.ASKED] and rows[row, ps.HEADROOM] == 0:
            shared = rows[row, ps.SHARED]
            if shared == 0 or shared + pauses.rules[ps.XON] <= threshold(pauses, row):
                rows[row, ps.ASKED] = 0
                _send_frame(run, link, row, time)


@inlined
def _send_frame(run: Network, link: Int, row: Int, time: Int) -> None:
    """Send a frame that begins, repeats or ends the pause of a link, to its sender."""
    rows, slots, quanta = run.pauses.rows, run.slots, run.pauses.rules[ps.QUANTA]
    begin: Int
    took: Int
    back, begin, took = rows[row, ps.REVERSE], time, np.int64(0)
    if back >= 0:
        begin = max(time, run.links[back, rs.FREE])
        took = service_ps(np.int64(PAUSE_BYTES), run.links[back, rs.RATE])
        took += run.links[back, rs.DELAY]
    slot = new_slot(run, np.int64(0), np.int64(0), np.int64(0))
    slots[slot, rs.TIME] = begin + took + run.pauses.rules[ps.REACTION]
    slots[slot, rs.META] = rows[row, ps.ASKED]
    rows[row, ps.FRAMES] += rows[row, ps.ASKED]
    if quanta:
        rows[row, ps.REPEAT] = NEVER
        if rows[row, ps.ASKED]:
            rows[row, ps.REPEAT] = time + max(1, _quanta_ps(run, link, quanta) // 2)
            schedule(run.pauses.wheel, 1 + link, rows[row, ps.REPEAT])
    if rows[row, ps.FRAME_HEAD] < 0:
        rows[row, ps.FRAME_HEAD] = slot
        rows[row, ps.FRAME_TIME] = slots[slot, rs.TIME]
        schedule(run.pauses.wheel, 1 + link, rows[row, ps.FRAME_TIME])
    else:
        link_next(slots, rows[row, ps.FRAME_TAIL], slot)
    rows[row, ps.FRAME_TAIL] = slot


@inlined
def _quanta_ps(run: Network, link: Int, quanta: Int) -> Int:
    """Time of this many quanta at the rate of a link."""
    return service_ps(quanta * np.int64(QUANTUM_BITS // 8), run.links[link, rs.RATE])


@subkernel
def _find_root(
    net: Net, out_start: Ints, out_links: Int32s, switch: Int, of: Int, time: Int
) -> None:
    """Count a pause for the longest queue of the switch that asks for it, unless a pause of its own
    link explains the queue: since that pause it must have had the time to send the whole queue."""
    longest: Int
    most: Int
    longest, most = np.int64(-1), np.int64(0)
    for i in range(out_start[switch], out_start[switch + 1]):
        out = np.int64(out_links[i])
        waits = queue_bytes(net, out, of)
        if waits > most:
            longest, most = out, waits
    if longest >= 0:
        row = net.pauses.rows[row_of(net, longest, of)]
        queue = (most * (net.links[longest, rs.RATE] >> np.int64(10))) >> np.int64(10)
        if row[ps.PAUSES] == 0 or (row[ps.PAUSED] == 0 and time - row[ps.SINCE] >= queue):
            row[ps.ROOTS] += 1


@inlined
def pause_due(run: Network, link: Int) -> Int:
    """Time of the next frame or timer of the pauses of a link, NEVER for none."""
    if run.pauses.rules[ps.SEVERAL] == 0:
        return run.pauses.rows[link, ps.FRAME_TIME]
    return _earliest(run, link)


@subkernel
def _earliest(run: Network, link: Int) -> Int:
    due = np.int64(NEVER)
    for of in range(run.settings[rs.CLASSES]):
        row = run.pauses.rows[row_of(run, link, np.int64(of))]
        due = min(due, min(row[ps.FRAME_TIME], min(row[ps.EXPIRES], row[ps.REPEAT])))
    return due


@subkernel
def obey(net: Net, messages: Ints, link: Int, time: Int) -> None:
    """Handle the frames that the sender of a link obeys now, and the timers of its pauses; the link
    has been served before `time`."""
    rows, slots, quanta = net.pauses.rows, net.slots, net.pauses.rules[ps.QUANTA]
    for of in range(net.settings[rs.CLASSES]):
        row = row_of(net, link, np.int64(of))
        while rows[row, ps.FRAME_TIME] <= time:
            slot = rows[row, ps.FRAME_HEAD]
            following = next_of(slots, slot)
            rows[row, ps.FRAME_HEAD] = following
            rows[row, ps.FRAME_TIME] = NEVER if following < 0 else slots[following, rs.TIME]
            pause = slots[slot, rs.META]
            free_slot(net, slot)
            if pause == 0:
                if rows[row, ps.PAUSED]:
                    _end_pause(net, messages, link, np.int64(of), time)
                continue
            if rows[row, ps.PAUSED] == 0:
                rows[row, ps.PAUSES] += 1
                rows[row, ps.SINCE] = time
                rows[row, ps.PAUSED] = 1
            if quanta:
                rows[row, ps.EXPIRES] = time + _quanta_ps(net, link, quanta)
        if rows[row, ps.EXPIRES] <= time:
            _end_pause(net, messages, link, np.int64(of), time)
        if rows[row, ps.REPEAT] <= time:
            _send_frame(net, link, row, time)


@subkernel
def _end_pause(net: Net, messages: Ints, link: Int, of: Int, time: Int) -> None:
    rows, row = net.pauses.rows, row_of(net, link, of)
    length = time - rows[row, ps.SINCE]
    rows[row, ps.PAUSED_PS] += length
    rows[row, ps.LONGEST_PS] = max(rows[row, ps.LONGEST_PS], length)
    after = net.pauses.rules[ps.STORM_AFTER]
    if length >= after and rows[row, ps.STORM] < 0:
        rows[row, ps.STORM] = rows[row, ps.SINCE] + after
    net.links[link, rs.FREE] = max(net.links[link, rs.FREE], time)
    rows[row, ps.SINCE] = time
    rows[row, ps.PAUSED] = 0
    rows[row, ps.EXPIRES] = NEVER
    hold_waiting(net, messages, link, of)


@inlined
def hold_waiting(net: Network, messages: Ints, link: Int, of: Int) -> None:
    """Note the flows whose packets wait at a link that was paused."""
    if len(net.pauses.held) > 1:
        slot = first_waiting(net, link, of)
        while slot >= 0:
            flow = messages[message_of(net.slots[slot, rs.KEY]), rs.FLOW]
            net.pauses.held[link, flow] |= np.uint8(ps.HELD)
            slot = next_of(net.slots, slot)


@inlined
def note_use(net: Net, messages: Ints, out: Int, slot: Int) -> None:
    """Note a flow that uses a link, whose queue may cause pauses later."""
    held = net.pauses.held
    if len(held) > 1:
        flow = messages[message_of(net.slots[slot, rs.KEY]), rs.FLOW]
        held[out, flow] |= np.uint8(ps.USES)


@inlined
def next_due(net: Net, link: Int, time: Int) -> Int:
    """Time of the next event of a link, not before `time`: an arrival at its end, the start of a
    service, a pause frame; NEVER for none."""
    links = net.links
    due = min(links[link, rs.HEAD_TIME], pause_due(net, link))
    if links[link, rs.WAITING_PACKETS] > 0:
        start = max(time, links[link, rs.FREE])
        if start < due and can_start(net, link, time):
            due = start
    return due

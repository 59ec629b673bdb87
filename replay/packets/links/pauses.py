"""PFC in the network: buffers of ports, pause frames, pauses. State and rules: `pause_state`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import Int, Int32s, Ints, inlined, subkernel
from ..model import pause_state as ps
from ..model import run_state as rs
from ..model.model import NEVER, message_of, service_ps
from ..model.pause_state import Pauses
from ..model.pfc import PAUSE_BYTES
from ..model.run_state import Net, Network
from ..model.wheel import schedule
from .slots import free_slot, link_next, new_slot, next_of, size_of


@inlined
def is_paused(run: Network, link: Int, time: Int) -> Any:
    """Whether data of a link must not start at a time: it is paused, or its sender has yet to obey
    a frame of this time."""
    if run.settings[rs.PFC] == 0:
        return False
    rows = run.pauses.rows
    return rows[link, ps.PAUSED] != 0 or rows[link, ps.FRAME_TIME] <= time


@inlined
def threshold(pauses: Pauses, link: Int) -> Int:
    """Bytes that the port at the end of a link may have in the shared buffer."""
    pool = pauses.rows[link, ps.SWITCH]
    free = pauses.pools[pool, ps.SIZE] - pauses.pools[pool, ps.USED]
    limit = pauses.rows[link, ps.LIMIT]
    if limit == NEVER:  # in two parts, each below 2^63
        alpha, low = pauses.rules[ps.ALPHA], free & np.int64(0xFFFFF)
        limit = alpha * (free >> np.int64(20)) + ((alpha * low) >> np.int64(20))
    return min(limit, pauses.rows[link, ps.SHARED] + free)


@inlined
def admit(net: Net, out_start: Ints, out_links: Int32s, link: Int, slot: Int, time: Int) -> Any:
    """Count a data packet that came over `link` and has to wait; whether there was room.

    Without room in the shared buffer the port asks for a pause, also if the headroom is smaller
    than the packet. If nothing of the port waits, no departure could end the pause: no pause.
    """
    pauses, rows = net.pauses, net.pauses.rows
    size = size_of(net.slots, slot)
    net.slots[slot, rs.TIME] = link
    if rows[link, ps.SHARED] + size <= threshold(pauses, link):
        rows[link, ps.SHARED] += size
        pauses.pools[rows[link, ps.SWITCH], ps.USED] += size
        return True
    fits = rows[link, ps.HEADROOM] + size <= rows[link, ps.ROOM]
    if fits:
        rows[link, ps.HEADROOM] += size
        rows[link, ps.MOST_HEADROOM] = max(rows[link, ps.MOST_HEADROOM], rows[link, ps.HEADROOM])
    else:
        rows[link, ps.NO_ROOM] += 1
    waiting = rows[link, ps.SHARED] + rows[link, ps.HEADROOM]
    if rows[link, ps.ASKED] == 0 and waiting > 0:
        rows[link, ps.ASKED] = 1
        _send_frame(net, link, time)
        _find_root(net, out_start, out_links, rows[link, ps.SWITCH], time)
    return fits


@inlined
def leave(run: Network, slot: Int, size: Int, time: Int) -> None:
    """Free the room of a data packet whose transmission begins, or that is dropped from its queue;
    a host's own packets have none."""
    link = run.slots[slot, rs.TIME]
    if link >= 0:
        pauses, rows = run.pauses, run.pauses.rows
        below = min(size, rows[link, ps.HEADROOM])
        rows[link, ps.HEADROOM] -= below
        rows[link, ps.SHARED] -= size - below
        pauses.pools[rows[link, ps.SWITCH], ps.USED] -= size - below
        if rows[link, ps.ASKED] and rows[link, ps.HEADROOM] == 0:
            shared = rows[link, ps.SHARED]
            if shared == 0 or shared + pauses.rules[ps.XON] <= threshold(pauses, link):
                rows[link, ps.ASKED] = 0
                _send_frame(run, link, time)


@inlined
def _send_frame(run: Network, link: Int, time: Int) -> None:
    """Send a frame that begins or ends the pause of a link, to its sender."""
    rows, slots = run.pauses.rows, run.slots
    begin: Int
    took: Int
    back, begin, took = rows[link, ps.REVERSE], time, np.int64(0)
    if back >= 0:
        begin = max(time, run.links[back, rs.FREE])
        took = service_ps(np.int64(PAUSE_BYTES), run.links[back, rs.RATE])
        took += run.links[back, rs.DELAY]
    slot = new_slot(run, np.int64(0), np.int64(0), np.int64(0))
    slots[slot, rs.TIME] = begin + took + run.pauses.rules[ps.REACTION]
    slots[slot, rs.META] = rows[link, ps.ASKED]
    if rows[link, ps.FRAME_HEAD] < 0:
        rows[link, ps.FRAME_HEAD] = slot
        rows[link, ps.FRAME_TIME] = slots[slot, rs.TIME]
        schedule(run.pauses.wheel, 1 + link, rows[link, ps.FRAME_TIME])
    else:
        link_next(slots, rows[link, ps.FRAME_TAIL], slot)
    rows[link, ps.FRAME_TAIL] = slot


@subkernel
def _find_root(net: Net, out_start: Ints, out_links: Int32s, switch: Int, time: Int) -> None:
    """Note the longest queue of a switch that asks for a pause, unless a pause of its own link is
    the reason: its link has served data since its last pause for as long as the queue is."""
    longest, most = np.int64(-1), np.int64(0)
    for i in range(out_start[switch], out_start[switch + 1]):
        out = np.int64(out_links[i])
        if net.links[out, rs.WAITING_DATA] > most:
            longest, most = out, net.links[out, rs.WAITING_DATA]
    if longest >= 0:
        row = net.pauses.rows[longest]
        queue = (most * (net.links[longest, rs.RATE] >> np.int64(10))) >> np.int64(10)
        if row[ps.PAUSES] == 0 or (row[ps.PAUSED] == 0 and time - row[ps.SINCE] >= queue):
            row[ps.ROOTS] += 1


@subkernel
def obey(net: Net, messages: Ints, link: Int, time: Int) -> None:
    """Handle the frames that the sender of a link obeys now; it has been served before `time`."""
    rows, slots = net.pauses.rows, net.slots
    while rows[link, ps.FRAME_TIME] <= time:
        slot = rows[link, ps.FRAME_HEAD]
        following = next_of(slots, slot)
        rows[link, ps.FRAME_HEAD] = following
        rows[link, ps.FRAME_TIME] = NEVER if following < 0 else slots[following, rs.TIME]
        pause = slots[slot, rs.META]
        free_slot(net, slot)
        if pause:
            rows[link, ps.PAUSES] += 1
            rows[link, ps.SINCE] = time
        else:
            length = time - rows[link, ps.SINCE]
            rows[link, ps.PAUSED_PS] += length
            rows[link, ps.LONGEST_PS] = max(rows[link, ps.LONGEST_PS], length)
            net.links[link, rs.FREE] = max(net.links[link, rs.FREE], time)
            rows[link, ps.SINCE] = time
            hold_waiting(net, messages, link)
        rows[link, ps.PAUSED] = pause


@inlined
def hold_waiting(net: Network, messages: Ints, link: Int) -> None:
    """Note the flows whose packets wait at a link that was paused."""
    if len(net.pauses.held) > 1:
        slot = net.links[link, rs.DATA_HEAD]
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
    """Time of the next event of a link, not before `time`: an arrival at its end, the begin of a
    service, a pause frame; NEVER for none."""
    links, rows = net.links, net.pauses.rows
    due = min(links[link, rs.HEAD_TIME], rows[link, ps.FRAME_TIME])
    if links[link, rs.WAITING_PACKETS] > 0:
        if rows[link, ps.PAUSED] == 0 or links[link, rs.ACK_HEAD] >= 0:
            due = min(due, max(time, links[link, rs.FREE]))
    return due

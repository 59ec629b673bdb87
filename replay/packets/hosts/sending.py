"""Sending hosts: turns of flows, windows and pacing, entropy values, retransmissions first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import Int, Ints, inlined, subkernel
from ..links.classes import charge, next_class
from ..links.pauses import is_paused
from ..links.queues import add_jitter, start_service, take_waiting
from ..links.slots import new_slot, size_of
from ..model import run_state as rs
from ..model.labels import OUTSTANDING, EvState, Select
from ..model.model import AGAIN, NEVER, packet_key, service_ps
from ..model.rules import Emit
from ..model.run_state import Desk, Net
from ..model.wheel import schedule
from . import feedback_state as fb
from . import recovery as rec
from .congestion.algorithm import MSS, WINDOW, OnSend
from .feedback_state import Feedback, drawn_key
from .hosts import data_bytes, join_ring, release_first, ring_of, waits_for_its_time
from .recovery import now_under_way, timeout_ps

_LABEL = 0xFFFFFFFF


@inlined
def unblock(nics: Ints, hosts: Ints, host: Int, time: Int) -> None:
    """Let the ports of a host send again from now on."""
    nics[host, fb.BLOCKED] = 0
    hosts[host, rs.NOW] = max(hosts[host, rs.NOW], time)


@inlined
def _take_turn(rings: Ints, flows: Ints, ring: Int) -> Int:
    """Remove and return the first flow of a ring; -1 for an empty ring."""
    flow = rings[ring, rs.RING_HEAD]
    if flow >= 0:
        following = flows[flow, rs.RING_NEXT]
        rings[ring, rs.RING_HEAD] = following
        if following < 0:
            rings[ring, rs.RING_TAIL] = -1
        flows[flow, rs.IN_RING] = 0
    return flow


@inlined
def _has_more(senders: Ints, flows: Ints, messages: Ints, flow: Int) -> Any:
    """Whether the flow has a packet to send, window aside."""
    if senders[flow, rec.AGAIN_HEAD] >= 0:
        return True
    message = flows[flow, rs.CURSOR]
    return message < flows[flow, rs.END] and messages[message, rs.READY] != 0


@inlined
def _window_full(own: Feedback, flow: Int) -> Any:
    """Whether one more packet would exceed the window of a flow; it always permits one."""
    way = own.senders[flow, rec.WAY_PACKETS]
    return way > 0 and np.float64(way + 1) * own.window_params[MSS] > own.window[flow, WINDOW]


@inlined
def _ack_expected(own: Feedback, flow: Int) -> Any:
    """Whether an ACK is certain to come: for each packet, or for one in flight that asks for it.

    A window that shrinks below the packets of one ACK, all of which have arrived, would wait for
    ever: then the sender sends one more packet, which asks.
    """
    if own.control[fb.SEVERAL] == 0:
        return True
    asking = own.senders[flow, rec.ASKING]
    return asking >= 0 and own.packets[asking, rec.STATE] == rec.UNDER_WAY


@inlined
def _next_flow(
    desk: Desk,
    own: Feedback,
    evs: EvState,
    select: Select,
    ring: Int,
    port: Int,
    free: Int,
    start: Int,
) -> tuple[Int, Int, Int, Int]:
    """(flow, EV, port, NEVER) of the next packet of a ring; flow -1 if no flow can send, and then
    the time until which the pace of a flow holds it up.

    A flow passes its turn if its window, pace or EVs do not permit a packet. The returned flow is
    no longer in the ring.
    """
    control, senders, none = own.control, own.senders, np.int64(NEVER)
    begun: Int
    begun, later = np.int64(-1), np.int64(NEVER)
    while True:
        flow = _take_turn(desk.rings, desk.flows, ring)
        if flow < 0 or flow == begun:
            break
        if not _has_more(senders, desk.flows, desk.messages, flow):
            continue
        if begun < 0:
            begun = flow
        may = senders[flow, rec.NEXT_PS] <= start
        if not may:
            later = min(later, senders[flow, rec.NEXT_PS])
        elif control[fb.CONTROLLED] and _window_full(own, flow):
            may = not _ack_expected(own, flow)
        if may and control[fb.MPR] and senders[flow, rec.AGAIN_HEAD] < 0:
            cursor = desk.flows[flow, rs.CURSOR]
            following = desk.messages[cursor, rs.FIRST_NUMBER] + desk.messages[cursor, rs.SENT]
            may = following - senders[flow, rec.UNACKNOWLEDGED] < control[fb.MPR]
        if may:
            if not control[fb.SELECTS]:
                return flow, np.int64(0), port, none
            evs.rows[flow, OUTSTANDING] = senders[flow, rec.WAY_PACKETS]
            ev = select(evs, flow, free, start)
            if ev >= 0:
                by = ev % desk.access.shape[1]
                return flow, ev, by if free >> by & 1 else port, none
        join_ring(desk, flow)
    if flow >= 0:  # all flows had their turn
        join_ring(desk, flow)
    return np.int64(-1), np.int64(0), np.int64(-1), later


@inlined
def _hold_up(desk: Desk, own: Feedback, host: Int, free: Int, later: Int, limit: Int) -> None:
    """Only its pace holds a flow up: until before `limit`, the free ports are held up until then;
    else the host is served again then."""
    if later < limit:  # nothing has changed at this host since then: it is served late
        pending = desk.hosts[host, rs.PENDING]
        if pending >= 0:
            later = min(later, desk.messages[pending, rs.RELEASE])
        for p in range(desk.access.shape[1]):
            if free >> p & 1:
                own.wires[desk.access[host, p], fb.PACED] = later
    elif later != NEVER:
        schedule(own.wheel, own.control[fb.HOST_ITEMS] + host, max(later, own.control[fb.NOW_PS]))


@subkernel
def _open_rings(net: Net, desk: Desk, host: Int, port: Int, time: Int) -> Int:
    """Mask of the classes that have flows in the rings of a port and are not paused there."""
    link, mask = np.int64(desk.access[host, port]), np.int64(0)
    for of in range(net.settings[rs.CLASSES]):
        one = np.int64(of)
        if desk.rings[ring_of(desk, host, port, one), rs.RING_HEAD] >= 0:
            if not is_paused(net, link, one, time):
                mask |= np.int64(1) << one
    return mask


@inlined
def _all_open(net: Net, link: Int, time: Int) -> Any:
    """Whether no class is paused at a link."""
    for of in range(net.settings[rs.CLASSES]):
        if is_paused(net, link, np.int64(of), time):
            return False
    return True


@inlined
def _may_pull(net: Net, desk: Desk, host: Int, port: Int, time: Int) -> Any:
    """Whether a flow of a port may send, its window and pace aside."""
    if net.settings[rs.CLASSES] > 1:
        return _open_rings(net, desk, host, port, time) != 0
    link, only = np.int64(desk.access[host, port]), np.int64(0)
    return desk.rings[ring_of(desk, host, port, only), rs.RING_HEAD] >= 0 and not is_paused(
        net, link, only, time
    )


@inlined
def pull(
    net: Net,
    desk: Desk,
    own: Feedback,
    evs: EvState,
    emit: Emit,
    state: Ints,
    select: Select,
    on_send: OnSend,
    host: Int,
    port: Int,
    free: Int,
    start: Int,
    limit: Int,
) -> Int:
    """Send one packet of a ring by a free port; returns the port, -1 if no flow can send."""
    of: Int
    may: Int
    later: Int
    of, may, later = np.int64(0), np.int64(0), np.int64(NEVER)
    several = net.settings[rs.CLASSES] > 1
    if several:
        may = _open_rings(net, desk, host, port, start)
        of = next_class(net, np.int64(desk.access[host, port]), may, np.int64(1))
    while True:
        ring = ring_of(desk, host, port, of)
        flow, ev, by, until = _next_flow(desk, own, evs, select, ring, port, free, start)
        later = min(later, until)
        if flow >= 0 or not several:
            break
        link = np.int64(desk.access[host, port])
        charge(net, link, of, np.int64(0), np.int64(1))  # nothing it may send: it saves nothing
        may &= ~(np.int64(1) << of)
        of = next_class(net, link, may, np.int64(1))
        if of < 0:
            break
    if flow < 0:
        _hold_up(desk, own, host, free, later, limit)
        return by
    control, senders, messages = own.control, own.senders, desk.messages
    packet = senders[flow, rec.AGAIN_HEAD]
    flags = np.int64(0)
    if packet >= 0:
        message = own.packets[packet, rec.MESSAGE]
        number = packet - messages[message, rs.FIRST_NUMBER]
        flags = np.int64(AGAIN)
        own.tally[fb.SENT_AGAIN] += 1
    else:
        message = desk.flows[flow, rs.CURSOR]
        number = messages[message, rs.SENT]
        packet = messages[message, rs.FIRST_NUMBER] + number
        own.packets[packet, rec.MESSAGE] = message
        if number == 0:
            messages[message, rs.STARTED_PS] = start
        messages[message, rs.SENT] = number + 1
        if len(desk.sent_ps):
            desk.sent_ps[packet] = start
        if number + 1 == messages[message, rs.SIZE]:
            desk.flows[flow, rs.CURSOR] = message + 1
        else:
            waits_for_its_time(desk, host, message, number + 1, start)
    size = data_bytes(desk, message, number)
    key = packet_key(message, number) | flags
    link = np.int64(desk.access[host, by])
    label = ev
    if not control[fb.SELECTS]:
        label = emit(state, net.links, host, link, drawn_key(key, start), start)
    meta = (desk.flows[flow, rs.DST] << np.int64(32)) | (label & np.int64(_LABEL))
    now_under_way(senders, own.packets, flow, packet, ev, start)
    if control[fb.SEVERAL]:
        asks = flags != 0 or (control[fb.CONTROLLED] != 0 and _window_full(own, flow))
        if control[fb.MPR]:
            asks |= packet + 1 - senders[flow, rec.UNACKNOWLEDGED] >= control[fb.MPR]
        if asks:
            key |= np.int64(fb.ASKS)
            senders[flow, rec.ASKING] = packet
    if _has_more(senders, desk.flows, messages, flow):
        join_ring(desk, flow)
    if several:
        charge(net, link, of, size, np.int64(desk.rings[ring, rs.RING_HEAD] < 0))
    slot = new_slot(net, key, meta, size)
    own.slots[slot, fb.STAMP] = start
    own.slots[slot, fb.ECHO] = ev
    own.slots[slot, fb.TRAIL] = 0
    start_service(net, link, slot, size, start)
    add_jitter(net, link, slot, start)
    schedule(own.wheel, 1 + link, net.links[link, rs.HEAD_TIME])
    own.ports[flow, by] += size
    own.tally[fb.DATA_SENT] += 1
    if control[fb.PACE] != 1 << 20:
        service = service_ps(size, net.links[link, rs.RATE])
        own.wires[link, fb.PACED] = start + ((service * control[fb.PACE]) >> np.int64(20))
    if control[fb.PACED_FLOWS]:
        wait = on_send(own.window, own.window_params, flow, size, start)
        senders[flow, rec.NEXT_PS] = start + wait
    # Without losses, only a reordering that go-back-N takes for a loss needs the timer: a receiver
    # asks once per gap, also if what is retransmitted is reordered too.
    again = flags != 0 and control[fb.RECOVERY] == rec.GO_BACK_N
    if (control[fb.CAN_LOSE] or again) and control[fb.RECOVERY] >= rec.SACK:
        patience = timeout_ps(senders, flow, control[fb.RTO], control[fb.LINEAR])
        due = max(control[fb.NOW_PS], start + patience)
        schedule(own.wheel, control[fb.TIMERS] + flow, due)
    return by


@inlined
def serve_nic(
    net: Net,
    desk: Desk,
    own: Feedback,
    evs: EvState,
    emit: Emit,
    state: Ints,
    select: Select,
    on_send: OnSend,
    host: Int,
    limit: Int,
) -> None:
    """Send the packets that the NIC ports of a host begin before `limit`; release messages."""
    ports = desk.access.shape[1]
    links, messages, nics, wires = net.links, desk.messages, own.nics, own.wires
    item = own.control[fb.HOST_ITEMS] + host
    while True:
        start, port = np.int64(NEVER), np.int64(-1)
        for p in range(ports):
            link = np.int64(desk.access[host, p])
            if link < 0:
                continue
            at = links[link, rs.FREE]
            if links[link, rs.WAITING_PACKETS] == 0:
                shut = (nics[host, fb.BLOCKED] | ~nics[host, fb.UP]) >> p & 1
                if shut:
                    continue
                at = max(at, max(wires[link, fb.PACED], desk.hosts[host, rs.NOW]))
                if not _may_pull(net, desk, host, np.int64(p), at):
                    continue
            if at < start:
                start, port = at, np.int64(p)
        pending = desk.hosts[host, rs.PENDING]
        if pending >= 0 and messages[pending, rs.RELEASE] <= start:
            if messages[pending, rs.RELEASE] >= limit:
                schedule(own.wheel, item, messages[pending, rs.RELEASE])
                return
            release_first(desk, host)
            nics[host, fb.BLOCKED] = 0
            continue
        if start >= limit:
            if start != NEVER and links[desk.access[host, port], rs.HEAD_TIME] == NEVER:
                schedule(own.wheel, item, start)
            return
        link = np.int64(desk.access[host, port])
        if links[link, rs.WAITING_PACKETS] > 0:
            slot = take_waiting(net, link, start)
            start_service(net, link, slot, size_of(net.slots, slot), start)
            schedule(own.wheel, 1 + link, links[link, rs.HEAD_TIME])
            continue
        free = np.int64(1) << port
        if desk.settings[rs.ANY_PORT]:
            for p in range(ports):
                other = np.int64(desk.access[host, p])
                if other < 0 or max(links[other, rs.FREE], wires[other, fb.PACED]) > start:
                    continue
                if not _all_open(net, other, start):
                    continue
                if links[other, rs.WAITING_PACKETS] == 0 and nics[host, fb.UP] >> p & 1:
                    free |= np.int64(1) << p
        by = pull(net, desk, own, evs, emit, state, select, on_send, host, port, free, start, limit)
        if by < 0:
            if wires[link, fb.PACED] <= start:
                nics[host, fb.BLOCKED] |= free
        elif desk.settings[rs.ANY_PORT]:  # a packet of one port may enable another port
            unblock(nics, desk.hosts, host, start)

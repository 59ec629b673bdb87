"""Hosts that send: turns of flows, windows and pacing, entropy values, retransmissions first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import Int, Ints, inlined
from ..links.queues import new_slot, size_of, start_service, take_waiting
from ..model.labels import OUTSTANDING, EvState, Select
from ..model.model import AGAIN, NEVER, packet_key, service_ps
from ..model.rules import Emit
from ..model.run_state import (
    ANY_PORT,
    CURSOR,
    DST,
    END,
    FIRST_NUMBER,
    FREE,
    HEAD_TIME,
    IN_RING,
    NOW,
    PENDING,
    RATE,
    READY,
    RELEASE,
    RING_HEAD,
    RING_NEXT,
    RING_TAIL,
    SENT,
    SIZE,
    STARTED_PS,
    WAITING_PACKETS,
    Desk,
    Net,
)
from ..model.wheel import schedule
from .congestion.algorithm import MSS, WINDOW, OnSend
from .feedback_state import (
    BLOCKED,
    CAN_LOSE,
    CONTROLLED,
    DATA_SENT,
    DEAD,
    ECHO,
    HOST_ITEMS,
    LINEAR,
    MPR,
    NOW_PS,
    PACE,
    PACED,
    PACED_FLOWS,
    RECOVERY,
    RTO,
    SELECTS,
    SENT_AGAIN,
    STAMP,
    TIMERS,
    UP,
    Feedback,
    drawn_key,
)
from .hosts import data_bytes, join_ring, release_first, ring_of, waits_for_its_time
from .recovery import (
    AGAIN_HEAD,
    MESSAGE,
    NEXT_PS,
    SACK,
    UNACKNOWLEDGED,
    WAY_PACKETS,
    now_under_way,
    timeout_ps,
)

_LABEL = 0xFFFFFFFF


@inlined
def unblock(nics: Ints, hosts: Ints, host: Int, time: Int) -> None:
    """Let a host's ports try again from now on."""
    nics[host, BLOCKED] = 0
    hosts[host, NOW] = max(hosts[host, NOW], time)


@inlined
def _take_turn(rings: Ints, flows: Ints, ring: Int) -> Int:
    """The first flow of a ring, taken out of it; -1 when it is empty."""
    flow = rings[ring, RING_HEAD]
    if flow >= 0:
        following = flows[flow, RING_NEXT]
        rings[ring, RING_HEAD] = following
        if following < 0:
            rings[ring, RING_TAIL] = -1
        flows[flow, IN_RING] = 0
    return flow


@inlined
def _has_more(senders: Ints, flows: Ints, messages: Ints, flow: Int) -> Any:
    """The flow could send if its window allowed."""
    if senders[flow, AGAIN_HEAD] >= 0:
        return True
    message = flows[flow, CURSOR]
    return message < flows[flow, END] and messages[message, READY] != 0


@inlined
def _next_flow(
    desk: Desk,
    own: Feedback,
    evs: EvState,
    select: Select,
    host: Int,
    port: Int,
    free: Int,
    start: Int,
) -> tuple[Int, Int, Int]:
    """(flow, EV, port) of the next packet from a ring; flow -1 when none can send.

    A flow whose window, pace or EVs do not allow it passes its turn on. The flow that is
    returned is not in the ring.
    """
    control, senders = own.control, own.senders
    ring = ring_of(desk, host, port)
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
        may = senders[flow, NEXT_PS] <= start
        if not may:
            later = min(later, senders[flow, NEXT_PS])
        elif control[CONTROLLED] and senders[flow, WAY_PACKETS] > 0:
            way = np.float64(senders[flow, WAY_PACKETS] + 1) * own.window_params[MSS]
            may = way <= own.window[flow, WINDOW]
        if may and control[MPR] and senders[flow, AGAIN_HEAD] < 0:
            cursor = desk.flows[flow, CURSOR]
            following = desk.messages[cursor, FIRST_NUMBER] + desk.messages[cursor, SENT]
            may = following - senders[flow, UNACKNOWLEDGED] < control[MPR]
        if may:
            if not control[SELECTS]:
                return flow, np.int64(0), port
            evs.rows[flow, OUTSTANDING] = senders[flow, WAY_PACKETS]
            ev = select(evs, flow, free, start)
            if ev >= 0:
                by = ev % desk.access.shape[1]
                return flow, ev, by if free >> by & 1 else port
        join_ring(desk, flow)
    if flow >= 0:  # all had their turn
        join_ring(desk, flow)
    if later != NEVER:
        schedule(own.wheel, own.control[HOST_ITEMS] + host, max(later, own.control[NOW_PS]))
    return np.int64(-1), np.int64(0), np.int64(-1)


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
) -> Int:
    """Send one packet of the flows of a ring by a free port; the port, -1 if none can send."""
    flow, ev, by = _next_flow(desk, own, evs, select, host, port, free, start)
    if flow < 0:
        return by
    control, senders, messages = own.control, own.senders, desk.messages
    packet = senders[flow, AGAIN_HEAD]
    flags = np.int64(0)
    if packet >= 0:
        message = own.packets[packet, MESSAGE]
        number = packet - messages[message, FIRST_NUMBER]
        flags = np.int64(AGAIN)
        own.tally[SENT_AGAIN] += 1
    else:
        message = desk.flows[flow, CURSOR]
        number = messages[message, SENT]
        packet = messages[message, FIRST_NUMBER] + number
        own.packets[packet, MESSAGE] = message
        if number == 0:
            messages[message, STARTED_PS] = start
        messages[message, SENT] = number + 1
        if len(desk.sent_ps):
            desk.sent_ps[packet] = start
        if number + 1 == messages[message, SIZE]:
            desk.flows[flow, CURSOR] = message + 1
        else:
            waits_for_its_time(desk, host, message, number + 1, start)
    size = data_bytes(desk, message, number)
    key = packet_key(message, number) | flags
    link = np.int64(desk.access[host, by])
    label = ev
    if not control[SELECTS]:
        label = emit(state, net.links, host, link, drawn_key(key, start), start)
    meta = (desk.flows[flow, DST] << np.int64(32)) | (label & np.int64(_LABEL))
    now_under_way(senders, own.packets, flow, packet, ev, start)
    if _has_more(senders, desk.flows, messages, flow):
        join_ring(desk, flow)
    slot = new_slot(net, key, meta, size)
    own.extra[slot, STAMP] = start
    own.extra[slot, ECHO] = ev
    own.extra[slot, DEAD] = 0
    start_service(net, link, slot, size, start)
    schedule(own.wheel, 1 + link, net.links[link, HEAD_TIME])
    own.ports[flow, by] += size
    own.tally[DATA_SENT] += 1
    if control[PACE] != 1 << 20:
        service = service_ps(size, net.links[link, RATE])
        own.wires[link, PACED] = start + ((service * control[PACE]) >> np.int64(20))
    if control[PACED_FLOWS]:
        wait = on_send(own.window, own.window_params, flow, size, start)
        senders[flow, NEXT_PS] = start + wait
    if control[CAN_LOSE] and control[RECOVERY] >= SACK:
        patience = timeout_ps(senders, flow, control[RTO], control[LINEAR])
        due = max(control[NOW_PS], start + patience)
        schedule(own.wheel, control[TIMERS] + flow, due)
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
    """All that a host's NIC ports begin before `limit`, and releases before it."""
    ports = desk.access.shape[1]
    links, messages, nics, wires = net.links, desk.messages, own.nics, own.wires
    item = own.control[HOST_ITEMS] + host
    while True:
        start, port = np.int64(NEVER), np.int64(-1)
        for p in range(ports):
            link = np.int64(desk.access[host, p])
            if link < 0:
                continue
            at = links[link, FREE]
            if links[link, WAITING_PACKETS] == 0:
                shut = (nics[host, BLOCKED] | ~nics[host, UP]) >> p & 1
                if shut or desk.rings[ring_of(desk, host, p), RING_HEAD] < 0:
                    continue
                at = max(at, max(wires[link, PACED], desk.hosts[host, NOW]))
            if at < start:
                start, port = at, np.int64(p)
        pending = desk.hosts[host, PENDING]
        if pending >= 0 and messages[pending, RELEASE] <= start:
            if messages[pending, RELEASE] >= limit:
                schedule(own.wheel, item, messages[pending, RELEASE])
                return
            release_first(desk, host)
            nics[host, BLOCKED] = 0
            continue
        if start >= limit:
            if start != NEVER and links[desk.access[host, port], HEAD_TIME] == NEVER:
                schedule(own.wheel, item, start)
            return
        link = np.int64(desk.access[host, port])
        if links[link, WAITING_PACKETS] > 0:
            slot = take_waiting(net, link, start)
            start_service(net, link, slot, size_of(net.slots, slot), start)
            schedule(own.wheel, 1 + link, links[link, HEAD_TIME])
            continue
        free = np.int64(1) << port
        if desk.settings[ANY_PORT]:
            for p in range(ports):
                other = np.int64(desk.access[host, p])
                if other >= 0 and links[other, FREE] <= start and wires[other, PACED] <= start:
                    if links[other, WAITING_PACKETS] == 0 and nics[host, UP] >> p & 1:
                        free |= np.int64(1) << p
        by = pull(net, desk, own, evs, emit, state, select, on_send, host, port, free, start)
        if by < 0:
            nics[host, BLOCKED] |= free
        elif desk.settings[ANY_PORT]:  # what one port sends may let another one send
            unblock(nics, desk.hosts, host, start)

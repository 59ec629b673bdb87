"""Hosts: messages are released, flows take turns at the NIC, receivers acknowledge."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import Int, Ints, inlined
from ...traffic.traffic import ON_ACKED, ON_RECEIVED
from ..links.queues import add_jitter, enqueue, start_service, take_waiting
from ..links.slots import free_slot, new_slot, size_of
from ..model import run_state as rs
from ..model.model import ACK, NEVER, TRIMMED, message_of, number_of, packet_key
from ..model.rules import Emit
from ..model.run_state import Messages, RunState

_FLAG_SHIFT = 56


@inlined
def join_ring(run: Messages, flow: Int) -> None:
    """Append a flow that has packets to send to its ring."""
    ring = run.flows[flow, rs.RING]
    run.flows[flow, rs.RING_NEXT] = -1
    if run.rings[ring, rs.RING_HEAD] < 0:
        run.rings[ring, rs.RING_HEAD] = flow
    else:
        run.flows[run.rings[ring, rs.RING_TAIL], rs.RING_NEXT] = flow
    run.rings[ring, rs.RING_TAIL] = flow
    run.flows[flow, rs.IN_RING] = 1


@inlined
def add_pending(run: Messages, host: Int, message: Int, time: Int) -> None:
    """Schedule the release of a message, after messages of the same time."""
    messages = run.messages
    messages[message, rs.RELEASE] = time
    before, here = np.int64(-1), run.hosts[host, rs.PENDING]
    while here >= 0 and messages[here, rs.RELEASE] <= time:
        before, here = here, messages[here, rs.PENDING_NEXT]
    messages[message, rs.PENDING_NEXT] = here
    if before < 0:
        run.hosts[host, rs.PENDING] = message
    else:
        messages[before, rs.PENDING_NEXT] = message


@inlined
def release_successors(run: Messages, host: Int, end: Int, time: Int) -> None:
    """Schedule the successors that waited for nothing else than a node that is now complete at one
    of its ends."""
    for i in range(run.next_start[end], run.next_start[end + 1]):
        successor = np.int64(run.next_message[i])
        run.messages[successor, rs.WAITS] -= 1
        if run.messages[successor, rs.WAITS] == 0:
            add_pending(run, host, successor, time + run.messages[successor, rs.RELEASE])


@inlined
def release_first(run: Messages, host: Int) -> None:
    """Release the first pending message of a host, or end its computation."""
    message = run.hosts[host, rs.PENDING]
    run.hosts[host, rs.PENDING] = run.messages[message, rs.PENDING_NEXT]
    if run.messages[message, rs.SIZE] == 0:
        time = run.messages[message, rs.RELEASE]
        run.messages[message, rs.COMPLETED_PS] = time
        run.counts[rs.COMPLETED] += 1
        release_successors(run, host, 2 * message + ON_ACKED, time)
        return
    run.hosts[host, rs.NOW] = max(run.hosts[host, rs.NOW], run.messages[message, rs.RELEASE])
    run.messages[message, rs.READY] = 1
    flow = run.messages[message, rs.FLOW]
    if run.flows[flow, rs.CURSOR] == message and run.flows[flow, rs.IN_RING] == 0:
        join_ring(run, flow)


@inlined
def data_bytes(run: Messages, message: Int, number: Int) -> Int:
    """Wire size of a data packet."""
    messages = run.messages
    if len(run.wire):
        return np.int64(run.wire[messages[message, rs.FIRST_NUMBER] + number])
    if number + 1 == messages[message, rs.SIZE]:
        return messages[message, rs.LAST_BYTES]
    return messages[message, rs.PACKET_BYTES]


@inlined
def waits_for_its_time(run: Messages, host: Int, message: Int, number: Int, time: Int) -> Any:
    """Whether the next packet of a message is due later; if so, the message becomes pending."""
    if len(run.due_ps) == 0:
        return False
    due = run.due_ps[run.messages[message, rs.FIRST_NUMBER] + number]
    if due <= time:
        return False
    run.messages[message, rs.READY] = 0
    add_pending(run, host, message, due)
    return True


@inlined
def pull(
    run: RunState, emit: Emit, state: Ints, host: Int, link: Int, ring: Int, time: Int
) -> None:
    """Send the next packet of the flow at the head of the ring over a free access link."""
    flows, messages = run.flows, run.messages
    flow = run.rings[ring, rs.RING_HEAD]
    message = flows[flow, rs.CURSOR]
    number = messages[message, rs.SENT]
    key = packet_key(message, number)
    if number == 0:
        messages[message, rs.STARTED_PS] = time
    messages[message, rs.SENT] = number + 1
    if len(run.sent_ps):
        run.sent_ps[messages[message, rs.FIRST_NUMBER] + number] = time
    is_last = number + 1 == messages[message, rs.SIZE]
    size = data_bytes(run, message, number)
    following = flows[flow, rs.RING_NEXT]
    run.rings[ring, rs.RING_HEAD] = following
    if following < 0:
        run.rings[ring, rs.RING_TAIL] = -1
    flows[flow, rs.IN_RING] = 0
    if is_last:
        flows[flow, rs.CURSOR] = message + 1
        if message + 1 < flows[flow, rs.END] and messages[message + 1, rs.READY]:
            join_ring(run, flow)
    elif not waits_for_its_time(run, host, message, number + 1, time):
        join_ring(run, flow)
    label = emit(state, run.links, host, link, key, time) & np.int64(0xFFFFFFFF)
    meta = (flows[flow, rs.DST] << np.int64(32)) | label
    slot = new_slot(run, key, meta, size)
    start_service(run, link, slot, size, time)
    add_jitter(run, link, slot, time)


@inlined
def ring_of(run: Messages, host: Int, port: Int, of: Int) -> Int:
    """The ring of flows of a port and class of data."""
    first = host * run.access.shape[1]
    ring = first if run.settings[rs.ANY_PORT] else first + port
    return ring * run.settings[rs.CLASSES] + of


@inlined
def serve_host(run: RunState, emit: Emit, state: Ints, host: Int, limit: Int) -> None:
    """Send the packets that the NIC ports of a host begin before `limit`; release messages."""
    ports = run.access.shape[1]
    links, messages, only = run.links, run.messages, np.int64(0)
    while True:
        start, port = np.int64(NEVER), np.int64(-1)
        for p in range(ports):
            link = np.int64(run.access[host, p])
            if link < 0:
                continue
            if links[link, rs.WAITING_PACKETS] > 0:
                at = links[link, rs.FREE]
            elif run.rings[ring_of(run, host, p, only), rs.RING_HEAD] >= 0:
                at = max(links[link, rs.FREE], run.hosts[host, rs.NOW])
            else:
                continue
            if at < start:
                start, port = at, np.int64(p)
        pending = run.hosts[host, rs.PENDING]
        if pending >= 0 and messages[pending, rs.RELEASE] <= start:
            if messages[pending, rs.RELEASE] >= limit:
                return
            release_first(run, host)
            continue
        if start >= limit:
            return
        link = np.int64(run.access[host, port])
        if links[link, rs.WAITING_PACKETS] > 0:
            slot = take_waiting(run, link, start)
            start_service(run, link, slot, size_of(run.slots, slot), start)
        else:
            pull(run, emit, state, host, link, ring_of(run, host, port, only), start)


@inlined
def receive(
    run: RunState, emit: Emit, state: Ints, host: Int, came_by: Int, slot: Int, time: Int
) -> None:
    """Handle a packet that arrives at a host; the host has been served up to `time`, inclusive."""
    messages = run.messages
    key = run.slots[slot, rs.KEY]
    message = message_of(key)
    if key & np.int64(ACK):
        messages[message, rs.ACKED] += run.slots[slot, rs.NEXT] >> np.int64(48)
        free_slot(run, slot)
        if messages[message, rs.ACKED] == messages[message, rs.SIZE]:
            messages[message, rs.COMPLETED_PS] = time
            run.counts[rs.COMPLETED] += 1
            release_successors(run, host, 2 * message + ON_ACKED, time)
        return
    if run.settings[rs.KEEP_ARRIVALS]:
        at = messages[message, rs.FIRST_NUMBER] + number_of(key)
        if run.arrived_ps[at] < 0:
            run.arrived_ps[at] = time
            run.arrived_flags[at] = np.uint8(key >> np.int64(_FLAG_SHIFT))
    if key & np.int64(TRIMMED):
        free_slot(run, slot)
        return
    messages[message, rs.RECEIVED] += 1
    messages[message, rs.UNACKED] += 1
    complete = messages[message, rs.RECEIVED] == messages[message, rs.SIZE]
    back = np.int64(run.return_link[came_by])
    if back >= 0 and (complete or messages[message, rs.UNACKED] >= run.settings[rs.ACK_EVERY]):
        sender = run.flows[messages[message, rs.FLOW], rs.SRC]
        label = emit(state, run.links, host, back, key | np.int64(ACK), time)
        run.slots[slot, rs.KEY] = key | np.int64(ACK)
        run.slots[slot, rs.META] = (sender << np.int64(32)) | (label & np.int64(0xFFFFFFFF))
        run.slots[slot, rs.NEXT] = (
            (messages[message, rs.UNACKED] << np.int64(48))
            | (run.settings[rs.ACK_BYTES] << np.int64(32))
            | np.int64(rs.NO_SLOT)
        )
        messages[message, rs.UNACKED] = 0
        enqueue(run, back, slot, time)
    else:
        free_slot(run, slot)
    if complete:
        messages[message, rs.RECEIVED_PS] = time
        release_successors(run, host, 2 * message + ON_RECEIVED, time)

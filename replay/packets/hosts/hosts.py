"""Messages of hosts: their release, their turns at the NIC, their packets, their end."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, inlined
from ...traffic.traffic import ON_ACKED
from ..model import run_state as rs
from ..model.run_state import Messages


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
def take_turn(run: Messages, ring: Int) -> Int:
    """Remove and return the first flow of a ring; -1 for an empty ring."""
    flow = run.rings[ring, rs.RING_HEAD]
    if flow >= 0:
        following = run.flows[flow, rs.RING_NEXT]
        run.rings[ring, rs.RING_HEAD] = following
        if following < 0:
            run.rings[ring, rs.RING_TAIL] = -1
        run.flows[flow, rs.IN_RING] = 0
    return flow


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
    """Schedule the successors whose last predecessor was this node, now complete at one of its
    ends."""
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
def _wait_for_its_time(run: Messages, host: Int, message: Int, number: Int, time: Int) -> None:
    """The message becomes pending if its next packet is due later."""
    if len(run.due_ps) == 0:
        return
    due = run.due_ps[run.messages[message, rs.FIRST_NUMBER] + number]
    if due > time:
        run.messages[message, rs.READY] = 0
        add_pending(run, host, message, due)


@inlined
def take_packet(run: Messages, host: Int, message: Int, time: Int) -> Int:
    """The number of the next packet of a message, which now leaves the host for the first time."""
    messages = run.messages
    number = messages[message, rs.SENT]
    if number == 0:
        messages[message, rs.STARTED_PS] = time
    messages[message, rs.SENT] = number + 1
    if len(run.sent_ps):
        run.sent_ps[messages[message, rs.FIRST_NUMBER] + number] = time
    if number + 1 == messages[message, rs.SIZE]:
        run.flows[messages[message, rs.FLOW], rs.CURSOR] = message + 1
    else:
        _wait_for_its_time(run, host, message, number + 1, time)
    return number


@inlined
def acknowledged(run: Messages, message: Int, packets: Int, time: Int) -> Bool:
    """Count packets of a message that the sender knows to have arrived; True for the last ones."""
    run.messages[message, rs.ACKED] += packets
    if run.messages[message, rs.ACKED] != run.messages[message, rs.SIZE]:
        return False
    run.messages[message, rs.COMPLETED_PS] = time
    run.counts[rs.COMPLETED] += 1
    return True


@inlined
def ring_of(run: Messages, host: Int, port: Int, of: Int) -> Int:
    """The ring of flows of a port and class of data."""
    first = host * run.access.shape[1]
    ring = first if run.settings[rs.ANY_PORT] else first + port
    return ring * run.settings[rs.CLASSES] + of

"""Messages of hosts: their release, their turns at the NIC, their packets, their end."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, inlined
from ...traffic.traffic import ON_ACKED
from ..model.run_state import Messages


@inlined
def join_ring(run: Messages, flow: Int) -> None:
    """Append a flow that has packets to send to its ring."""
    ring = run.flows[flow].ring
    run.flows[flow].ring_next = -1
    if run.rings[ring].ring_head < 0:
        run.rings[ring].ring_head = flow
    else:
        run.flows[run.rings[ring].ring_tail].ring_next = flow
    run.rings[ring].ring_tail = flow
    run.flows[flow].in_ring = 1


@inlined
def take_turn(run: Messages, ring: Int) -> Int:
    """Remove and return the first flow of a ring; -1 for an empty ring."""
    flow = run.rings[ring].ring_head
    if flow >= 0:
        following = run.flows[flow].ring_next
        run.rings[ring].ring_head = following
        if following < 0:
            run.rings[ring].ring_tail = -1
        run.flows[flow].in_ring = 0
    return flow


@inlined
def add_pending(run: Messages, host: Int, message: Int, time: Int) -> None:
    """Schedule the release of a message, after messages of the same time."""
    messages = run.messages
    messages[message].release = time
    before, here = np.int64(-1), run.hosts[host].pending
    while here >= 0 and messages[here].release <= time:
        before, here = here, messages[here].pending_next
    messages[message].pending_next = here
    if before < 0:
        run.hosts[host].pending = message
    else:
        messages[before].pending_next = message


@inlined
def release_successors(run: Messages, host: Int, end: Int, time: Int) -> None:
    """Schedule the successors whose last predecessor was this node, now complete at one of its
    ends."""
    for i in range(run.next_start[end], run.next_start[end + 1]):
        successor = np.int64(run.next_message[i])
        run.messages[successor].waits -= 1
        if run.messages[successor].waits == 0:
            add_pending(run, host, successor, time + run.messages[successor].release)


@inlined
def release_first(run: Messages, host: Int) -> None:
    """Release the first pending message of a host, or end its computation."""
    message = run.hosts[host].pending
    run.hosts[host].pending = run.messages[message].pending_next
    if run.messages[message].size == 0:
        time = run.messages[message].release
        run.messages[message].completed_ps = time
        run.counts[0].completed += 1
        release_successors(run, host, 2 * message + ON_ACKED, time)
        return
    run.hosts[host].now = max(run.hosts[host].now, run.messages[message].release)
    run.messages[message].ready = 1
    flow = run.messages[message].flow
    if run.flows[flow].cursor == message and run.flows[flow].in_ring == 0:
        join_ring(run, flow)


@inlined
def data_bytes(run: Messages, message: Int, number: Int) -> Int:
    """Wire size of a data packet."""
    messages = run.messages
    if len(run.wire):
        return np.int64(run.wire[messages[message].first_number + number])
    if number + 1 == messages[message].size:
        return messages[message].last_bytes
    return messages[message].packet_bytes


@inlined
def _wait_for_its_time(run: Messages, host: Int, message: Int, number: Int, time: Int) -> None:
    """The message becomes pending if its next packet is due later."""
    if len(run.due_ps) == 0:
        return
    due = run.due_ps[run.messages[message].first_number + number]
    if due > time:
        run.messages[message].ready = 0
        add_pending(run, host, message, due)


@inlined
def take_packet(run: Messages, host: Int, message: Int, time: Int) -> Int:
    """The number of the next packet of a message, which now leaves the host for the first time."""
    messages = run.messages
    number = messages[message].sent
    if number == 0:
        messages[message].started_ps = time
    messages[message].sent = number + 1
    if len(run.sent_ps):
        run.sent_ps[messages[message].first_number + number] = time
    if number + 1 == messages[message].size:
        run.flows[messages[message].flow].cursor = message + 1
    else:
        _wait_for_its_time(run, host, message, number + 1, time)
    return number


@inlined
def acknowledged(run: Messages, message: Int, packets: Int, time: Int) -> Bool:
    """Count packets of a message that the sender knows to have arrived; True for the last ones."""
    run.messages[message].acked += packets
    if run.messages[message].acked != run.messages[message].size:
        return False
    run.messages[message].completed_ps = time
    run.counts[0].completed += 1
    return True


@inlined
def ring_of(run: Messages, host: Int, port: Int, of: Int) -> Int:
    """The ring of flows of a port and class of data."""
    first = host * run.access.shape[1]
    ring = first if run.settings[0].any_port else first + port
    return ring * run.settings[0].classes + of

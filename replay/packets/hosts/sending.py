"""Sending hosts: turns of flows, windows and pacing, entropy values, retransmissions first.

For hosts of the open-loop driver `feedback` is None, and numba prunes the branches that need it
(windows, pauses, classes, the calendar).
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, Ints, inlined, subkernel
from ...traffic.traffic import ON_ACKED
from ..model.labels import OUTSTANDING, EvState, Select
from ..model.model import AGAIN, NEVER, packet_key, service_ps
from ..model.records import Records
from ..model.rules import Emit
from ..model.state import Messages, Network
from ..model.wheel import schedule
from ..pauses import can_start, charge, is_paused, new_slot, next_class, size_of
from ..queues import add_jitter, start_service, take_waiting
from . import feedback as fb
from . import transport as rec
from .congestion import MSS, WINDOW, OnSend
from .feedback import Feedback, drawn_key
from .transport import now_under_way, timeout_ps

_LABEL = np.int64(0xFFFFFFFF)


@inlined
def unblock(nics: Records, hosts: Records, host: Int, time: Int) -> None:
    """Let the ports of a host send again from now on."""
    nics[host].blocked = 0
    hosts[host].now = max(hosts[host].now, time)


@inlined
def _has_more(desk: Messages, feedback: Feedback | None, flow: Int) -> Bool:
    """Whether the flow has a packet to send, window aside."""
    if feedback is not None:
        if feedback.senders[flow].again.head >= 0:
            return True
    message = desk.flows[flow].cursor
    return message < desk.flows[flow].end and desk.messages[message].ready != 0


@inlined
def _window_full(feedback: Feedback, flow: Int) -> Bool:
    """Whether one more packet would exceed the window of a flow; it always permits one."""
    way = feedback.senders[flow].way_packets
    return (
        way > 0
        and np.float64(way + 1) * feedback.window_params[MSS] > feedback.window[flow, WINDOW]
    )


@inlined
def _ack_expected(feedback: Feedback, flow: Int) -> Bool:
    """Whether an ACK will come: for each packet, or because a packet in flight requests one.

    If all packets in flight have arrived and the window shrinks below the packets per ACK, the
    sender would wait forever: it sends one more packet, which requests an ACK.
    """
    if feedback.control[0].several == 0:
        return True
    asking = feedback.senders[flow].asking
    return asking >= 0 and feedback.packets[asking].state == rec.UNDER_WAY


@inlined
def _next_flow(
    desk: Messages,
    feedback: Feedback,
    evs: EvState,
    select: Select,
    ring: Int,
    port: Int,
    free: Int,
    start: Int,
) -> tuple[Int, Int, Int, Int]:
    """(flow, EV, port, NEVER) of the next packet of a ring; if no flow can send, flow -1 and in
    place of NEVER the time until which pacing delays a flow.

    A flow passes its turn if its window, pace or EVs do not permit a packet. The returned flow is
    no longer in the ring.
    """
    control, senders, none = feedback.control, feedback.senders, np.int64(NEVER)
    begun: Int
    begun, later = np.int64(-1), np.int64(NEVER)
    while True:
        flow = take_turn(desk, ring)
        if flow < 0 or flow == begun:
            break
        if not _has_more(desk, feedback, flow):
            continue
        if begun < 0:
            begun = flow
        may = senders[flow].next_ps <= start
        if not may:
            later = min(later, senders[flow].next_ps)
        elif control[0].controlled and _window_full(feedback, flow):
            may = not _ack_expected(feedback, flow)
        if may and control[0].mpr and senders[flow].again.head < 0:
            cursor = desk.flows[flow].cursor
            following = desk.messages[cursor].first_number + desk.messages[cursor].sent
            may = following - senders[flow].unacknowledged < control[0].mpr
        if may:
            if not control[0].selects:
                return flow, np.int64(0), port, none
            evs.rows[flow, OUTSTANDING] = senders[flow].way_packets
            ev = select(evs, flow, free, start)
            if ev >= 0:
                by = ev % desk.access.shape[1]
                return flow, ev, by if free >> by & 1 else port, none
        join_ring(desk, flow)
    if flow >= 0:  # all flows had their turn
        join_ring(desk, flow)
    return np.int64(-1), np.int64(0), np.int64(-1), later


@inlined
def _hold_up(
    desk: Messages, feedback: Feedback, host: Int, free: Int, later: Int, limit: Int
) -> None:
    """Pacing alone delays a flow until `later`: if this is before `limit` the free ports wait until
    then, else the host is served again then."""
    if later < limit:  # nothing has changed at this host since then: it is served late
        pending = desk.hosts[host].pending
        if pending >= 0:
            later = min(later, desk.messages[pending].release)
        for p in range(desk.access.shape[1]):
            if free >> p & 1:
                feedback.wires[desk.access[host, p]].paced = later
    elif later != NEVER:
        schedule(
            feedback.wheel,
            feedback.control[0].host_items + host,
            max(later, feedback.control[0].now_ps),
        )


@subkernel
def _open_rings(net: Network, desk: Messages, host: Int, port: Int, time: Int) -> Int:
    """Mask of the classes that have flows in the rings of a port and are not paused there."""
    link, mask = np.int64(desk.access[host, port]), np.int64(0)
    for of in range(net.settings[0].classes):
        traffic_class = np.int64(of)
        if desk.rings[ring_of(desk, host, port, traffic_class)].ring_head >= 0:
            if not is_paused(net, link, traffic_class, time):
                mask |= np.int64(1) << traffic_class
    return mask


@inlined
def _all_open(net: Network, link: Int, time: Int) -> Bool:
    """Whether no class is paused at a link."""
    for of in range(net.settings[0].classes):
        if is_paused(net, link, np.int64(of), time):
            return False
    return True


@inlined
def _queue_may_start(net: Network, feedback: Feedback | None, link: Int, time: Int) -> Bool:
    """Whether a packet that waits at a port may start: ACKs, and probes of a class that is not
    paused."""
    if net.links[link].waiting_packets == 0:
        return False
    return feedback is None or can_start(net, link, time)


@inlined
def _may_pull(net: Network, desk: Messages, host: Int, port: Int, time: Int) -> Bool:
    """Whether a flow of a port may send, its window and pace aside."""
    if net.settings[0].classes > 1:
        return _open_rings(net, desk, host, port, time) != 0
    link, only = np.int64(desk.access[host, port]), np.int64(0)
    return desk.rings[ring_of(desk, host, port, only)].ring_head >= 0 and not is_paused(
        net, link, only, time
    )


@inlined
def _choose(
    net: Network,
    desk: Messages,
    feedback: Feedback,
    evs: EvState,
    select: Select,
    host: Int,
    port: Int,
    free: Int,
    start: Int,
    limit: Int,
) -> tuple[Int, Int, Int, Int]:
    """(flow, EV, port, class) of the next packet of a free port; flow -1 if no flow can send."""
    of: Int
    may: Int
    later: Int
    of, may, later = np.int64(0), np.int64(0), np.int64(NEVER)
    link = np.int64(desk.access[host, port])
    several = net.settings[0].classes > 1
    if several:
        may = _open_rings(net, desk, host, port, start)
        of = next_class(net, link, may, np.int64(1))
    while True:
        ring = ring_of(desk, host, port, of)
        flow, ev, by, until = _next_flow(desk, feedback, evs, select, ring, port, free, start)
        later = min(later, until)
        if flow >= 0 or not several:
            break
        charge(net, link, of, np.int64(0), np.int64(1))  # it has nothing to send: it saves nothing
        may &= ~(np.int64(1) << of)
        of = next_class(net, link, may, np.int64(1))
        if of < 0:
            break
    if flow < 0:
        _hold_up(desk, feedback, host, free, later, limit)
    return flow, ev, by, of


@inlined
def _take_again(desk: Messages, feedback: Feedback, flow: Int) -> tuple[Int, Int]:
    """(message, number) of the first packet to retransmit; message -1 if there is none."""
    packet = feedback.senders[flow].again.head
    if packet < 0:
        return np.int64(-1), np.int64(0)
    message = feedback.packets[packet].message
    feedback.tally[0].sent_again += 1
    return message, packet - desk.messages[message].first_number


@inlined
def _asks(feedback: Feedback, flow: Int, packet: Int, retransmitted: Bool) -> Bool:
    """Whether a packet requests an ACK, where an ACK is for several; if so, note it."""
    asks = retransmitted or (feedback.control[0].controlled != 0 and _window_full(feedback, flow))
    if feedback.control[0].mpr:
        beyond = packet + 1 - feedback.senders[flow].unacknowledged
        asks = asks or beyond >= feedback.control[0].mpr
    if asks:
        feedback.senders[flow].asking = packet
    return asks


@inlined
def _pace(
    net: Network,
    desk: Messages,
    feedback: Feedback,
    on_send: OnSend,
    flow: Int,
    by: Int,
    size: Int,
    retransmitted: Bool,
    start: Int,
) -> None:
    """Update the calendar, the pace of port and flow, and the timer after a packet."""
    control, senders, links = feedback.control, feedback.senders, net.links
    link = np.int64(desk.access[desk.flows[flow].src, by])
    schedule(feedback.wheel, 1 + link, links[link].head_time)
    feedback.ports[flow, by] += size
    feedback.tally[0].data_sent += 1
    if control[0].pace != 1 << 20:
        service = service_ps(size, links[link].rate)
        feedback.wires[link].paced = start + ((service * control[0].pace) >> np.int64(20))
    if control[0].paced_flows:
        wait = on_send(feedback.window, feedback.window_params, flow, size, start)
        senders[flow].next_ps = start + wait
    # Without losses only go-back-N needs the timer: it takes reordering for loss, and its receiver
    # sends one NAK per gap, even if the retransmitted packets are reordered too.
    retransmitted = retransmitted and control[0].recovery == rec.GO_BACK_N
    if (control[0].can_lose or retransmitted) and control[0].recovery >= rec.SACK:
        patience = timeout_ps(senders, flow, control[0].rto, control[0].linear)
        due = max(control[0].now_ps, start + patience)
        schedule(feedback.wheel, control[0].timers + flow, due)


@inlined
def _pull(
    net: Network,
    desk: Messages,
    feedback: Feedback | None,
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
    ev: Int
    message: Int
    of, ev, message, by = np.int64(0), np.int64(0), np.int64(-1), port
    if feedback is None:
        flow = take_turn(desk, ring_of(desk, host, port, of))
    else:
        flow, ev, by, of = _choose(
            net, desk, feedback, evs, select, host, port, free, start, limit
        )  # fmt: skip
        if flow < 0:
            return np.int64(-1)
        message, number = _take_again(desk, feedback, flow)
    retransmitted = message >= 0
    if not retransmitted:
        message = desk.flows[flow].cursor
        number = take_packet(desk, host, message, start)
    size = data_bytes(desk, message, number)
    key = packet_key(message, number)
    if retransmitted:
        key |= np.int64(AGAIN)
    link = np.int64(desk.access[host, by])
    label = ev
    if feedback is None:
        label = emit(state, net.links, host, link, key, start)
    else:
        if not feedback.control[0].selects:
            label = emit(state, net.links, host, link, drawn_key(key, start), start)
        if feedback.control[0].tracks:
            packet = desk.messages[message].first_number + number
            feedback.packets[packet].message = message
            now_under_way(feedback.senders, feedback.packets, flow, packet, ev, start)
            if feedback.control[0].several and _asks(feedback, flow, packet, retransmitted):
                key |= np.int64(fb.ASKS)
        else:
            feedback.senders[flow].way_packets += 1
    if _has_more(desk, feedback, flow):
        join_ring(desk, flow)
    slot = new_slot(net, key, (desk.flows[flow].dst << np.int64(32)) | (label & _LABEL), size)
    if feedback is not None:
        if net.settings[0].classes > 1:
            ring = ring_of(desk, host, port, of)
            charge(net, link, of, size, np.int64(desk.rings[ring].ring_head < 0))
        feedback.slots[slot].stamp = start
        feedback.slots[slot].echo = ev
        feedback.slots[slot].trail = 0
    start_service(net, link, slot, size, start)
    add_jitter(net, link, slot, start)
    if feedback is not None:
        _pace(net, desk, feedback, on_send, flow, by, size, retransmitted, start)
    return by


@inlined
def serve_nic(
    net: Network,
    desk: Messages,
    feedback: Feedback | None,
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
    links, messages, only = net.links, desk.messages, np.int64(0)
    while True:
        start, port = np.int64(NEVER), np.int64(-1)
        for p in range(ports):
            link = np.int64(desk.access[host, p])
            if link < 0:
                continue
            at = links[link].free
            if not _queue_may_start(net, feedback, link, at):
                at = max(at, desk.hosts[host].now)
                if feedback is None:
                    if desk.rings[ring_of(desk, host, p, only)].ring_head < 0:
                        continue
                else:
                    if (feedback.nics[host].blocked | ~feedback.nics[host].up) >> p & 1:
                        continue
                    at = max(at, feedback.wires[link].paced)
                    if not _may_pull(net, desk, host, np.int64(p), at):
                        continue
            if at < start:
                start, port = at, np.int64(p)
        pending = desk.hosts[host].pending
        if pending >= 0 and messages[pending].release <= start:
            if messages[pending].release >= limit:
                if feedback is not None:
                    item = feedback.control[0].host_items + host
                    schedule(feedback.wheel, item, messages[pending].release)
                return
            release_first(desk, host)
            if feedback is not None:
                feedback.nics[host].blocked = 0
            continue
        if start >= limit:
            if feedback is not None:
                if start != NEVER and links[desk.access[host, port]].head_time == NEVER:
                    schedule(feedback.wheel, feedback.control[0].host_items + host, start)
            return
        link = np.int64(desk.access[host, port])
        if _queue_may_start(net, feedback, link, start):
            slot = take_waiting(net, link, start)
            start_service(net, link, slot, size_of(net.slots, slot), start)
            if feedback is not None:
                schedule(feedback.wheel, 1 + link, links[link].head_time)
            continue
        free = np.int64(1) << port
        if feedback is not None:
            if desk.settings[0].any_port:
                free |= _free_ports(net, desk, feedback, host, start)
        by = _pull(
            net, desk, feedback, evs, emit, state, select, on_send, host, port, free, start, limit
        )
        if feedback is not None:
            if by < 0:
                if feedback.wires[link].paced <= start:
                    feedback.nics[host].blocked |= free
            elif desk.settings[0].any_port:  # a packet of one port may enable another port
                unblock(feedback.nics, desk.hosts, host, start)


@inlined
def _free_ports(net: Network, desk: Messages, feedback: Feedback, host: Int, start: Int) -> Int:
    """Mask of the ports that can begin a packet at `start`."""
    free = np.int64(0)
    for p in range(desk.access.shape[1]):
        link = np.int64(desk.access[host, p])
        if link < 0 or max(net.links[link].free, feedback.wires[link].paced) > start:
            continue
        if not _all_open(net, link, start):
            continue
        if net.links[link].waiting_packets == 0 and feedback.nics[host].up >> p & 1:
            free |= np.int64(1) << p
    return free


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
    before, following = np.int64(-1), run.hosts[host].pending
    while following >= 0 and messages[following].release <= time:
        before, following = following, messages[following].pending_next
    messages[message].pending_next = following
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

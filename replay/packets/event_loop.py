"""The event-driven driver: one event per packet and link, from a calendar of links.

Links are first in, first out and are served lazily, so each link has at most one event: the arrival
of the first packet on its wire. A link is served up to the current time when its state is needed,
in place of events for departures. Timers of hosts and changes of links are items of the same
calendar. Model, queues and rules are those of the open-loop driver (model/model.py, links/).
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, Int32s, Ints, inlined, prefetch_item, subkernel
from ..traffic.traffic import ON_RECEIVED
from .failures import LINK_DOWN, LINK_LOSS, LINK_RATE, LINK_UP, PEER_PORTS, ROUTES
from .hosts import feedback as fb
from .hosts.congestion import on_ack_at, on_cnp_at, on_loss_at, on_send_at
from .hosts.feedback import Feedback, drawn_key
from .hosts.reacting import on_timer, receive_ack, receive_data
from .hosts.sending import release_successors, ring_of, serve_nic, unblock
from .hosts.transport import IDEAL
from .model import pause_state as ps
from .model import state as rs
from .model.arrays import ATTACHED
from .model.draws import FAILURE, draw
from .model.labels import EvState, feedback_at, select_at, wake_at
from .model.model import ACK, NEVER, TRIMMED, message_of, number_of
from .model.records import Records
from .model.rules import Choose, choose_at, emit_at
from .model.state import Desk, Net, RunState
from .model.wheel import AT, COUNT, ITEM_MASK, MANY, Wheel, next_event, schedule
from .pauses import admit, is_paused, leave, next_due, note_use, obey, pause_due
from .queues import enqueue, serve, take_arrival, way_on
from .slots import class_of, free_slot, link_next, new_slot, next_of, row_of, size_of

DONE, MORE, GROW = range(3)
"""No event is left or the goal is reached; stopped at a limit; slots may not suffice."""


@subkernel
def run_events(
    run: RunState,
    own: Feedback,
    evs: EvState,
    of_rules: tuple[Int, Int],
    state: Ints,
    of_hosts: tuple[Int, Int, Int],
    of_congestion: tuple[Int, Int, Int, Int],
    goal: Int,
    until_ps: Int,
    most_hops: Int,
) -> Int:
    """Handle events until `goal` messages are complete. Returns DONE, MORE or GROW.

    of_rules, of_hosts, of_congestion: addresses of the functions, in the order of the lines below.
    """
    choose, emit = choose_at(of_rules[0]), emit_at(of_rules[1])
    select, feedback, wake = select_at(of_hosts[0]), feedback_at(of_hosts[1]), wake_at(of_hosts[2])
    on_ack, on_cnp = on_ack_at(of_congestion[0]), on_cnp_at(of_congestion[1])
    on_loss, on_send = on_loss_at(of_congestion[2]), on_send_at(of_congestion[3])
    net = Net(
        run.links, run.stats, run.slots, run.counts, run.settings, run.histogram, run.loads,
        run.pauses, run.classes,
    )  # fmt: skip
    desk = Desk(
        run.hosts, run.rings, run.flows, run.messages, run.settings, run.access, run.sent_ps,
        run.due_ps, run.wire, run.next_start, run.next_message, run.counts,
    )  # fmt: skip
    counts, links, slots, stats = run.counts, run.links, run.slots, run.stats
    control, wheel, wires = own.control, own.wheel, own.wires
    timers, host_items = control[0].timers, control[0].host_items
    switches = own.routes.shape[1]
    pfc = run.settings[0].pfc != 0
    stop_hops = counts[0].hops + most_hops
    ahead = len(wheel.items) > MANY
    for host in range(run.access.shape[0]):
        if run.hosts[host].pending >= 0:
            due = max(run.messages[run.hosts[host].pending].release, counts[0].clock)
            schedule(wheel, host_items + host, due)
    if control[0].next_change < len(own.changes):
        schedule(wheel, np.int64(0), own.changes[control[0].next_change, 0])
    while counts[0].completed < goal:
        if counts[0].free_slots < control[0].margin:
            return GROW
        if counts[0].hops >= stop_hops:
            return MORE
        item, time = next_event(wheel)
        if item < 0:
            return DONE
        if time > until_ps:
            schedule(wheel, item, time)
            return MORE
        counts[0].clock = time
        control[0].now_ps = time
        if ahead:
            _fetch_next(run, own, switches)

        # The event: a change, a packet that arrives over a link, or the timer of a flow.
        # `nic` is the host of the event.
        link: Int = np.int64(-1)
        slot: Int = np.int64(-1)
        node: Int = np.int64(-1)
        flow: Int = np.int64(-1)
        again: Bool
        framed: Bool
        again = framed = False
        if item == 0:
            nic: Int = _owner_of_change(own)
        elif item >= host_items:
            nic = item - host_items
            again = own.nics[nic].blocked != 0
        elif item >= timers:
            flow = item - timers
            nic = run.flows[flow].src
        else:
            link = item - 1
            nic = wires[link].owner
            framed = pfc and pause_due(net, link) <= time
            if not framed and links[link].head_time == time:
                node = wires[link].target
                slot = take_arrival(links, slots, link)
                if node >= switches:
                    nic = node - switches
            if not framed and wires[link].owner < 0 and links[link].waiting_packets > 0:
                serve(net, link, time + 1)
        if nic >= 0:
            limit = time if item == 0 or framed else time + 1  # changes and pauses come first
            serve_nic(net, desk, own, evs, emit, state, select, on_send, nic, limit)
        if framed:
            if nic >= 0:
                _hold_rings(net, desk, link, nic)
            obey(net, run.messages, link, time)
            if nic >= 0 and run.settings[0].classes > 1:  # another class may have been blocked
                unblock(own.nics, run.hosts, nic, time)
            schedule(wheel, item, time)  # the same event, without the frame
            continue
        if again:  # retry after the earlier packets were sent
            unblock(own.nics, run.hosts, nic, time)
            schedule(wheel, item, time)
        if link >= 0:
            _schedule_link(net, wheel, link, time)

        # The packet to forward, and the link for it.
        finished: Int
        out: Int = np.int64(-1)
        finished = np.int64(0)
        if item == 0:
            _change(net, own, run.flows, run.messages, run.access, time)
        elif flow >= 0:
            slot = on_timer(net, desk, own, evs, feedback, wake, on_loss, flow, time)
            if slot >= 0:
                out = np.int64(run.access[nic, own.slots[slot].echo % run.access.shape[1]])
        elif slot >= 0:
            seed = run.settings[0].seed
            if own.slots[slot].trail & 1 or _fails(own, slots, seed, link, slot, time):
                own.tally[0].lost_on_links += 1
            elif node < switches:
                own.slots[slot].trail += 2
                out = _way_on(run, own, choose, state, node, slot, time)
                if out < 0:
                    counts[0].no_route += 1
            elif slots[slot].key & np.int64(ACK):
                key, count = slots[slot].key, slots[slot].next >> np.int64(48)
                finished = receive_ack(
                    desk, own, evs, feedback, on_ack, on_cnp, on_loss, own.ends, key, count, slot,
                    time,
                )  # fmt: skip
                free_slot(net, slot)
                slot = np.int64(-1)
            else:
                back = np.int64(run.return_link[link])
                answered, complete, notice = receive_data(
                    net, desk, own, run.arrived_ps, run.arrived_flags, emit, state, nic, back, slot,
                    time,
                )  # fmt: skip
                if notice >= 0:
                    _send_notice(net, own, back, notice, time)
                if complete >= 0:
                    own.ends[0] = 2 * complete + ON_RECEIVED
                    finished = np.int64(1)
                if answered:
                    out = back
                else:
                    free_slot(net, slot)
                    slot = np.int64(-1)
        if finished:
            for i in range(finished):
                release_successors(run, nic, own.ends[i], time)
            pending = run.hosts[nic].pending
            if pending >= 0:
                schedule(wheel, host_items + nic, max(time, run.messages[pending].release))
        if slot < 0 or item == 0:
            continue
        if out >= 0 and wires[out].down == 0:
            serve(net, out, time + 1)
            room: Bool = True
            if pfc:
                room = _counted(net, own, run, link, out, slot, time)
            if room:
                slot = enqueue(net, out, slot, time)
            else:
                free_slot(net, slot)
                stats[out].drops += 1
            _schedule_link(net, wheel, out, time)
            if slot < 0:
                continue
        else:
            free_slot(net, slot)
            if out >= 0:
                stats[out].drops += 1
        _lost(net, own, run.messages, slot, time)
    return DONE


@inlined
def _schedule_link(net: Net, wheel: Wheel, link: Int, time: Int) -> None:
    """Make the next event of a link due: an arrival, or where its wire is empty and packets wait
    (gaps, cut-through), the end of what occupies it."""
    due: Int
    if net.settings[0].pfc:
        due = next_due(net, link, time)
    else:
        due = net.links[link].head_time
        if due == NEVER and net.links[link].waiting_packets > 0:
            due = max(time, net.links[link].free)
    if due != NEVER:
        schedule(wheel, 1 + link, due)


@subkernel
def _hold_rings(net: Net, desk: Desk, link: Int, host: Int) -> None:
    """Note the flows that wait at a paused port of a host."""
    held = net.pauses.held
    if len(held) == 1:
        return
    for port in range(desk.access.shape[1]):
        if desk.access[host, port] != link:
            continue
        for of in range(net.settings[0].classes):
            if net.pauses.rows[row_of(net, link, np.int64(of))].paused == 0:
                continue
            flow = desk.rings[ring_of(desk, host, np.int64(port), np.int64(of))].ring_head
            while flow >= 0:
                held[link, flow] |= np.uint8(ps.HELD)
                flow = desk.flows[flow].ring_next


@inlined
def _counted(
    net: Net, own: Feedback, run: RunState, came_by: Int, out: Int, slot: Int, time: Int
) -> Bool:
    """Count a packet that is about to wait in the buffer of its switch; False without room."""
    net.slots[slot].time = -1
    if own.wires[out].owner >= 0 or net.slots[slot].key & np.int64(ACK | TRIMMED):
        return True
    note_use(net, run.messages, out, slot)
    of = class_of(net, net.slots[slot].key)
    if net.links[out].free <= time and not is_paused(net, out, of, time):
        return True  # its transmission begins at once
    return admit(net, run.out_start, run.out_links, came_by, out, slot, time)


@inlined
def _fetch_next(run: RunState, own: Feedback, switches: Int) -> None:
    """Prefetch the data of the next events: MANY links and packets exceed the caches.

    First the link, then the packet on it, then its next link or its state at the sender.
    """
    book, links, slots = own.wheel.book, run.links, run.slots
    pfc, classes = run.settings[0].pfc != 0, run.settings[0].classes
    at, left = book[AT], book[COUNT] - book[AT]
    if left > 7:
        link = (book[at + 7] & np.int64(ITEM_MASK)) - 1
        prefetch_item(links, link)
        prefetch_item(links.head_time, link)
        prefetch_item(own.wires, link)
        if pfc:
            prefetch_item(run.pauses.rows, link * classes)
    if left > 4:
        link = (book[at + 4] & np.int64(ITEM_MASK)) - 1
        if 0 <= link < len(links) and links[link].head_time != NEVER:
            prefetch_item(slots, links[link].wire_head)
    if left > 1:
        link = (book[at + 1] & np.int64(ITEM_MASK)) - 1
        if 0 <= link < len(links) and links[link].head_time != NEVER:
            slot = links[link].wire_head
            host = slots[slot].meta >> np.int64(32)
            node, edge = own.wires[link].target, np.int64(run.host_edge[host])
            if node >= switches:
                if own.control[0].tracks:
                    key = slots[slot].key
                    first = run.messages[message_of(key)].first_number
                    prefetch_item(own.packets, first + number_of(key))
            elif edge >= 0:
                group = np.int64(own.routes[own.control[0].epoch, node, edge])
                out = np.int64(0)
                if group >= 0:
                    out = np.int64(run.members[run.group_start[group]])
                elif group == ATTACHED:
                    out = np.int64(run.exits[host, 0])
                prefetch_item(links, out)
                prefetch_item(links.head_time, out)
                prefetch_item(run.stats, out)
                prefetch_item(own.wires, out)
                if pfc:
                    prefetch_item(run.pauses.rows, out * classes)


@subkernel
def _send_notice(net: Net, own: Feedback, link: Int, slot: Int, time: Int) -> None:
    """Queue a CNP at a NIC; it is lost if the link is down or the queue full."""
    if own.wires[link].down:
        free_slot(net, slot)
        net.stats[link].drops += 1
        return
    serve(net, link, time + 1)
    enqueue(net, link, slot, time)
    _schedule_link(net, own.wheel, link, time)


@inlined
def _fails(own: Feedback, slots: Records, seed: Int, link: Int, slot: Int, time: Int) -> Bool:
    """Whether a lossy link loses this packet."""
    chance = own.wires[link].loss
    if chance == 0:
        return False
    random = draw(seed, FAILURE, slots[slot].key, (time << np.int64(16)) ^ link)
    return np.int64(random >> np.uint64(32)) < chance


@subkernel
def _lost(net: Net, own: Feedback, messages: Records, slot: Int, time: Int) -> None:
    """Count a lost packet, whose slot is already free but unchanged. With the ideal code the sender
    learns of it at once, by the timer of the flow, so that its NIC is served first."""
    key = net.slots[slot].key
    if key & np.int64(fb.PROBE | fb.CNP):
        return
    if not key & np.int64(ACK):
        own.tally[0].data_lost += 1
        own.tally[0].last_loss_ps = time
    if own.control[0].recovery == IDEAL:  # a lost ACK also causes a retransmission
        flow = messages[message_of(key)].flow
        kept = new_slot(net, key, np.int64(0), np.int64(0))  # the same slot
        head = own.senders[flow].loss_head
        net.slots[kept].next = np.int64(rs.NO_SLOT)
        if head >= 0:
            link_next(net.slots, kept, head)
        own.senders[flow].loss_head = kept
        schedule(own.wheel, own.control[0].timers + flow, time)


@inlined
def _way_on(
    run: RunState, own: Feedback, choose: Choose, state: Ints, switch: Int, slot: Int, time: Int
) -> Int:
    """`way_on` in the current routing state."""
    meta = run.slots[slot].meta
    edge = np.int64(run.host_edge[meta >> np.int64(32)])
    group = np.int64(own.routes[own.control[0].epoch, switch, edge]) if edge >= 0 else np.int64(-1)
    if group >= 0 and run.settings[0].reads_queues:
        first, end = run.group_start[group], run.group_start[group + 1]
        if end - first > 1 or run.settings[0].sees_all:
            net = Net(
                run.links, run.stats, run.slots, run.counts, run.settings, run.histogram, run.loads,
                run.pauses, run.classes,
            )  # fmt: skip
            for i in range(first, end):
                other = np.int64(run.members[i])
                if run.links[other].waiting_packets > 0 and run.links[other].free <= time:
                    _bring_up(net, own.wheel, other, time)
    key = drawn_key(run.slots[slot].key, own.slots[slot].stamp)
    return way_on(run, choose, state, group, switch, edge, meta, key, time)


@subkernel
def _bring_up(net: Net, wheel: Wheel, link: Int, time: Int) -> None:
    """Serve a link up to a time, inclusive."""
    serve(net, link, time + 1)
    if net.links[link].head_time != NEVER:
        schedule(wheel, 1 + link, net.links[link].head_time)


@inlined
def _owner_of_change(own: Feedback) -> Int:
    """The host whose NIC the next change affects, -1 for none."""
    at = own.control[0].next_change
    if own.changes[at, 1] >= ROUTES:
        return np.int64(-1)
    return own.wires[own.changes[at, 2]].owner


@subkernel
def _change(
    net: Net, own: Feedback, flows: Records, messages: Records, access: Int32s, time: Int
) -> None:
    """Apply the next change of a link or of routing."""
    control, changes = own.control, own.changes
    at = control[0].next_change
    what, which, value = changes[at, 1], changes[at, 2], changes[at, 3]
    control[0].next_change = at + 1
    if at + 1 < len(changes):
        schedule(own.wheel, np.int64(0), changes[at + 1, 0])
    if what == ROUTES:
        control[0].epoch = which
        return
    if what == PEER_PORTS:
        for flow in range(len(flows)):
            if flows[flow].dst == which:
                own.senders[flow].peer_mask = value
                own.senders[flow].new_ports = 1
                schedule(own.wheel, control[0].timers + flow, time)
        return
    host = own.wires[which].owner
    if host < 0:
        _bring_up(net, own.wheel, which, time - 1)
    if what == LINK_RATE:
        net.links[which].rate = value
    elif what == LINK_LOSS:
        own.wires[which].loss = value
    elif what == LINK_DOWN or what == LINK_UP:
        down = what == LINK_DOWN
        own.wires[which].down = 1 if down else 0
        if host >= 0:
            for port in range(access.shape[1]):
                if access[host, port] == which:
                    bit = np.int64(1) << port
                    own.nics[host].up = own.nics[host].up & ~bit | (0 if down else bit)
            for flow in range(len(flows)):
                if flows[flow].src == host:
                    own.senders[flow].new_ports = 1
                    schedule(own.wheel, control[0].timers + flow, time)
        if down:
            _cut(net, own, messages, which, time)


@inlined
def _cut(net: Net, own: Feedback, messages: Records, link: Int, time: Int) -> None:
    """Packets that wait and the packet in service are lost; packets on the wire still arrive."""
    links = net.links
    if links[link].free > time and links[link].head_time != NEVER:
        own.slots[links[link].wire_tail].trail |= 1
    data, acks = links[link].data_head, links[link].ack_head
    links[link].data_head = links[link].ack_head = -1
    _drop_all(net, own, messages, link, data, True, time)
    _drop_all(net, own, messages, link, acks, False, time)
    if net.settings[0].classes > 1:
        for of in range(net.settings[0].classes):
            row = row_of(net, link, np.int64(of))
            slot = net.classes.queues[row].head
            net.classes.queues[row].head = -1
            net.classes.queues[row].bytes = net.classes.queues[row].deficit = 0
            _drop_all(net, own, messages, link, slot, True, time)
    links[link].data_tail = -1
    links[link].ack_tail = -1
    links[link].waiting_data = 0
    links[link].waiting_acks = 0
    links[link].waiting_packets = 0


@subkernel
def _drop_all(
    net: Net, own: Feedback, messages: Records, link: Int, slot: Int, data: Bool, time: Int
) -> None:
    """Drop the packets of a queue, from its first one on."""
    while slot >= 0:
        following = next_of(net.slots, slot)
        net.stats[link].drops += 1
        if net.settings[0].pfc and data:
            leave(net, slot, size_of(net.slots, slot), time)
        free_slot(net, slot)
        _lost(net, own, messages, slot, time)
        slot = following

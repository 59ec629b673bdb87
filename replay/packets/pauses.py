"""Packets that wait: slots, lists of slots, queues of classes; and PFC, which pauses them.

Lists are threaded through the slots of packets in flight. Where a link has several classes of data,
the class that sends next is chosen here.

State and rules: `model/pause_state.py`.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, Int32s, Ints, inlined, subkernel
from .model import pause_state as ps
from .model import state as rs
from .model.model import NEVER, message_of, service_ps
from .model.pause_state import Pauses
from .model.queueing import PAUSE_BYTES, QUANTUM_BITS, PauseOutcome
from .model.records import Records
from .model.state import Net, Network, RunState
from .model.wheel import schedule

NEXT_MASK = 0xFFFFFFFF
SIZE_MASK = 0xFFFF


@inlined
def next_of(slots: Records, slot: Int) -> Int:
    """The next slot in the list, -1 after the last."""
    following = slots[slot].next & np.int64(NEXT_MASK)
    return np.int64(-1) if following == np.int64(rs.NO_SLOT) else following


@inlined
def size_of(slots: Records, slot: Int) -> Int:
    """Bytes of a packet."""
    return (slots[slot].next >> np.int64(32)) & np.int64(SIZE_MASK)


@inlined
def link_next(slots: Records, slot: Int, following: Int) -> None:
    """Set the next slot in the list."""
    slots[slot].next = (slots[slot].next & ~np.int64(NEXT_MASK)) | following


@inlined
def free_slot(run: Network, slot: Int) -> None:
    """Free the slot of a packet that has left the network."""
    run.slots[slot].next = run.counts[0].free_slot
    run.counts[0].free_slot = slot
    run.counts[0].free_slots += 1
    run.counts[0].in_flight -= 1


@inlined
def new_slot(run: Network, key: Int, meta: Int, size: Int) -> Int:
    """A slot for a packet that enters the network; the driver ensures that a slot is free."""
    counts = run.counts
    slot = counts[0].free_slot
    counts[0].free_slot = run.slots[slot].next & np.int64(NEXT_MASK)
    counts[0].free_slots -= 1
    counts[0].in_flight += 1
    run.slots[slot].key = key
    run.slots[slot].meta = meta
    run.slots[slot].next = (size << np.int64(32)) | np.int64(rs.NO_SLOT)
    return slot


@inlined
def class_of(run: Network, key: Int) -> Int:
    """Class of a data packet, 0 if there is only one."""
    if run.settings[0].classes == 1:
        return np.int64(0)
    return np.int64(run.classes.of_message[message_of(key)])


@inlined
def row_of(run: Network, link: Int, of: Int) -> Int:
    """The row of a class at a link, in `queues` and in the rows of pauses."""
    return link * run.settings[0].classes + of


@inlined
def is_held(run: Network, row: Int, time: Int) -> bool:
    """Whether data of a class must not start at a time: it is paused, or its sender has yet to
    obey a frame of this time."""
    rows = run.pauses.rows
    return rows[row].paused != 0 or rows[row].frame_time <= time


@subkernel
def open_classes(run: Network, link: Int, time: Int) -> Int:
    """Mask of the classes of which packets wait at a link and that are not paused."""
    mask = np.int64(0)
    for of in range(run.settings[0].classes):
        row = row_of(run, link, np.int64(of))
        if run.classes.queues[row].head >= 0:
            if run.settings[0].pfc == 0 or not is_held(run, row, time):
                mask |= np.int64(1) << of
    return mask


@subkernel
def next_class(run: Network, link: Int, may: Int, at_host: Int) -> Int:
    """The class that sends next, of those in the mask `may`; -1 for none.

    At a host the class is chosen before its packet is known: a class may send while it has bytes
    left, and owes the excess.
    """
    queues, turns, rules = run.classes.queues, run.classes.turns, run.classes.rules
    classes = run.settings[0].classes
    if may == 0:
        return np.int64(-1)
    for of in range(classes):
        if rules[of].quantum == 0 and may >> of & 1:
            return np.int64(of)
    while True:
        of = turns[link].turn
        row = row_of(run, link, of)
        if may >> of & 1:
            if turns[link].credited == 0:
                queues[row].deficit += rules[of].quantum
                turns[link].credited = 1
            need: Int = np.int64(1)
            if at_host == 0:
                need = size_of(run.slots, queues[row].head)
            if queues[row].deficit >= need:
                return of
        turns[link].turn = (of + 1) % classes
        turns[link].credited = 0


@subkernel
def charge(run: Network, link: Int, of: Int, size: Int, empty: Int) -> None:
    """Charge a class for a packet of `size` bytes. A class without packets (empty) saves
    nothing."""
    queues, turns = run.classes.queues, run.classes.turns
    if run.classes.rules[of].quantum == 0:
        return
    row = row_of(run, link, of)
    queues[row].deficit -= size
    if empty:
        queues[row].deficit = min(np.int64(0), queues[row].deficit)
        turns[link].turn = (of + 1) % run.settings[0].classes
        turns[link].credited = 0


@subkernel
def append(run: Network, link: Int, slot: Int, size: Int) -> None:
    """Append a data packet to the queue of its class."""
    queues, row = run.classes.queues, row_of(run, link, class_of(run, run.slots[slot].key))
    if queues[row].head < 0:
        queues[row].head = slot
    else:
        link_next(run.slots, queues[row].tail, slot)
    queues[row].tail = slot
    queues[row].bytes += size


@subkernel
def take_next(run: Network, link: Int, time: Int) -> Int:
    """Take the packet that is next; at least one class is open."""
    queues = run.classes.queues
    of = next_class(run, link, open_classes(run, link, time), np.int64(0))
    row = row_of(run, link, of)
    slot = queues[row].head
    size = size_of(run.slots, slot)
    queues[row].head = next_of(run.slots, slot)
    queues[row].bytes -= size
    charge(run, link, of, size, np.int64(queues[row].head < 0))
    return slot


@inlined
def is_paused(run: Network, link: Int, of: Int, time: Int) -> Bool:
    """Whether data of a class must not start at a time."""
    if run.settings[0].pfc == 0:
        return False
    return is_held(run, row_of(run, link, of), time)


@inlined
def can_start(run: Network, link: Int, time: Int) -> Bool:
    """Whether one of the packets that wait at a link may start."""
    if run.links[link].ack_head >= 0:
        return True
    if run.settings[0].classes > 1:
        return open_classes(run, link, time) != 0
    return not is_paused(run, link, np.int64(0), time)


@inlined
def queue_bytes(run: Network, link: Int, of: Int) -> Int:
    """Bytes of a class that wait at a link."""
    if run.settings[0].classes == 1:
        return run.links[link].waiting_data
    return run.classes.queues[row_of(run, link, of)].bytes


@inlined
def first_waiting(run: Network, link: Int, of: Int) -> Int:
    """The first packet of a class that waits at a link, -1 for none."""
    if run.settings[0].classes == 1:
        return run.links[link].data_head
    return run.classes.queues[row_of(run, link, of)].head


@inlined
def threshold(pauses: Pauses, row: Int) -> Int:
    """Bytes from the port of `row` that its class may hold in the shared buffer."""
    return min(_limit(pauses, row), pauses.rows[row].shared + _free(pauses, row))


@inlined
def _free(pauses: Pauses, row: Int) -> Int:
    pool = pauses.rows[row].switch
    return pauses.pools[pool].size - pauses.pools[pool].used


@inlined
def _limit(pauses: Pauses, row: Int) -> Int:
    limit = pauses.rows[row].limit
    if limit == NEVER:  # in two parts, each below 2^63
        free, alpha = _free(pauses, row), pauses.rows[row].alpha
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
    size, of = size_of(net.slots, slot), class_of(net, net.slots[slot].key)
    row = row_of(net, link, of)
    net.slots[slot].time = link
    if net.classes.rules[of].lossless == 0:
        most = min(_limit(pauses, row), queue_bytes(net, out, of) + _free(pauses, row))
        if queue_bytes(net, out, of) + size > most:
            return False
        rows[row].shared += size
        pauses.pools[rows[row].switch].used += size
        return True
    if rows[row].shared + size <= threshold(pauses, row):
        rows[row].shared += size
        pauses.pools[rows[row].switch].used += size
        return True
    fits = rows[row].headroom + size <= rows[row].room
    if fits:
        rows[row].headroom += size
        rows[row].most_headroom = max(rows[row].most_headroom, rows[row].headroom)
    else:
        rows[row].no_room += 1
    waiting = rows[row].shared + rows[row].headroom
    if rows[row].asked == 0 and waiting > 0:
        rows[row].asked = 1
        _send_frame(net, link, row, time)
        _find_root(net, out_start, out_links, rows[row].switch, of, time)
    return fits


@inlined
def leave(run: Network, slot: Int, size: Int, time: Int) -> None:
    """Free the buffer of a data packet whose transmission begins or that is dropped from its queue;
    a host's own packets use none."""
    link = run.slots[slot].time
    if link >= 0:
        pauses, rows = run.pauses, run.pauses.rows
        row = row_of(run, link, class_of(run, run.slots[slot].key))
        below = min(size, rows[row].headroom)
        rows[row].headroom -= below
        rows[row].shared -= size - below
        pauses.pools[rows[row].switch].used -= size - below
        if rows[row].asked and rows[row].headroom == 0:
            shared = rows[row].shared
            if shared == 0 or shared + pauses.rules[0].xon <= threshold(pauses, row):
                rows[row].asked = 0
                _send_frame(run, link, row, time)


@inlined
def _send_frame(run: Network, link: Int, row: Int, time: Int) -> None:
    """Send a frame that begins, repeats or ends the pause of a link, to its sender."""
    rows, slots, quanta = run.pauses.rows, run.slots, run.pauses.rules[0].quanta
    begin: Int
    took: Int
    back, begin, took = rows[row].reverse, time, np.int64(0)
    if back >= 0:
        begin = max(time, run.links[back].free)
        took = service_ps(np.int64(PAUSE_BYTES), run.links[back].rate)
        took += run.links[back].delay
    slot = new_slot(run, np.int64(0), np.int64(0), np.int64(0))
    slots[slot].time = begin + took + run.pauses.rules[0].reaction
    slots[slot].meta = rows[row].asked
    rows[row].frames += rows[row].asked
    if quanta:
        rows[row].repeat = NEVER
        if rows[row].asked:
            rows[row].repeat = time + max(1, _quanta_ps(run, link, quanta) // 2)
            schedule(run.pauses.wheel, 1 + link, rows[row].repeat)
    if rows[row].frame_head < 0:
        rows[row].frame_head = slot
        rows[row].frame_time = slots[slot].time
        schedule(run.pauses.wheel, 1 + link, rows[row].frame_time)
    else:
        link_next(slots, rows[row].frame_tail, slot)
    rows[row].frame_tail = slot


@inlined
def _quanta_ps(run: Network, link: Int, quanta: Int) -> Int:
    """Time of this many quanta at the rate of a link."""
    return service_ps(quanta * np.int64(QUANTUM_BITS // 8), run.links[link].rate)


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
        queue = (most * (net.links[longest].rate >> np.int64(10))) >> np.int64(10)
        if row.pauses == 0 or (row.paused == 0 and time - row.since >= queue):
            row.roots += 1


@inlined
def pause_due(run: Network, link: Int) -> Int:
    """Time of the next frame or timer of the pauses of a link, NEVER for none."""
    if run.pauses.rules[0].several == 0:
        return run.pauses.rows[link].frame_time
    return _earliest(run, link)


@subkernel
def _earliest(run: Network, link: Int) -> Int:
    due = np.int64(NEVER)
    for of in range(run.settings[0].classes):
        row = run.pauses.rows[row_of(run, link, np.int64(of))]
        due = min(due, min(row.frame_time, min(row.expires, row.repeat)))
    return due


@subkernel
def obey(net: Net, messages: Records, link: Int, time: Int) -> None:
    """Handle the frames that the sender of a link obeys now, and the timers of its pauses; the link
    has been served before `time`."""
    rows, slots, quanta = net.pauses.rows, net.slots, net.pauses.rules[0].quanta
    for of in range(net.settings[0].classes):
        row = row_of(net, link, np.int64(of))
        while rows[row].frame_time <= time:
            slot = rows[row].frame_head
            following = next_of(slots, slot)
            rows[row].frame_head = following
            rows[row].frame_time = NEVER if following < 0 else slots[following].time
            pause = slots[slot].meta
            free_slot(net, slot)
            if pause == 0:
                if rows[row].paused:
                    _end_pause(net, messages, link, np.int64(of), time)
                continue
            if rows[row].paused == 0:
                rows[row].pauses += 1
                rows[row].since = time
                rows[row].paused = 1
            if quanta:
                rows[row].expires = time + _quanta_ps(net, link, quanta)
        if rows[row].expires <= time:
            _end_pause(net, messages, link, np.int64(of), time)
        if rows[row].repeat <= time:
            _send_frame(net, link, row, time)


@subkernel
def _end_pause(net: Net, messages: Records, link: Int, of: Int, time: Int) -> None:
    rows, row = net.pauses.rows, row_of(net, link, of)
    length = time - rows[row].since
    rows[row].paused_ps += length
    rows[row].longest_ps = max(rows[row].longest_ps, length)
    after = net.pauses.rules[0].storm_after
    if length >= after and rows[row].storm < 0:
        rows[row].storm = rows[row].since + after
    net.links[link].free = max(net.links[link].free, time)
    rows[row].since = time
    rows[row].paused = 0
    rows[row].expires = NEVER
    hold_waiting(net, messages, link, of)


@inlined
def hold_waiting(net: Network, messages: Records, link: Int, of: Int) -> None:
    """Note the flows whose packets wait at a link that was paused."""
    if len(net.pauses.held) > 1:
        slot = first_waiting(net, link, of)
        while slot >= 0:
            flow = messages[message_of(net.slots[slot].key)].flow
            net.pauses.held[link, flow] |= np.uint8(ps.HELD)
            slot = next_of(net.slots, slot)


@inlined
def note_use(net: Net, messages: Records, out: Int, slot: Int) -> None:
    """Note a flow that uses a link, whose queue may cause pauses later."""
    held = net.pauses.held
    if len(held) > 1:
        flow = messages[message_of(net.slots[slot].key)].flow
        held[out, flow] |= np.uint8(ps.USES)


@inlined
def next_due(net: Net, link: Int, time: Int) -> Int:
    """Time of the next event of a link, not before `time`: an arrival at its end, the start of a
    service, a pause frame; NEVER for none."""
    links = net.links
    due = min(links[link].head_time, pause_due(net, link))
    if links[link].waiting_packets > 0:
        start = max(time, links[link].free)
        if start < due and can_start(net, link, time):
            due = start
    return due


def pause_outcome(
    run: RunState, names: tuple[str, ...], incomplete: bool, ended: bool
) -> PauseOutcome:
    """The outcome of a run with PFC. names: of the classes of data. ended: no event is left, so
    a cycle in an incomplete run cannot resolve."""
    rows, held = run.pauses.rows.copy(), run.pauses.held
    now, classes = int(run.counts["clock"][0]), len(names)
    after = int(run.pauses.rules["storm_after"][0])
    endless = (rows["paused"] != 0) & (incomplete and ended)
    for row in np.flatnonzero(rows["paused"]).tolist():
        since = int(rows["since"][row])
        rows["paused_ps"][row] += now - since
        rows["longest_ps"][row] = max(int(rows["longest_ps"][row]), now - since)
        if (now - since >= after or endless[row]) and rows["storm"][row] < 0:
            rows["storm"][row] = since + after
        hold_waiting(run, run.messages, row // classes, row % classes)
    victims = None
    if len(held) > 1:
        roots = (rows["roots"] > 0).reshape(-1, classes).any(1)
        users = (held[roots] & ps.USES).any(0)
        victims = (held & ps.HELD != 0) & ~users
    return PauseOutcome(
        classes=names,
        storm_after_ps=after,
        frames=rows["frames"],
        storm_ps=rows["storm"],
        pauses=rows["pauses"],
        paused_ps=rows["paused_ps"],
        longest_ps=rows["longest_ps"],
        endless=endless,
        roots=rows["roots"],
        most_headroom=rows["most_headroom"],
        headroom=rows["room"],
        needed=rows["needed"],
        no_room=rows["no_room"],
        victims=None if victims is None else np.repeat(victims.sum(1), classes),
        victim_flows=None if victims is None else int(victims.any(0).sum()),
        deadlock=tuple(row // classes for row in _circle(_waits(run))) if incomplete else (),
        buffers=_buffers(run, rows),
        xon_bytes=int(run.pauses.rules["xon"][0]),
        may_pass=not ended,
    )


def _buffers(run: RunState, rows: Records) -> Ints:
    """int64[S]: shared buffer of each switch, headroom included."""
    sizes = run.pauses.pools["size"].copy()
    into = rows["switch"] < len(sizes)
    np.add.at(sizes, rows["switch"][into], rows["room"][into])
    return sizes


def _waits(run: RunState) -> dict[int, list[int]]:
    """The paused rows for which each paused row waits: they hold its packets up."""
    rows: Records = run.pauses.rows
    classes = int(run.settings["classes"][0])
    stuck = (rows["paused"] != 0) & (rows["asked"] != 0)
    waits: dict[int, list[int]] = {int(row): [] for row in np.flatnonzero(stuck)}
    for out in waits:
        slot = int(first_waiting(run, out // classes, out % classes))
        while slot >= 0:
            came_by = int(run.slots["time"][slot]) * classes + out % classes
            if came_by in waits and out not in waits[came_by]:
                waits[came_by].append(out)
            slot = int(next_of(run.slots, slot))
    return waits


def _circle(waits: dict[int, list[int]]) -> tuple[int, ...]:
    """A cycle, each link before the link for which it waits; empty without one."""
    done: set[int] = set()
    for begin, others in waits.items():
        path, places = [(begin, iter(others))], {begin: 0}
        while path and begin not in done:
            link_on_path, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                done.add(link_on_path)
                del places[link_on_path]
            elif following in places:
                return tuple(link for link, _ in path[places[following] :])
            elif following not in done:
                places[following] = len(path)
                path.append((following, iter(waits[following])))
    return ()

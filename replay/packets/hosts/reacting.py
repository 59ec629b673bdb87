"""Reactions of hosts to ACKs, losses and timers. `sending.py` has already served their NICs up to
the current time, inclusive.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Bytes, Int, Ints, inlined, subkernel
from ...traffic.traffic import ON_ACKED
from ..model import labels
from ..model import state as rs
from ..model.labels import EvState, OnFeedback, OnWake
from ..model.model import ACK, AGAIN, MARKED, NEVER, TRIMMED, message_of, number_of, packet_key
from ..model.records import Records
from ..model.rules import Emit
from ..model.state import Desk, Messages, Net, Network
from ..model.wheel import schedule
from ..pauses import free_slot, link_next, new_slot, next_of
from . import feedback as fb
from . import transport as rec
from .congestion import MSS, Heard, OnAck, OnCnp, OnLoss
from .feedback import Feedback, drawn_key
from .sending import acknowledged, join_ring, unblock
from .transport import abandon, go_back, now_done, now_lost, overtaken, timeout_ps

_FLAG_SHIFT = 56
_LABEL = 0xFFFFFFFF


@inlined
def _send_again(desk: Desk, feedback: Feedback, flow: Int, time: Int) -> None:
    """Let the host of a flow send: the flow has packets to retransmit, or a larger window."""
    if desk.flows[flow].in_ring == 0:
        join_ring(desk, flow)
    host = desk.flows[flow].src
    unblock(feedback.nics, desk.hosts, host, time)
    schedule(feedback.wheel, feedback.control[0].host_items + host, time)


@inlined
def receive_ack(
    desk: Desk,
    feedback: Feedback,
    evs: EvState,
    on_feedback: OnFeedback,
    on_ack: OnAck,
    on_cnp: OnCnp,
    on_loss: OnLoss,
    ends: Ints,
    key: Int,
    count: Int,
    slot: Int,
    time: Int,
) -> Int:
    """Handle an ACK (for `count` packets), NACK or answer to a probe at the sender.

    Returns the number of messages that it completes; `ends` lists them for `release_successors`."""
    control, senders, packets, messages = (
        feedback.control,
        feedback.senders,
        feedback.packets,
        desk.messages,
    )
    ev, stamp = feedback.slots[slot].echo, feedback.slots[slot].stamp
    position = feedback.slots[slot].position
    message = message_of(key)
    flow = messages[message].flow
    if key & np.int64(fb.CNP):
        on_cnp(feedback.window, feedback.window_params, flow, time)
        return np.int64(0)
    hops = feedback.slots[slot].trail // np.int64(fb.FORTH) + 1
    completed, newly, given_up = np.int64(0), np.int64(0), np.int64(0)
    stirred = feedback.nics[desk.flows[flow].src].blocked != 0
    what = labels.MARKED if key & np.int64(MARKED) else labels.ACKED
    if key & np.int64(fb.PROBE):
        met = key & np.int64(MARKED | TRIMMED)
        what = labels.PROBE_MARKED if met else labels.PROBE_CLEAN
    elif key & np.int64(TRIMMED):
        what = labels.TRIMMED
        feedback.tally[0].trims_seen += 1
        packet = messages[message].first_number + number_of(key)
        under_way = packets[packet].state == rec.UNDER_WAY and packets[packet].sent_ps == stamp
        if control[0].recovery == rec.GO_BACK_N:
            given_up += go_back(senders, packets, flow, packet)
        elif control[0].recovery != rec.NO_RECOVERY and under_way:
            given_up += 1
            now_lost(senders, packets, flow, packet)
    else:
        if not control[0].tracks:
            newly = max(newly, position - senders[flow].log_seen)
            senders[flow].way_packets -= newly
            senders[flow].log_seen += newly
        while senders[flow].log_seen < position:
            packet = np.int64(feedback.log[senders[flow].first + senders[flow].log_seen])
            senders[flow].log_seen += 1
            if packets[packet].state == rec.DONE:
                continue
            now_done(senders, packets, flow, packet)
            newly += 1
            if control[0].recovery == rec.NO_RECOVERY:
                continue
            of = packets[packet].message
            if acknowledged(desk, of, np.int64(1), time):
                ends[completed] = 2 * of + ON_ACKED
                completed += 1
        if control[0].recovery == rec.NO_RECOVERY:  # each ACK reports different packets
            if acknowledged(desk, message, count, time):
                ends[0] = 2 * message + ON_ACKED
                completed = np.int64(1)
    if newly:
        senders[flow].retries = 0
        if control[0].mpr:
            first, end = senders[flow].unacknowledged, senders[flow].first
            end += senders[flow].log_seen  # the maximum of packets done in a row
            while first < end and packets[first].state == rec.DONE:
                first += 1
            senders[flow].unacknowledged = first
    if control[0].selects:
        evs.rows[flow, labels.RTT], evs.rows[flow, labels.HOPS] = time - stamp, hops
        on_feedback(evs, flow, ev, what, time)
    if control[0].recovery == rec.SACK and newly:
        lost = overtaken(senders, packets, flow, control[0].threshold)
        while lost >= 0:
            given_up += 1
            now_lost(senders, packets, flow, lost)
            if control[0].selects:
                on_feedback(evs, flow, packets[lost].ev, labels.LOST, time)
            lost = overtaken(senders, packets, flow, control[0].threshold)
    if control[0].controlled:
        mss = np.int64(feedback.window_params[MSS])
        window, params = feedback.window, feedback.window_params
        if newly:
            marked = np.int64(what == labels.MARKED)
            on_ack(window, params, Heard(flow, newly * mss, time - stamp, marked, hops, time))
        if given_up:
            trimmed = np.int64(what == labels.TRIMMED)
            on_loss(window, params, flow, given_up * mss, trimmed, time)
    feedback.tally[0].given_up += given_up
    if given_up or stirred:
        _send_again(desk, feedback, flow, time)
    if control[0].selects and evs.rows[flow, labels.WAKE] != NEVER:
        schedule(feedback.wheel, control[0].timers + flow, max(time, evs.rows[flow, labels.WAKE]))
    return completed


@inlined
def _take_data(
    net: Network,
    desk: Messages,
    feedback: Feedback,
    emit: Emit,
    state: Ints,
    host: Int,
    back: Int,
    slot: Int,
    time: Int,
) -> tuple[Bool, Bool, Int, Int, Int]:
    """Recovery and marks of a data packet that arrives: (whether it is new, whether it is
    acknowledged even if it is not, key and message of the answer, slot of a CNP or -1)."""
    messages, senders = desk.messages, feedback.senders
    key = net.slots[slot].key
    message = message_of(key)
    flow = messages[message].flow
    packet = messages[message].first_number + number_of(key)
    notice: Int = np.int64(-1)
    feedback.tally[0].data_received += 1
    if key & np.int64(MARKED):
        senders[flow].marked_ev = 1 + feedback.slots[slot].echo
        if feedback.control[0].cnp_ps and time >= senders[flow].cnp_at and back >= 0:
            notice = _notification(net, desk, feedback, emit, state, host, back, slot, time)
    if not feedback.control[0].tracks:
        senders[flow].logged += 1
        return True, True, key, message, notice
    if feedback.got[packet]:
        feedback.tally[0].duplicates += 1
        return False, True, key, message, notice
    if feedback.control[0].recovery == rec.GO_BACK_N and packet != senders[flow].expected:
        feedback.tally[0].out_of_order += 1
        asks, key, message = _ask_for_rest(desk, feedback, flow, message)
        return False, asks, key, message, notice
    feedback.got[packet] = 1
    feedback.log[senders[flow].first + senders[flow].logged] = packet
    senders[flow].logged += 1
    if feedback.control[0].recovery == rec.GO_BACK_N:
        senders[flow].expected = packet + 1
        senders[flow].asked = 0
    elif feedback.control[0].mpr:  # the sender may wait for any packet before the request
        if key & np.int64(fb.ASKS):
            senders[flow].asked = max(senders[flow].asked, packet)
        elif packet < senders[flow].asked:
            key |= np.int64(fb.ASKS)
    return True, True, key, message, notice


@inlined
def _ask_for_rest(
    desk: Messages, feedback: Feedback, flow: Int, message: Int
) -> tuple[Bool, Int, Int]:
    """A gap before a packet of `message` (go-back-N): (whether it is new, key and message of the
    NAK for the packet that is expected)."""
    senders, messages = feedback.senders, desk.messages
    asks = senders[flow].asked == 0
    senders[flow].asked = 1
    while messages[message].first_number > senders[flow].expected:
        message -= 1
    number = senders[flow].expected - messages[message].first_number
    return asks, packet_key(message, number) | np.int64(TRIMMED), message


@inlined
def _trimmed(desk: Messages, feedback: Feedback, key: Int) -> tuple[Bool, Int, Int]:
    """Handle the header of a trimmed packet: (whether it is answered, key and message of the
    answer). Go-back-N sends a NAK once per gap, and again if the requested packet is trimmed."""
    feedback.tally[0].trimmed_received += 1
    message = message_of(key)
    if feedback.control[0].recovery != rec.GO_BACK_N:
        return feedback.control[0].recovery != rec.NO_RECOVERY, key, message
    flow = desk.messages[message].flow
    packet = desk.messages[message].first_number + number_of(key)
    expected = feedback.senders[flow].expected
    if packet < expected:  # a duplicate: an ACK
        return True, key & ~np.int64(TRIMMED), message
    if packet == expected and key & np.int64(AGAIN):
        feedback.senders[flow].asked = 0
    return _ask_for_rest(desk, feedback, flow, message)


@inlined
def receive_data(
    net: Network,
    desk: Messages,
    feedback: Feedback | None,
    arrived_ps: Ints,
    arrived_flags: Bytes,
    emit: Emit,
    state: Ints,
    host: Int,
    back: Int,
    slot: Int,
    time: Int,
) -> tuple[Bool, Int, Int]:
    """Handle a data packet or probe at a host: (whether its slot has become an ACK for the link
    `back`, the completed message or -1, the slot of a CNP for the same link or -1).

    feedback: None for a host without feedback, as in `sending.py`."""
    messages, slots = desk.messages, net.slots
    key = slots[slot].key
    message = message_of(key)
    packet = messages[message].first_number + number_of(key)
    flow = messages[message].flow
    notice: Int = np.int64(-1)
    complete: Int = np.int64(-1)
    acknowledge: Bool
    new: Bool
    noted: Bool
    acknowledge = new = noted = False
    if key & np.int64(fb.PROBE):
        acknowledge = True
    elif key & np.int64(TRIMMED):
        noted = True
        if feedback is not None:
            noted = feedback.control[0].recovery == rec.NO_RECOVERY
            acknowledge, key, message = _trimmed(desk, feedback, key)
    else:
        messages[message].unacked += 1
        acknowledge = new = True
        if feedback is not None:
            new, acknowledge, key, message, notice = _take_data(
                net, desk, feedback, emit, state, host, back, slot, time
            )
        noted = new
    if noted and net.settings[0].keep_arrivals and arrived_ps[packet] < 0:
        arrived_ps[packet] = time
        arrived_flags[packet] = np.uint8(key >> np.int64(_FLAG_SHIFT) & 15)
    if new:
        messages[message].received += 1
        if messages[message].received == messages[message].size:
            messages[message].received_ps = time
            complete = message
        elif messages[message].unacked < net.settings[0].ack_every:
            acknowledge = key & np.int64(fb.ASKS) != 0
    if back < 0 or not acknowledge:
        return False, complete, notice
    label: Int = np.int64(0)
    if feedback is None:
        label = emit(state, net.links, host, back, key | np.int64(ACK), time)
    elif feedback.control[0].reflects:
        label = feedback.slots[slot].echo
    else:
        drawn = drawn_key(key, feedback.slots[slot].stamp) | np.int64(ACK)
        label = emit(state, net.links, host, back, drawn, time)
    slots[slot].key = key | np.int64(ACK)
    slots[slot].meta = (desk.flows[flow].src << np.int64(32)) | (label & np.int64(_LABEL))
    slots[slot].next = (net.settings[0].ack_bytes << np.int64(32)) | np.int64(rs.NO_SLOT)
    of_data = not key & np.int64(fb.PROBE | TRIMMED)
    if of_data:
        slots[slot].next |= messages[message].unacked << np.int64(48)
        messages[message].unacked = 0
    if feedback is not None:
        _answer(slots, feedback, flow, slot, of_data)
    return True, complete, notice


@inlined
def _answer(slots: Records, feedback: Feedback, flow: Int, slot: Int, of_data: Bool) -> None:
    """Fill in an ACK: entries of the log, and a mark of any packet since the last ACK."""
    feedback.slots[slot].position = feedback.senders[flow].logged
    if of_data and feedback.senders[flow].marked_ev:
        slots[slot].key |= np.int64(MARKED)
        feedback.slots[slot].echo = feedback.senders[flow].marked_ev - 1
        feedback.senders[flow].marked_ev = 0
    feedback.slots[slot].trail = (feedback.slots[slot].trail >> np.int64(1)) * np.int64(fb.FORTH)


@subkernel
def _notification(
    net: Network,
    desk: Messages,
    feedback: Feedback,
    emit: Emit,
    state: Ints,
    host: Int,
    back: Int,
    marked: Int,
    time: Int,
) -> Int:
    """The slot of a CNP for the sender of a marked packet; it is as large as an ACK, has its
    priority and takes the path of the packet's ACK."""
    key = net.slots[marked].key
    flow = desk.messages[message_of(key)].flow
    feedback.senders[flow].cnp_at = time + feedback.control[0].cnp_ps
    label = feedback.slots[marked].echo
    if not feedback.control[0].reflects:
        drawn = drawn_key(key, feedback.slots[marked].stamp) | np.int64(ACK)
        label = emit(state, net.links, host, back, drawn, time)
    key = packet_key(message_of(key), number_of(key)) | np.int64(ACK | fb.CNP)
    meta = (desk.flows[flow].src << np.int64(32)) | (label & np.int64(_LABEL))
    slot = new_slot(net, key, meta, net.settings[0].ack_bytes)
    feedback.slots[slot].stamp = feedback.slots[marked].stamp
    feedback.slots[slot].echo = feedback.slots[marked].echo
    feedback.slots[slot].trail = 0
    feedback.tally[0].cnps += 1
    return slot


@subkernel
def on_timer(
    net: Net,
    desk: Desk,
    feedback: Feedback,
    evs: EvState,
    on_feedback: OnFeedback,
    wake: OnWake,
    on_loss: OnLoss,
    flow: Int,
    time: Int,
) -> Int:
    """Handle the timer of a flow: losses by timeout, probes of the EV selection. Returns the slot
    of a probe to send by the port of its EV, or -1."""
    control, senders, packets = feedback.control, feedback.senders, feedback.packets
    probe: Int
    given_up, timeouts, probe = np.int64(0), np.int64(0), np.int64(-1)
    due, stirred = np.int64(NEVER), False
    if control[0].selects and senders[flow].new_ports:
        mask = senders[flow].peer_mask & feedback.nics[desk.flows[flow].src].up
        on_feedback(evs, flow, mask, labels.PORT_MASK, time)
        senders[flow].new_ports = 0
        stirred = True
    given_up += _new_losses(net, desk, feedback, flow, time)
    notice = senders[flow].notice_head
    while notice >= 0 and net.slots[notice].time <= time:
        following = next_of(net.slots, notice)
        timeouts += 1
        on_feedback(evs, flow, feedback.slots[notice].echo, labels.TIMEOUT, time)
        free_slot(net, notice)
        notice = following
    senders[flow].notice_head = notice
    if notice < 0:
        senders[flow].notice_tail = -1
    else:
        due = net.slots[notice].time
    if control[0].recovery >= rec.SACK:
        packet = senders[flow].under_way.head
        patience = timeout_ps(senders, flow, control[0].rto, control[0].linear)
        sent = packets[packet].sent_ps if packet >= 0 else np.int64(NEVER)
        # Losses of packets of one window count as one timeout.
        if sent + patience <= time and sent >= senders[flow].retried_ps:
            senders[flow].retries += 1
            senders[flow].retried_ps = time
            if senders[flow].retries > control[0].most_retries:
                abandon(senders, packets, flow)
                desk.flows[flow].cursor = desk.flows[flow].end
                feedback.tally[0].timeouts += timeouts + 1
                return np.int64(-1)
        while packet >= 0 and packets[packet].sent_ps + patience <= time:
            timeouts += 1
            given_up += 1
            if control[0].selects:
                on_feedback(evs, flow, packets[packet].ev, labels.TIMEOUT, time)
            if control[0].recovery == rec.GO_BACK_N:
                go_back(senders, packets, flow, packet)
            else:
                now_lost(senders, packets, flow, packet)
            packet = senders[flow].under_way.head
        if packet >= 0:
            patience = timeout_ps(senders, flow, control[0].rto, control[0].linear)
            due = min(due, packets[packet].sent_ps + patience)
        if control[0].controlled and given_up:
            lost = given_up * np.int64(feedback.window_params[MSS])
            on_loss(feedback.window, feedback.window_params, flow, lost, np.int64(0), time)
    feedback.tally[0].timeouts += timeouts
    if control[0].selects and senders[flow].retries <= control[0].most_retries:
        if evs.rows[flow, labels.WAKE] <= time:
            ev = wake(evs, flow, time)
            if ev >= 0:
                probe = _probe(net, desk, feedback, flow, ev, time)
        due = min(due, evs.rows[flow, labels.WAKE])
    if given_up or stirred:
        _send_again(desk, feedback, flow, time)
    if due != NEVER:
        schedule(feedback.wheel, control[0].timers + flow, max(due, time + 1))
    return probe


@inlined
def _new_losses(net: Net, desk: Desk, feedback: Feedback, flow: Int, time: Int) -> Int:
    """Handle the packets that the network has just lost: with the ideal code the sender learns of
    them at once, the selection of EVs by its timeout. Returns their number."""
    senders, packets, count = feedback.senders, feedback.packets, np.int64(0)
    slot = senders[flow].loss_head
    senders[flow].loss_head = -1
    while slot >= 0:
        following = next_of(net.slots, slot)
        key, stamp = net.slots[slot].key, feedback.slots[slot].stamp
        packet = desk.messages[message_of(key)].first_number + number_of(key)
        if packets[packet].state == rec.UNDER_WAY and packets[packet].sent_ps == stamp:
            now_lost(senders, packets, flow, packet)
            feedback.tally[0].given_up += 1
            count += 1
        if feedback.control[0].selects:
            net.slots[slot].time = max(time, stamp + feedback.control[0].rto)
            net.slots[slot].next = np.int64(rs.NO_SLOT)
            last = senders[flow].notice_tail
            if last < 0:
                senders[flow].notice_head = slot
            else:
                link_next(net.slots, last, slot)
            senders[flow].notice_tail = slot
        else:
            free_slot(net, slot)
        slot = following
    return count


@inlined
def _probe(net: Net, desk: Desk, feedback: Feedback, flow: Int, ev: Int, time: Int) -> Int:
    """The slot of a probe: a small packet of the data class over the path of an EV."""
    key = packet_key(desk.flows[flow].end - 1, 0) | np.int64(fb.PROBE)
    meta = (desk.flows[flow].dst << np.int64(32)) | (ev & np.int64(_LABEL))
    slot = new_slot(net, key, meta, net.settings[0].ack_bytes)
    feedback.slots[slot].stamp = time
    feedback.slots[slot].echo = ev
    feedback.slots[slot].trail = 0
    feedback.tally[0].probes += 1
    return slot

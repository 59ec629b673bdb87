"""Hosts that react to what arrives: ACKs, losses and timers. `sending.py` has served their
NICs up to and with the present before."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bytes, Int, Ints, inlined, subkernel
from ...traffic.traffic import ON_ACKED
from ..links.queues import free_slot, link_next, new_slot, next_of
from ..model.labels import ACKED as EV_ACKED
from ..model.labels import LOST as EV_LOST
from ..model.labels import MARKED as EV_MARKED
from ..model.labels import PORT_MASK, PROBE_CLEAN, PROBE_MARKED, WAKE, EvState, OnFeedback, OnWake
from ..model.labels import TIMEOUT as EV_TIMEOUT
from ..model.labels import TRIMMED as EV_TRIMMED
from ..model.model import ACK, MARKED, NEVER, TRIMMED, message_of, number_of, packet_key
from ..model.rules import Emit
from ..model.run_state import (
    ACK_BYTES,
    ACK_EVERY,
    COMPLETED,
    COMPLETED_PS,
    DST,
    END,
    FIRST_NUMBER,
    FLOW,
    IN_RING,
    KEEP_ARRIVALS,
    KEY,
    META,
    NEXT,
    NO_SLOT,
    RECEIVED,
    RECEIVED_PS,
    SIZE,
    SRC,
    TIME,
    UNACKED,
    Desk,
    Net,
)
from ..model.run_state import ACKED as PACKETS_ACKED
from ..model.wheel import schedule
from .congestion.algorithm import MSS, OnAck, OnLoss
from .feedback_state import (
    BLOCKED,
    CONTROLLED,
    DATA_RECEIVED,
    DEAD,
    DUPLICATES,
    ECHO,
    GIVEN_UP,
    HOST_ITEMS,
    LINEAR,
    MPR,
    OUT_OF_ORDER,
    POSITION,
    PROBE,
    PROBES_SENT,
    RECOVERY,
    REFLECTS,
    RTO,
    SELECTS,
    STAMP,
    THRESHOLD,
    TIMEOUTS,
    TIMERS,
    TRIMMED_RECEIVED,
    TRIMS_SEEN,
    UP,
    Feedback,
    drawn_key,
)
from .hosts import join_ring
from .recovery import (
    ASKED,
    DONE,
    EV,
    EXPECTED,
    FIRST,
    GO_BACK_N,
    LOG_SEEN,
    LOGGED,
    LOSS_HEAD,
    MARKED_EV,
    MESSAGE,
    NEW_PORTS,
    NO_RECOVERY,
    NOTICE_HEAD,
    NOTICE_TAIL,
    PEER_MASK,
    RETRIED_PS,
    RETRIES,
    SACK,
    SENT_PS,
    STATE,
    UNACKNOWLEDGED,
    UNDER_WAY,
    WAY_HEAD,
    go_back,
    now_done,
    now_lost,
    overtaken,
    timeout_ps,
)
from .sending import unblock

_FLAG_SHIFT = 56
_LABEL = 0xFFFFFFFF


@inlined
def _send_again(desk: Desk, own: Feedback, flow: Int, time: Int) -> None:
    """A flow has packets to send again, or more room: its host may send at once."""
    if desk.flows[flow, IN_RING] == 0:
        join_ring(desk, flow)
    host = desk.flows[flow, SRC]
    unblock(own.nics, desk.hosts, host, time)
    schedule(own.wheel, own.control[HOST_ITEMS] + host, time)


@subkernel
def receive_ack(
    desk: Desk,
    own: Feedback,
    evs: EvState,
    feedback: OnFeedback,
    on_ack: OnAck,
    on_loss: OnLoss,
    ends: Ints,
    counts: Ints,
    key: Int,
    count: Int,
    slot: Int,
    time: Int,
) -> Int:
    """An ACK (for `count` packets), NACK or answer to a probe arrives at its sender; the number of
    messages that it completes, listed in `ends` as `release_successors` takes them."""
    control, senders, packets, messages = own.control, own.senders, own.packets, desk.messages
    ev, stamp, position = own.extra[slot, ECHO], own.extra[slot, STAMP], own.extra[slot, POSITION]
    message = message_of(key)
    flow = messages[message, FLOW]
    completed, newly, given_up = np.int64(0), np.int64(0), np.int64(0)
    stirred = own.nics[desk.flows[flow, SRC], BLOCKED] != 0
    what = EV_MARKED if key & np.int64(MARKED) else EV_ACKED
    if key & np.int64(PROBE):
        what = PROBE_MARKED if key & np.int64(MARKED) else PROBE_CLEAN
    elif key & np.int64(TRIMMED):
        what = EV_TRIMMED
        own.tally[TRIMS_SEEN] += 1
        packet = messages[message, FIRST_NUMBER] + number_of(key)
        under_way = packets[packet, STATE] == UNDER_WAY and packets[packet, SENT_PS] == stamp
        if control[RECOVERY] == GO_BACK_N:
            given_up += go_back(senders, packets, flow, packet)
        elif control[RECOVERY] != NO_RECOVERY and under_way:
            given_up += 1
            now_lost(senders, packets, flow, packet)
    else:
        while senders[flow, LOG_SEEN] < position:
            packet = np.int64(own.log[senders[flow, FIRST] + senders[flow, LOG_SEEN]])
            senders[flow, LOG_SEEN] += 1
            if packets[packet, STATE] == DONE:
                continue
            now_done(senders, packets, flow, packet)
            newly += 1
            if control[RECOVERY] == NO_RECOVERY:
                continue
            of = packets[packet, MESSAGE]
            messages[of, PACKETS_ACKED] += 1
            if messages[of, PACKETS_ACKED] == messages[of, SIZE]:
                messages[of, COMPLETED_PS] = time
                counts[COMPLETED] += 1
                ends[completed] = 2 * of + ON_ACKED
                completed += 1
        if control[RECOVERY] == NO_RECOVERY:  # no ACK tells what another one did
            messages[message, PACKETS_ACKED] += count
            if messages[message, PACKETS_ACKED] == messages[message, SIZE]:
                messages[message, COMPLETED_PS] = time
                counts[COMPLETED] += 1
                ends[0] = 2 * message + ON_ACKED
                completed = np.int64(1)
    if newly:
        senders[flow, RETRIES] = 0
        if control[MPR]:
            first, end = senders[flow, UNACKNOWLEDGED], senders[flow, FIRST]
            end += senders[flow, LOG_SEEN]  # no more than so many can be done in a row
            while first < end and packets[first, STATE] == DONE:
                first += 1
            senders[flow, UNACKNOWLEDGED] = first
    if control[SELECTS]:
        feedback(evs, flow, ev, what, time)
    if control[RECOVERY] == SACK and newly:
        lost = overtaken(senders, packets, flow, control[THRESHOLD])
        while lost >= 0:
            given_up += 1
            now_lost(senders, packets, flow, lost)
            if control[SELECTS]:
                feedback(evs, flow, packets[lost, EV], EV_LOST, time)
            lost = overtaken(senders, packets, flow, control[THRESHOLD])
    if control[CONTROLLED]:
        mss = np.int64(own.window_params[MSS])
        window, params = own.window, own.window_params
        if newly:
            marked = np.int64(what == EV_MARKED)
            on_ack(window, params, flow, newly * mss, time - stamp, marked, time)
        if given_up:
            trimmed = np.int64(what == EV_TRIMMED)
            on_loss(window, params, flow, given_up * mss, trimmed, time)
    own.tally[GIVEN_UP] += given_up
    if given_up or stirred:
        _send_again(desk, own, flow, time)
    if control[SELECTS] and evs.rows[flow, WAKE] != NEVER:
        schedule(own.wheel, control[TIMERS] + flow, max(time, evs.rows[flow, WAKE]))
    return completed


@subkernel
def receive_data(
    net: Net,
    desk: Desk,
    own: Feedback,
    arrived_ps: Ints,
    arrived_flags: Bytes,
    emit: Emit,
    state: Ints,
    host: Int,
    back: Int,
    slot: Int,
    time: Int,
) -> tuple[bool, Int]:
    """A data packet or probe arrives at a host: (its slot has become an ACK to send over the link
    `back`, message that is complete or -1)."""
    messages, senders, slots = desk.messages, own.senders, net.slots
    key = slots[slot, KEY]
    message = message_of(key)
    flow = messages[message, FLOW]
    complete: Int = np.int64(-1)
    if key & np.int64(TRIMMED):
        acknowledge = own.control[RECOVERY] != NO_RECOVERY
        own.tally[TRIMMED_RECEIVED] += 1
        packet = messages[message, FIRST_NUMBER] + number_of(key)
        if net.settings[KEEP_ARRIVALS] and not acknowledge and arrived_ps[packet] < 0:
            arrived_ps[packet] = time
            arrived_flags[packet] = np.uint8(key >> np.int64(_FLAG_SHIFT) & 15)
    elif key & np.int64(PROBE):
        acknowledge = True
    else:
        acknowledge = True
        packet = messages[message, FIRST_NUMBER] + number_of(key)
        own.tally[DATA_RECEIVED] += 1
        messages[message, UNACKED] += 1
        if key & np.int64(MARKED):
            senders[flow, MARKED_EV] = 1 + own.extra[slot, ECHO]
        if own.got[packet]:
            own.tally[DUPLICATES] += 1
        elif own.control[RECOVERY] == GO_BACK_N and packet != senders[flow, EXPECTED]:
            own.tally[OUT_OF_ORDER] += 1
            acknowledge = senders[flow, ASKED] == 0
            senders[flow, ASKED] = 1
            while messages[message, FIRST_NUMBER] > senders[flow, EXPECTED]:
                message -= 1
            number = senders[flow, EXPECTED] - messages[message, FIRST_NUMBER]
            key = packet_key(message, number) | np.int64(TRIMMED)
        else:
            own.got[packet] = 1
            if net.settings[KEEP_ARRIVALS]:
                arrived_ps[packet] = time
                arrived_flags[packet] = np.uint8(key >> np.int64(_FLAG_SHIFT) & 15)
            own.log[senders[flow, FIRST] + senders[flow, LOGGED]] = packet
            senders[flow, LOGGED] += 1
            senders[flow, EXPECTED] = packet + 1
            senders[flow, ASKED] = 0
            messages[message, RECEIVED] += 1
            if messages[message, RECEIVED] == messages[message, SIZE]:
                messages[message, RECEIVED_PS] = time
                complete = message
            elif messages[message, UNACKED] < net.settings[ACK_EVERY]:
                acknowledge = False
    if back < 0 or not acknowledge:
        return False, complete
    label = own.extra[slot, ECHO]
    if not own.control[REFLECTS]:
        drawn = drawn_key(key, own.extra[slot, STAMP]) | np.int64(ACK)
        label = emit(state, net.links, host, back, drawn, time)
    slots[slot, KEY] = key | np.int64(ACK)
    slots[slot, META] = (desk.flows[flow, SRC] << np.int64(32)) | (label & np.int64(_LABEL))
    slots[slot, NEXT] = (net.settings[ACK_BYTES] << np.int64(32)) | np.int64(NO_SLOT)
    own.extra[slot, POSITION] = senders[flow, LOGGED]
    if not key & np.int64(PROBE | TRIMMED):
        slots[slot, NEXT] |= messages[message, UNACKED] << np.int64(48)
        messages[message, UNACKED] = 0
        if senders[flow, MARKED_EV]:  # of any packet since the last ACK
            slots[slot, KEY] |= np.int64(MARKED)
            own.extra[slot, ECHO] = senders[flow, MARKED_EV] - 1
            senders[flow, MARKED_EV] = 0
    return True, complete


@subkernel
def on_timer(
    net: Net,
    desk: Desk,
    own: Feedback,
    evs: EvState,
    feedback: OnFeedback,
    wake: OnWake,
    on_loss: OnLoss,
    flow: Int,
    time: Int,
) -> Int:
    """A flow's timer is due: losses by time, wishes of the EV selection. A slot that holds a probe
    to send by the port of its EV, or -1."""
    control, senders, packets = own.control, own.senders, own.packets
    probe: Int
    given_up, timeouts, probe = np.int64(0), np.int64(0), np.int64(-1)
    due, stirred = np.int64(NEVER), False
    if control[SELECTS] and senders[flow, NEW_PORTS]:
        mask = senders[flow, PEER_MASK] & own.nics[desk.flows[flow, SRC], UP]
        feedback(evs, flow, mask, PORT_MASK, time)
        senders[flow, NEW_PORTS] = 0
        stirred = True
    given_up += _new_losses(net, desk, own, flow, time)
    notice = senders[flow, NOTICE_HEAD]
    while notice >= 0 and net.slots[notice, TIME] <= time:
        following = next_of(net.slots, notice)
        timeouts += 1
        feedback(evs, flow, own.extra[notice, ECHO], EV_TIMEOUT, time)
        free_slot(net, notice)
        notice = following
    senders[flow, NOTICE_HEAD] = notice
    if notice < 0:
        senders[flow, NOTICE_TAIL] = -1
    else:
        due = net.slots[notice, TIME]
    if control[RECOVERY] >= SACK:
        packet = senders[flow, WAY_HEAD]
        patience = timeout_ps(senders, flow, control[RTO], control[LINEAR])
        sent = packets[packet, SENT_PS] if packet >= 0 else np.int64(NEVER)
        # Packets of one window that are lost together are one try.
        if sent + patience <= time and sent >= senders[flow, RETRIED_PS]:
            senders[flow, RETRIES] += 1
            senders[flow, RETRIED_PS] = time
        while packet >= 0 and packets[packet, SENT_PS] + patience <= time:
            timeouts += 1
            given_up += 1
            if control[SELECTS]:
                feedback(evs, flow, packets[packet, EV], EV_TIMEOUT, time)
            if control[RECOVERY] == GO_BACK_N:
                go_back(senders, packets, flow, packet)
            else:
                now_lost(senders, packets, flow, packet)
            packet = senders[flow, WAY_HEAD]
        if packet >= 0:
            patience = timeout_ps(senders, flow, control[RTO], control[LINEAR])
            due = min(due, packets[packet, SENT_PS] + patience)
        if control[CONTROLLED] and given_up:
            lost = given_up * np.int64(own.window_params[MSS])
            on_loss(own.window, own.window_params, flow, lost, np.int64(0), time)
    own.tally[TIMEOUTS] += timeouts
    if control[SELECTS]:
        if evs.rows[flow, WAKE] <= time:
            ev = wake(evs, flow, time)
            if ev >= 0:
                probe = _probe(net, desk, own, flow, ev, time)
        due = min(due, evs.rows[flow, WAKE])
    if given_up or stirred:
        _send_again(desk, own, flow, time)
    if due != NEVER:
        schedule(own.wheel, control[TIMERS] + flow, max(due, time + 1))
    return probe


@inlined
def _new_losses(net: Net, desk: Desk, own: Feedback, flow: Int, time: Int) -> Int:
    """Packets that the network has lost just now: with the ideal code their sender knows at once,
    but the selection of EVs learns of it no sooner than by its timeout. How many."""
    senders, packets, count = own.senders, own.packets, np.int64(0)
    slot = senders[flow, LOSS_HEAD]
    senders[flow, LOSS_HEAD] = -1
    while slot >= 0:
        following = next_of(net.slots, slot)
        key, stamp = net.slots[slot, KEY], own.extra[slot, STAMP]
        packet = desk.messages[message_of(key), FIRST_NUMBER] + number_of(key)
        if packets[packet, STATE] == UNDER_WAY and packets[packet, SENT_PS] == stamp:
            now_lost(senders, packets, flow, packet)
            own.tally[GIVEN_UP] += 1
            count += 1
        if own.control[SELECTS]:
            net.slots[slot, TIME] = max(time, stamp + own.control[RTO])
            net.slots[slot, NEXT] = np.int64(NO_SLOT)
            last = senders[flow, NOTICE_TAIL]
            if last < 0:
                senders[flow, NOTICE_HEAD] = slot
            else:
                link_next(net.slots, last, slot)
            senders[flow, NOTICE_TAIL] = slot
        else:
            free_slot(net, slot)
        slot = following
    return count


@inlined
def _probe(net: Net, desk: Desk, own: Feedback, flow: Int, ev: Int, time: Int) -> Int:
    """A small packet of the data class for the path of an EV."""
    key = packet_key(desk.flows[flow, END] - 1, 0) | np.int64(PROBE)
    meta = (desk.flows[flow, DST] << np.int64(32)) | (ev & np.int64(_LABEL))
    slot = new_slot(net, key, meta, net.settings[ACK_BYTES])
    own.extra[slot, STAMP] = time
    own.extra[slot, ECHO] = ev
    own.extra[slot, DEAD] = 0
    own.tally[PROBES_SENT] += 1
    return slot

"""The tracker's one pass over a batch, in capture order."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Bytes, Int, Int32s, inlined, subkernel
from ..statistics.density import DensityArrays
from ..statistics.histogram import Histograms
from ..statistics.per_flow import CodeArrays
from ..wire import bth as codes
from ..wire.bth import id_distance
from ..wire.packets import RTX, TableArrays
from . import state as st
from .answers import hear_answer
from .batch import AHEAD, IN_ORDER, NOT_SEQUENCED, RECOVERED, RESTARTED, RETRANSMITTED, TAP_COPY
from .sequence import (
    ask_again,
    asks_at_a_gap,
    dates_transmissions,
    forget_answers,
    judge,
    note_below_the_start,
    note_resend,
)
from .state import FlowRecord, State
from .window import Packet, judge_unordered, responses_of

SLOTS_AHEAD = 4 * st.MAX_WINDOW
"""Most free slots one packet can need: every window size once, for two streams."""

RECENTS_AHEAD = 2 << st.MAX_RECENT_BITS
"""Most free recent entries one packet can need: every table size once."""


_CE = 3
_CNP_OPCODE = 0x81


@inlined
def _record(
    state: State, kind: Int, f: Int, time: Int, frame_number: Int, tap: Int, psn: Int, value: Int
) -> None:
    """Store an event for the report; beyond MAX_EVENTS it is only counted."""
    if state.used[st.USED_EVENTS] >= st.MAX_EVENTS:
        state.used[st.OMITTED_EVENTS] += 1
        return
    event = state.events[state.used[st.USED_EVENTS]]
    state.used[st.USED_EVENTS] += 1
    event.kind = kind
    event.flow = f
    event.time = time
    event.frame_number = frame_number
    event.tap = tap
    event.psn = psn
    event.value = value


@inlined
def _note_id(flow: FlowRecord, verdict: Int, ip_id: Int, overtaken: Bool) -> None:
    """Learn whether the flow's IPv4 identifications move forward (see sequence.py).

    Only the newest packets count: late packets and duplicates are no evidence about the counter.
    """
    if verdict == IN_ORDER or verdict == AHEAD:
        if flow.id_started:
            step = (ip_id - np.int64(flow.last_id)) & 0xFFFF
            if step == 0:
                flow.ids_same += 1
            elif step < 0x4000:
                flow.ids_ascending += 1
            else:
                flow.ids_other += 1
        flow.id_started = 1
        flow.last_id = ip_id
    elif (verdict == RETRANSMITTED or verdict == RECOVERED) and not overtaken:
        flow.last_id = ip_id


@subkernel
def walk(
    state: State,
    histograms: Histograms,
    densities: DensityArrays,
    table: TableArrays,
    opcodes: CodeArrays,
    start: Int,
    flow_of_row: Int32s,
    verdict_of_row: Bytes,
) -> Int:
    """Judge rows from `start`; fills `verdict_of_row` and the flows' counts.

    Returns the row at which it stopped: the number of rows, or less if the pools must grow first or
    the opcode of that row has no column yet.
    """
    for i in range(start, len(flow_of_row)):
        if (
            state.used[st.USED_SLOTS] + SLOTS_AHEAD > len(state.slots)
            or state.used[st.USED_RECENTS] + RECENTS_AHEAD > len(state.recents)
            or state.used[st.USED_LATES] == len(state.lates)
        ):  # fmt: skip
            return i
        opcode = np.int64(table.opcode[i])
        if opcodes.column[opcode] < 0:
            return i
        f = np.int64(flow_of_row[i])
        flow = state.flows[f]
        bits = np.int64(codes.OPCODE_CLASS[opcode])
        psn = np.int64(table.subject_psn[i])
        time = table.time_ns[i]
        ip_id = np.int64(table.ip_id[i])
        hop_limit = np.int64(table.hop_limit[i])
        tap = np.int64(table.tap[i])
        wire_bytes = np.int64(table.wire_bytes[i])
        payload = np.int64(table.payload_bytes[i])
        flow.udp_sport = table.udp_sport[i]
        if flow.packets == 0:
            state.began[tap] = min(state.began[tap], time)
        is_mrc = opcode >= codes.MRC_FIRST and codes.TRANSPORT_OF[opcode] == codes.MRC
        sent_id, rtx = ip_id, 0
        if is_mrc:
            flow.no_ids = 1
            if bits & codes.MARKS_RESENDS:  # retransmitted with another EV (MRC 1.0, NACK)
                sent_id = np.int64(flow.udp_sport)
                rtx = 1 if np.int64(table.bth_flags[i]) & RTX else 0
        if bits & codes.SEQUENCED and not bits & codes.ACKNOWLEDGE:
            which = st.RESPONSES if bits & codes.RESPONSE_DATA else st.REQUESTS
            if not flow.has_transport:
                flow.has_transport = 1
                flow.transport = codes.TRANSPORT_OF[opcode]
            dma_length = np.int64(table.dma_length[i])
            packet = Packet(psn, bits, dma_length, sent_id, rtx, hop_limit, payload, tap, time)
            verdict = judge(state, histograms, densities, f, which, packet)
            overtaken = dates_transmissions(flow) and id_distance(ip_id, np.int64(flow.last_id)) < 0
            if which == st.REQUESTS:
                if is_mrc and (verdict == RETRANSMITTED or verdict == RECOVERED):
                    # Only this packet is retransmitted, not all after it; measures/mrc.py has the
                    # trigger.
                    flow.retransmitted_by[st.BY_UNKNOWN] += 1
                    flow.rewound_bytes += wire_bytes
                elif verdict == RETRANSMITTED or verdict == RECOVERED:
                    implied = False
                    if bits & codes.READ_REQUEST:
                        implied = asks_at_a_gap(state, f, flow, psn, time)
                    stream = state.streams[2 * f + st.REQUESTS]
                    note_below_the_start(state, flow, stream, psn, bits, dma_length)
                    begins = note_resend(
                        histograms, f, flow, psn, wire_bytes, time, implied, overtaken
                    )
                    if begins:
                        _record(
                            state, st.EVENT_REWIND, f, time, table.frame_number[i], tap, psn,
                            np.int64(flow.rewind_trigger),
                        )  # fmt: skip
                    if bits & (codes.READ_REQUEST | codes.ATOMIC) and flow.peer >= 0:
                        count = responses_of(state, flow, bits, dma_length)
                        ask_again(state.flows[flow.peer], psn, count, begins)
                elif verdict == IN_ORDER or verdict == AHEAD:
                    flow.in_rewind = 0
                elif verdict == RESTARTED:
                    forget_answers(flow)
                if verdict != TAP_COPY:
                    flow.last_request_time = time
            elif bits & codes.BEGINS and verdict != TAP_COPY:
                hear_answer(state, histograms, f, bits, 0, psn, time)
            _note_id(flow, verdict, ip_id, overtaken)
            if verdict == RESTARTED:
                _record(state, st.EVENT_RESTART, f, time, table.frame_number[i], tap, psn, 0)
        else:
            identity = psn
            if is_mrc and len(table.fingerprint) > 0:  # responses repeat PSNs
                identity ^= np.int64(table.fingerprint[i])
            verdict = judge_unordered(state, flow, identity, opcode, ip_id, hop_limit, tap)
            # A NAK mirrored twice counts once.
            if bits & codes.ACKNOWLEDGE and verdict == NOT_SEQUENCED:
                aeth = np.int64(table.aeth[i])
                event = hear_answer(state, histograms, f, bits, aeth, psn, time)
                if event >= 0:
                    _record(state, event, f, time, table.frame_number[i], tap, psn, aeth >> 24)
        verdict_of_row[i] = verdict
        if verdict == TAP_COPY:
            flow.tap_copies += 1
            continue
        flow.packets += 1
        opcodes.packets[f, opcodes.column[opcode]] += 1
        flow.wire_bytes += wire_bytes
        flow.payload_bytes += payload
        flow.first_time = min(flow.first_time, time)
        flow.last_time = max(flow.last_time, time)
        if np.int64(table.traffic_class[i]) & 3 == _CE:
            flow.ecn_marked += 1
        if bits & codes.REQUEST:
            flow.request_packets += 1
            if bits & codes.READ_REQUEST:
                flow.read_requests += 1
            elif bits & codes.ATOMIC:
                flow.atomic_requests += 1
        elif bits & codes.RESPONSE_DATA:
            flow.response_packets += 1
        elif bits & codes.ACKNOWLEDGE:
            flow.ack_packets += 1
        elif opcode == _CNP_OPCODE:
            flow.cnps += 1
        if not flow.has_transport and (opcode != _CNP_OPCODE or flow.packets == 1):
            flow.transport = codes.TRANSPORT_OF[opcode]
    return len(flow_of_row)

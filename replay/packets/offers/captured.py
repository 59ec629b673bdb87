"""Captured traffic for the packet engine: at the captured times, or as fast as possible."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Array, Int32s, Ints
from ...traffic.message_log import MOST_LOGGED
from ...traffic.traffic import ON_ACKED, ON_RECEIVED, SentMessages, Traffic
from ..model.classes import classes_of
from ..model.model import MOST_PACKETS, PS, Model, Workload
from ..model.waits import NO_WAITS, Waits
from .collectives import both_ways
from .offered import workload_of
from .reshaped import Shape, reshaped

LARGEST_ACK_BYTES = 100
"""If single packets are not known, units with a smaller mean packet size count as ACKs."""
_LARGEST = 65_535


def captured(
    traffic: Traffic,
    model: Model,
    *,
    as_captured: bool,
    window_ns: int | None = None,
    shape: Shape | None = None,
) -> tuple[Workload, list[str]]:
    """The workload of captured flows, with the entropy values of their packets, and notes on it.

    as_captured: every packet is released at its time (with `window_ns` at the start of its
    window); else as fast as possible, messages after the messages that they waited for. Times are
    relative to the first packet. Packets keep their sizes. If there were too many packets, the
    packets of a message have equal sizes, are spread evenly between its first and last packet, and
    use the entropy values of their flow in turn; if there were too many messages, a unit is one
    message. shape: other sizes and queue pairs. UsageError if nothing remains.
    """
    sent, notes = traffic.messages, []
    if sent is None:
        if shape is not None:
            raise UsageError(
                "--model: message-size, qps and mtu need single messages, and there are more than "
                f"{MOST_LOGGED:,}: choose some with --filter"
            )
        traffic, sent, left = _units_as_messages(traffic)
        if left:
            notes.append(f"{left:,} units of ACKs are omitted: the packet engine generates ACKs")
    else:
        notes += sent.left_out
    inside = traffic.src_host != traffic.dst_host
    if not inside.all():
        sent = replace(traffic, messages=sent).take(inside).messages
        traffic = traffic.take(inside)
    if sent is None or not len(sent.flow):
        raise UsageError("the traffic has no data packets to replay; ACKs alone are not offered")
    if shape is not None:
        traffic, sent, note = reshaped(traffic, sent, shape, not as_captured)
        notes.append(note)
    if int(sent.packets.max()) >= MOST_PACKETS:
        raise UsageError(f"a message of {int(sent.packets.max()):,} packets is too long to replay")
    if not as_captured:
        notes += sent.notes
    if sent.times is None:
        notes.append(
            "too many packets to keep the time and size of each: those of a message are spread "
            "evenly between its first and last packet"
        )
    if len(model.classes) > 1 and traffic.dscp is not None:
        named = [dscp for one in model.classes for dscp in one.dscps]
        others = np.setdiff1d(traffic.dscp[np.isin(traffic.flow, sent.flow)], named)
        notes += [
            f"no flow has the DSCP of class {one.name}"
            for one in model.classes
            if one.dscps and not np.isin(traffic.dscp, one.dscps).any()
        ]
        if len(others) and model.classes[0].dscps:
            told = ", ".join(map(str, others.tolist()))
            notes.append(
                f"flows with DSCP {told}, which no class lists, use class {model.classes[0].name}"
            )
    return _workload(traffic, sent, model, as_captured, window_ns), notes


class _Streams(NamedTuple):
    """The flows of the engine: the requests of a captured flow, or the data of its READs."""

    of_message: Ints
    rows: Ints
    """Units of the traffic; first the main unit of each stream."""
    row_of_packet: Int32s
    """Index of `rows`; empty if every stream has one unit."""


def _workload(
    traffic: Traffic, sent: SentMessages, model: Model, as_captured: bool, window_ns: int | None
) -> Workload:
    size = _sizes(sent)
    streams = _streams(traffic, sent)
    main = streams.rows[: int(streams.of_message[-1]) + 1]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sent.packets)])
    none = np.zeros(0, np.int64)
    due = _due_ps(sent, window_ns) if as_captured else none
    workload = workload_of(
        traffic.src_host[main],
        traffic.dst_host[main],
        sent.packets * model.payload_bytes,
        _offered(traffic, streams, size, sent.packets, model),
        model,
        flow=streams.of_message,
        release_ps=due[start[:-1]] if as_captured else None,
        after=None if as_captured else sent.after,
        on=None if as_captured else sent.on,
    )
    if len(model.classes) > 1 and traffic.dscp is not None:
        workload = workload._replace(priority=classes_of(traffic.dscp[main], model.classes))
    return workload._replace(
        packet_bytes=np.maximum.reduceat(size, start[:-1]).astype(np.int64),
        last_bytes=size[start[1:] - 1].astype(np.int64),
        due_ps=due,
        wire_bytes=size,
        unit=streams.row_of_packet,
        waits=NO_WAITS if as_captured else _linked(traffic, sent, main[streams.of_message]),
    )


def _linked(traffic: Traffic, sent: SentMessages, row: Ints) -> Waits:
    """Further predecessors, and links to other queue pairs: the host computes between the arrival
    and the message. row: main unit of each message."""
    links, besides, messages = sent.links, sent.besides, len(sent.flow)
    work = messages + np.arange(len(links.message), dtype=np.int32)
    by_links = np.repeat(np.array([ON_RECEIVED, ON_ACKED], np.uint8), len(work))
    return Waits(
        np.concatenate([work, links.message, besides.message]),
        np.concatenate([links.after, work, besides.after]),
        np.concatenate([by_links, besides.on]),
        traffic.src_host[row[links.message]],
        links.gap_ns * PS,
    )


def _units_as_messages(traffic: Traffic) -> tuple[Traffic, SentMessages, int]:
    """(each unit as a flow with one message, these messages, number of units left out as ACKs)."""
    data = traffic.packets * LARGEST_ACK_BYTES <= traffic.wire_bytes
    n = int(np.count_nonzero(data))
    units = replace(traffic.take(data), flow=np.arange(n, dtype=np.int32))
    sent = SentMessages(
        flow=units.flow,
        responses=np.zeros(n, np.bool_),
        packets=np.maximum(1, units.packets),
        payload_bytes=np.zeros(n, np.int64),
        wire_bytes=units.wire_bytes,
        begun_ns=units.first_ns,
        ended_ns=units.last_ns,
        after=np.full(n, -1, np.int32),
        on=np.zeros(n, np.uint8),
        notes=("asap: too many messages: each entropy value of a flow is offered as one message",),
    )
    return units, sent, len(traffic) - n


def _sizes(sent: SentMessages) -> Int32s:
    """int32[packets]: bytes on the wire."""
    if sent.times is not None:
        return np.clip(sent.times.wire_bytes, 1, _LARGEST).astype(np.int32)
    each = np.repeat(sent.wire_bytes // sent.packets, sent.packets)
    more = _number(sent) < np.repeat(sent.wire_bytes % sent.packets, sent.packets)
    sizes: Int32s = np.clip(each + more, 1, _LARGEST).astype(np.int32)
    return sizes


def _number(sent: SentMessages) -> Ints:
    """int64[packets]: number within the message."""
    first = np.cumsum(sent.packets) - sent.packets
    return np.arange(int(sent.packets.sum())) - np.repeat(first, sent.packets)


def _due_ps(sent: SentMessages, window_ns: int | None) -> Ints:
    """int64[packets]: release times, relative to the first packet."""
    if sent.times is not None:
        time = sent.times.time_ns.copy()
    else:
        took = np.repeat(sent.ended_ns - sent.begun_ns, sent.packets)
        gaps = np.repeat(np.maximum(1, sent.packets - 1), sent.packets)
        # took * number would overflow for messages that last hours.
        time = (took // gaps) * _number(sent) + (took % gaps) * _number(sent) // gaps
        time += np.repeat(sent.begun_ns, sent.packets)
    start = int(time.min())
    if window_ns:  # as in `WindowCells`
        time = np.maximum(start, time // window_ns * window_ns)
    due: Ints = (time - start) * PS
    return due


def _streams(traffic: Traffic, sent: SentMessages) -> _Streams:
    key = sent.flow.astype(np.int64) * 2 + sent.responses
    _, first, of_message = np.unique(key, return_index=True, return_inverse=True)
    of_message = of_message.reshape(-1)
    of_packet = np.repeat(of_message, sent.packets)
    units = len(traffic)
    if sent.times is not None:
        unit = sent.times.unit.astype(np.int64)
    else:
        unit = _in_turn(traffic, sent)
    start = np.cumsum(sent.packets) - sent.packets
    main = unit[start[first]]
    if (unit == main[of_packet]).all():
        return _Streams(of_message, main, np.zeros(0, np.int32))
    pairs, inverse = np.unique(of_packet * units + unit, return_inverse=True)
    is_main = pairs % units == main[pairs // units]
    row = np.empty(len(pairs), np.int64)
    row[is_main] = pairs[is_main] // units
    row[~is_main] = len(main) + np.arange(int((~is_main).sum()))
    rows = np.concatenate([main, pairs[~is_main] % units])
    return _Streams(of_message, rows, row[inverse.reshape(-1)].astype(np.int32))


def _in_turn(traffic: Traffic, sent: SentMessages) -> Ints:
    """int64[packets]: unit of each packet; the data units of a flow in turn."""
    usable = traffic.packets * LARGEST_ACK_BYTES <= traffic.wire_bytes
    flows = int(traffic.flow.max(initial=-1)) + 1
    without = np.bincount(traffic.flow[usable], minlength=flows) == 0
    usable |= without[traffic.flow]
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(traffic.flow[rows], kind="stable")]
    begin = np.searchsorted(traffic.flow[rows], np.arange(flows + 1))
    flow = np.repeat(sent.flow, sent.packets)
    turn: Ints = rows[begin[flow] + _number(sent) % (begin[flow + 1] - begin[flow])]
    return turn


def _offered(
    traffic: Traffic, streams: _Streams, size: Int32s, packets: Ints, model: Model
) -> Traffic:
    """The units of all streams with their packets and bytes, and their ACKs."""
    of_packet: Array = streams.row_of_packet
    if not len(of_packet):
        of_packet = np.repeat(streams.of_message, packets)
    n = len(streams.rows)
    offered = replace(
        replace(traffic, messages=None, windows=None).take(streams.rows),
        flow=np.arange(n, dtype=np.int32),
        packets=np.bincount(of_packet, minlength=n),
        wire_bytes=np.bincount(of_packet, size, n).astype(np.int64),
    )
    return both_ways(offered, model)

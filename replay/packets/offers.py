"""Workloads of the packet engine: from lists of messages, patterns with barriers, or captures.

Captured messages may have another size, MTU or number of queue pairs, as a what-if. Then each keeps
its time and its dependencies: a packet is released when the byte at the same relative offset of the
captured message was, and all parts of a message wait for all parts of its predecessors. Queue pair
0 keeps its header fields; the others have source ports from 49152 to 65535 at random, and queue
pair numbers that the capture does not use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Array, Bytes, Int32s, Ints
from ..fabrics.fabric import AddressPlan, Fabric
from ..generate.from_pattern import generate, keys_of
from ..generate.patterns import Settings
from ..generate.queue_pairs import START_NS, QueuePairs, Sending
from ..hashing.keys import PacketKeys
from ..results import CAPTURED, CLOSED
from ..traffic.closed_loop import MOST_LOGGED, MOST_PACKETS_LOGGED
from ..traffic.traffic import (
    ON_ACKED,
    ON_RECEIVED,
    Besides,
    Links,
    PacketTimes,
    SentMessages,
    Traffic,
)
from .model.draws import generator
from .model.model import (
    MOST_MESSAGES,
    MOST_PACKETS,
    NO_WAITS,
    PS,
    Model,
    Waits,
    Workload,
    all_with_all,
)
from .model.queueing import classes_of


def units_of(
    pairs: QueuePairs, plan: AddressPlan, flow: Array, message_bytes: Array, model: Model
) -> Traffic:
    """The data of generated queue pairs, then their ACKs, as the engine sends them.

    flow: int[M], queue pair of each message, ascending; message_bytes: int[M] of payload.
    """
    n = len(pairs)
    src, dst = np.concatenate([pairs.src, pairs.dst]), np.concatenate([pairs.dst, pairs.src])
    flow_of = 2 * np.arange(n, dtype=np.int32)
    packets = np.maximum(1, -(-message_bytes // model.payload_bytes))
    sent, acks, payload = (
        np.bincount(flow, each, n).astype(np.int64)
        for each in (packets, -(-packets // model.ack_every), message_bytes)
    )
    last = (pairs.packets - 1) * pairs.interval_ns
    begun = (
        START_NS
        + pairs.start_ns
        + np.stack([np.zeros(n, np.int64), last + pairs.sending.round_trip_ns])
    )
    return Traffic(
        keys=keys_of(
            pairs.sending,
            plan,
            src,
            dst,
            np.tile(pairs.port, 2),
            np.append(pairs.dst_qp, pairs.src_qp),
        ),
        src_host=src.astype(np.int32),
        dst_host=dst.astype(np.int32),
        flow=np.concatenate([flow_of, flow_of + 1]),
        packets=np.concatenate([sent, acks]),
        wire_bytes=np.concatenate([payload + sent * model.header_bytes, acks * model.ack_bytes]),
        first_ns=begun.reshape(-1),
        last_ns=(
            begun + (pairs.messages - 1) * pairs.period_ns + np.stack([last, 0 * last])
        ).reshape(-1),
        has_data=np.arange(2 * n) < n,
    )


def workload_of(
    src: Array,
    dst: Array,
    message_bytes: Array,
    traffic: Traffic,
    model: Model,
    *,
    flow: Array | None = None,
    release_ps: Array | None = None,
    after: Array | None = None,
    on: Array | None = None,
    phase: Array | None = None,
) -> Workload:
    """Messages of `message_bytes` payload each, cut into packets as the model says.

    src, dst: int[F] hosts. flow: int[M], ascending; default one message per flow.
    The others are columns of `Workload`, default 0 or none.
    """
    size = np.asarray(message_bytes, np.int64)
    m = len(size)
    flow = np.arange(m) if flow is None else flow
    packets = np.maximum(1, -(-size // model.payload_bytes))
    if m > MOST_MESSAGES or packets.max(initial=0) >= MOST_PACKETS:
        raise UsageError(
            f"{m:,} messages of up to {packets.max(initial=0):,} packets are too many; "
            f"the most are {MOST_MESSAGES:,} and {MOST_PACKETS - 1:,}"
        )
    zeros = np.zeros(m, np.int64)
    return Workload(
        src=np.asarray(src, np.int32),
        dst=np.asarray(dst, np.int32),
        flow=np.asarray(flow, np.int32),
        flow_start=np.searchsorted(flow, np.arange(len(src) + 1)).astype(np.int64),
        packets=packets,
        packet_start=np.concatenate([np.zeros(1, np.int64), np.cumsum(packets)]),
        packet_bytes=np.full(m, model.payload_bytes + model.header_bytes, np.int64),
        last_bytes=size - (packets - 1) * model.payload_bytes + model.header_bytes,
        release_ps=zeros if release_ps is None else np.asarray(release_ps, np.int64),
        after=np.full(m, -1, np.int32) if after is None else np.asarray(after, np.int32),
        on=np.full(m, ON_ACKED, np.uint8) if on is None else np.asarray(on, np.uint8),
        phase=np.zeros(m, np.int32) if phase is None else np.asarray(phase, np.int32),
        traffic=traffic,
    )


ITERATED = frozenset({"ring-allreduce"})
"""Patterns whose messages are steps: all hosts complete a step before the next begins."""


def collective(
    name: str,
    fabric: Fabric,
    model: Model,
    message_bytes: int,
    seed: int,
    *,
    messages: int = 1,
    qps: int = 1,
    hosts: int | None = None,
) -> Workload:
    """A pattern of `rocescope generate` on the hosts of a fabric, sent as fast as possible.

    UsageError for an unknown pattern or an impossible value.
    """
    settings = Settings(
        hosts=fabric.hosts if hosts is None else hosts,
        message_bytes=message_bytes,
        messages=messages,
        flows=100,
        fan_in=None,
        load=0.5,
        rate_bits_per_second=int(fabric.links.rate_bits_per_second.max()),
    )
    pairs = generate(name, settings, Sending(qps=qps), seed)
    return from_queue_pairs(pairs, fabric, model, name in ITERATED)


def from_queue_pairs(pairs: QueuePairs, fabric: Fabric, model: Model, barriers: bool) -> Workload:
    """Generated queue pairs as flows; with barriers message i of every queue pair is in phase i."""
    flow = np.repeat(np.arange(len(pairs)), pairs.messages)
    size = pairs.message_bytes[flow]
    # Strategies choose entropy values: one value for each queue pair here.
    plain = replace(pairs, sending=pairs.sending._replace(entropy_values=1))
    number = np.arange(len(flow)) - np.repeat(
        np.cumsum(pairs.messages) - pairs.messages, pairs.messages
    )
    return workload_of(
        pairs.src,
        pairs.dst,
        size,
        units_of(plain, fabric.addresses, flow, size, model),
        model,
        flow=flow,
        phase=number if barriers else None,
    )


def both_ways(traffic: Traffic, model: Model) -> Traffic:
    """The units, followed by the ACKs of each unit: addresses exchanged, same ports."""
    keys = traffic.keys
    back = keys._replace(src=keys.dst, dst=keys.src)
    columns: list[Any] = [
        np.concatenate([a, b]) for a, b in zip(list(keys), list(back), strict=True)
    ]
    both = PacketKeys(*columns)
    twice = np.tile(np.arange(len(traffic)), 2)
    data = np.arange(2 * len(traffic)) < len(traffic)
    acks = -(-traffic.packets // model.ack_every)
    src = np.concatenate([traffic.src_host, traffic.dst_host])
    dst = np.concatenate([traffic.dst_host, traffic.src_host])
    return Traffic(
        keys=both,
        src_host=src,
        dst_host=dst,
        flow=np.arange(2 * len(traffic), dtype=np.int32),
        packets=np.concatenate([traffic.packets, acks]),
        wire_bytes=np.concatenate([traffic.wire_bytes, acks * model.ack_bytes]),
        first_ns=traffic.first_ns[twice],
        last_ns=traffic.last_ns[twice],
        has_data=data,
    )


LARGEST_ACK_BYTES = 100
"""If single packets are not known, units with a smaller mean packet size count as ACKs."""
_LARGEST = 65_535


def captured(
    traffic: Traffic,
    model: Model,
    *,
    offer: str,
    window_ns: int | None = None,
    shape: Shape | None = None,
) -> tuple[Workload, list[str]]:
    """The workload of captured flows, with the entropy values of their packets, and notes on it.

    offer: CAPTURED: every packet is released at its time (with `window_ns` at the start of its
    window). ASAP: as fast as possible, messages after the messages that they waited for. CLOSED:
    also after the captured time that their host then took; a message that waits for nothing begins
    at its captured time, and only the packets within a message have other times. Times are
    relative to the first packet. Packets keep their sizes. If there were too many packets, the
    packets of a message have equal sizes, are spread evenly between its first and last packet, and
    use the entropy values of their flow in turn; if there were too many messages, a unit is one
    message. shape: other sizes and queue pairs. UsageError if nothing remains.
    """
    sent, notes = traffic.messages, []
    as_captured = offer == CAPTURED
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
        notes += [f"{offer}: {note}" for note in sent.notes]
    if sent.times is None:
        notes.append(
            "too many packets to keep the time and size of each: those of a message are spread "
            "evenly between its first and last packet"
        )
    if len(model.classes) > 1 and traffic.dscp is not None:
        named = [dscp for kind in model.classes for dscp in kind.dscps]
        others = np.setdiff1d(traffic.dscp[np.isin(traffic.flow, sent.flow)], named)
        notes += [
            f"no flow has the DSCP of class {kind.name}"
            for kind in model.classes
            if kind.dscps and not np.isin(traffic.dscp, kind.dscps).any()
        ]
        if len(others) and model.classes[0].dscps:
            numbers = ", ".join(map(str, others.tolist()))
            notes.append(
                f"flows with DSCP {numbers}, which no class lists, use class "
                f"{model.classes[0].name}"
            )
    return _workload(traffic, sent, model, offer, window_ns), notes


class _Streams(NamedTuple):
    """The flows of the engine: the requests of a captured flow, or the data of its READs."""

    of_message: Ints
    rows: Ints
    """Units of the traffic; first the main unit of each stream."""
    row_of_packet: Int32s
    """Index of `rows`; empty if every stream has one unit."""


def _workload(
    traffic: Traffic, sent: SentMessages, model: Model, offer: str, window_ns: int | None
) -> Workload:
    as_captured = offer == CAPTURED
    size = _sizes(sent)
    streams = _streams(traffic, sent)
    main = streams.rows[: int(streams.of_message[-1]) + 1]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sent.packets)])
    none = np.zeros(0, np.int64)
    due = _due_ps(sent, window_ns) if as_captured else none
    release = due[start[:-1]] if as_captured else None
    if offer == CLOSED:
        release = _closed_ps(sent)
    workload = workload_of(
        traffic.src_host[main],
        traffic.dst_host[main],
        sent.packets * model.payload_bytes,
        _offered(traffic, streams, size, sent.packets, model),
        model,
        flow=streams.of_message,
        release_ps=release,
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


def _closed_ps(sent: SentMessages) -> Ints:
    """int64[messages]: release after what the message waits for, else from the first message on."""
    waits = sent.after >= 0
    waits[sent.besides.message] = True
    idle = sent.idle_ns if len(sent.idle_ns) else np.zeros(len(sent.flow), np.int64)
    release = np.where(waits, idle, sent.begun_ns - sent.begun_ns.min())
    release[sent.links.message] = 0  # the time in between is that of the link
    closed: Ints = release * PS
    return closed


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
        notes=("too many messages: each entropy value of a flow is offered as one message",),
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


MOST_PACKETS_OF_ALL = 1 << 26
"""Of all messages."""
MOST_EDGES = 1 << 26
MOST_UNITS = 1 << 22
_FIRST_PORT = 49_152
_UNKNOWN_MTU = 4096
"""If no message has several packets."""


class Shape(NamedTuple):
    """Changes to captured messages."""

    mtu_bytes: int | None = None
    """None: as captured."""
    longest_bytes: int | None = None
    """Payload of the longest message; others in proportion."""
    factor: float = 1.0
    """Without `longest_bytes`: of all payloads."""
    queue_pairs: int = 1
    """Per captured queue pair; messages are split over them, single packets use them in turn."""


class _Parts(NamedTuple):
    """int64[parts]; the parts of message 0 come first."""

    message: Ints
    queue_pair: Ints
    begin: Ints
    """Offset of its payload in the message."""
    size: Ints
    packets: Ints


def reshaped(
    traffic: Traffic, sent: SentMessages, shape: Shape, waits: bool
) -> tuple[Traffic, SentMessages, str]:
    """(traffic, its messages, a note on their new shape). waits: with dependencies.
    UsageError if there are too many packets, queue pairs or dependencies."""
    k = shape.queue_pairs
    payload_bytes = _scaled(sent.payload_bytes, shape)
    mtu = _mtu(sent) if shape.mtu_bytes is None else np.full(len(payload_bytes), shape.mtu_bytes)
    parts, count = _split(sent, payload_bytes, mtu, k)
    head = (sent.wire_bytes - sent.payload_bytes) // sent.packets  # with that of other layers
    total = int(parts.packets.sum())
    if total > MOST_PACKETS_OF_ALL:
        raise UsageError(
            f"--model: {total:,} packets are too many; the most are {MOST_PACKETS_OF_ALL:,}"
        )
    if len(traffic) * k > MOST_UNITS:
        raise UsageError(f"--model: qps={k}: more than {MOST_UNITS:,} entropy values of flows")
    m = parts.message
    flow = sent.flow[m].astype(np.int64) * k + parts.queue_pair
    order = np.argsort(flow * 2 + sent.responses[m], kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    of = m[order]
    times = None
    if sent.times is not None and total <= MOST_PACKETS_LOGGED:
        ordered = _Parts(*(column[order] for column in parts))
        times = _times(sent.times, sent.packets, ordered, payload_bytes, mtu, head, k)
    none = np.full(len(of), -1, np.int32)
    after, on, links, besides = none, sent.on[of], sent.links, sent.besides
    if waits and k == 1:
        after = sent.after
    elif waits:
        links, besides = _waits(sent, count, place)
    changed = sent._replace(
        flow=flow[order].astype(np.int32),
        responses=sent.responses[of],
        packets=parts.packets[order],
        payload_bytes=parts.size[order],
        wire_bytes=(parts.size + parts.packets * head[m])[order],
        begun_ns=sent.begun_ns[of],
        ended_ns=sent.ended_ns[of],
        after=after,
        on=on,
        times=times,
        links=links,
        besides=besides,
        idle_ns=sent.idle_ns[of] if len(sent.idle_ns) else sent.idle_ns,
    )
    return _more_queue_pairs(traffic, k), changed, _note(sent, changed, shape)


def _note(sent: SentMessages, changed: SentMessages, shape: Shape) -> str:
    words = []
    if shape.longest_bytes is not None or shape.factor != 1:
        was, now = int(sent.payload_bytes.sum()), int(changed.payload_bytes.sum())
        words.append(f"{was:,} bytes of messages are {now:,}")
    if shape.mtu_bytes is not None:
        words.append(f"MTU {shape.mtu_bytes:,} B")
    if shape.queue_pairs > 1:
        words.append(f"{shape.queue_pairs} queue pairs for each")
    return f"not as captured: {', '.join(words)}"


def _scaled(payload: Ints, shape: Shape) -> Ints:
    """Payload of each message; one without payload keeps none."""
    factor, longest = shape.factor, int(payload.max(initial=0))
    if shape.longest_bytes is not None and longest:
        factor = shape.longest_bytes / longest
    return np.where(payload > 0, np.maximum(1, np.rint(payload * factor)), 0).astype(np.int64)


def _mtu(sent: SentMessages) -> Ints:
    """MTU of each message's flow: that of its messages of several packets, else the largest of the
    capture. MTUs are powers of two: all packets but the last one are full."""
    mean = np.maximum(1, -(-sent.payload_bytes // sent.packets))
    fits = np.exp2(np.ceil(np.log2(mean))).astype(np.int64)
    several = (sent.packets > 1) & (sent.payload_bytes > 0)
    most = np.zeros(int(sent.flow.max()) + 1, np.int64)
    np.maximum.at(most, sent.flow[several], fits[several])
    mtu = most[sent.flow]
    other = int(mtu.max()) or _UNKNOWN_MTU
    return np.maximum(256, np.where(mtu > 0, mtu, other))


def _split(sent: SentMessages, payload_bytes: Ints, mtu: Ints, k: int) -> tuple[_Parts, Ints]:
    """(the parts of all messages, number of parts of each)."""
    count = np.minimum(k, np.maximum(1, -(-payload_bytes // mtu)))
    first = np.cumsum(count) - count
    message = np.repeat(np.arange(len(payload_bytes)), count)
    part = np.arange(len(message)) - first[message]
    stream = sent.flow.astype(np.int64) * 2 + sent.responses
    turn = np.arange(len(stream)) - np.searchsorted(stream, stream)
    each, more = (payload_bytes // count)[message], (payload_bytes % count)[message]
    size = each + (part < more)
    return _Parts(
        message,
        (turn[message] + part) % k,
        each * part + np.minimum(part, more),
        size,
        np.maximum(1, -(-size // mtu[message])),
    ), count


def _times(
    times: PacketTimes, packets: Ints, parts: _Parts, total: Ints, mtu: Ints, head: Ints, k: int
) -> PacketTimes:
    """The packets of the parts. packets: of each captured message."""
    part = np.repeat(np.arange(len(parts.message)), parts.packets)
    number = np.arange(len(part)) - np.repeat(
        np.cumsum(parts.packets) - parts.packets, parts.packets
    )
    message = parts.message[part]
    done = number * mtu[message]
    share = (parts.begin[part] + done) / np.maximum(1, total[message])
    captured = np.minimum((share * packets[message]).astype(np.int64), packets[message] - 1)
    source = (np.cumsum(packets) - packets)[message] + captured
    size = np.minimum(mtu[message], parts.size[part] - done) + head[message]
    return PacketTimes(
        (times.unit[source].astype(np.int64) * k + parts.queue_pair[part]).astype(np.int32),
        times.time_ns[source],
        size.astype(np.int32),
    )


def _waits(sent: SentMessages, count: Ints, place: Int32s) -> tuple[Links, Besides]:
    """All parts of a message wait for all parts of its predecessors."""
    waiting = np.flatnonzero(sent.after >= 0)
    links = sent.links
    edges = count[waiting] * count[sent.after[waiting]]
    linked = count[links.message] * count[links.after]
    if int(edges.sum()) + int(linked.sum()) > MOST_EDGES:
        raise UsageError(
            f"--model: qps: more than {MOST_EDGES:,} dependencies between messages: use fewer, or "
            "--offer captured"
        )
    first = np.cumsum(count) - count
    node, after = all_with_all(waiting, sent.after[waiting], count, first)
    on: Bytes = np.repeat(sent.on[waiting], edges)
    message, arrived = all_with_all(links.message, links.after, count, first)
    return (
        Links(place[message], place[arrived], np.repeat(links.gap_ns, linked)),
        Besides(place[node], place[after], on),
    )


def _more_queue_pairs(traffic: Traffic, k: int) -> Traffic:
    """Every unit k times: unit u of queue pair q is row u * k + q."""
    if k == 1:
        return traffic
    bare = replace(traffic, messages=None, windows=None, seen=None)
    rows = np.repeat(np.arange(len(traffic)), k)
    number = np.arange(len(rows)) % k
    more = bare.take(rows)
    new = number > 0
    free = int(traffic.keys.dest_qp.max(initial=0)) + 1
    qpn = free + more.flow.astype(np.int64) * (k - 1) + number - 1
    ports = generator(0).integers(_FIRST_PORT, 1 << 16, len(rows))
    keys: PacketKeys = more.keys._replace(
        sport=np.where(new, ports, more.keys.sport).astype(np.uint16),
        dest_qp=np.where(new, qpn & 0xFFFFFF, more.keys.dest_qp).astype(np.uint32),
    )
    flow = (more.flow.astype(np.int64) * k + number).astype(np.int32)
    return replace(more, keys=keys, flow=flow)

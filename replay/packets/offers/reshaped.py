"""Captured messages with another size, MTU or number of queue pairs, as a what-if.

Every message keeps its time and its dependencies: a packet is released when the byte at the same
relative offset of the captured message was, and all parts of a message wait for all parts of its
predecessors. Queue pair 0 keeps its header fields; the others have source ports from 49152 to
65535 at random, and queue pair numbers that the capture does not use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Bytes, Int32s, Ints
from ...hashing.keys import PacketKeys
from ...traffic.linked import Links
from ...traffic.message_log import MOST_PACKETS_LOGGED
from ...traffic.traffic import Besides, PacketTimes, SentMessages, Traffic
from ..model.draws import generator
from ..model.waits import all_with_all

MOST_PACKETS = 1 << 26
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
    whole = _scaled(sent.payload_bytes, shape)
    mtu = _mtu(sent) if shape.mtu_bytes is None else np.full(len(whole), shape.mtu_bytes)
    parts, count = _split(sent, whole, mtu, k)
    head = (sent.wire_bytes - sent.payload_bytes) // sent.packets  # with that of other layers
    total = int(parts.packets.sum())
    if total > MOST_PACKETS:
        raise UsageError(f"--model: {total:,} packets are too many; the most are {MOST_PACKETS:,}")
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
        times = _times(sent.times, sent.packets, ordered, whole, mtu, head, k)
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
    )
    return _more_queue_pairs(traffic, k), changed, _note(sent, changed, shape)


def _note(sent: SentMessages, changed: SentMessages, shape: Shape) -> str:
    told = []
    if shape.longest_bytes is not None or shape.factor != 1:
        was, now = int(sent.payload_bytes.sum()), int(changed.payload_bytes.sum())
        told.append(f"{was:,} bytes of messages are {now:,}")
    if shape.mtu_bytes is not None:
        told.append(f"MTU {shape.mtu_bytes:,} B")
    if shape.queue_pairs > 1:
        told.append(f"{shape.queue_pairs} queue pairs for each")
    return f"not as captured: {', '.join(told)}"


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
    found = most[sent.flow]
    other = int(found.max()) or _UNKNOWN_MTU
    return np.maximum(256, np.where(found > 0, found, other))


def _split(sent: SentMessages, whole: Ints, mtu: Ints, k: int) -> tuple[_Parts, Ints]:
    """(the parts of all messages, number of parts of each)."""
    count = np.minimum(k, np.maximum(1, -(-whole // mtu)))
    first = np.cumsum(count) - count
    message = np.repeat(np.arange(len(whole)), count)
    part = np.arange(len(message)) - first[message]
    stream = sent.flow.astype(np.int64) * 2 + sent.responses
    turn = np.arange(len(stream)) - np.searchsorted(stream, stream)
    each, more = (whole // count)[message], (whole % count)[message]
    size = each + (part < more)
    return _Parts(
        message,
        (turn[message] + part) % k,
        each * part + np.minimum(part, more),
        size,
        np.maximum(1, -(-size // mtu[message])),
    ), count


def _times(
    times: PacketTimes, packets: Ints, parts: _Parts, whole: Ints, mtu: Ints, head: Ints, k: int
) -> PacketTimes:
    """The packets of the parts. packets: of each captured message."""
    part = np.repeat(np.arange(len(parts.message)), parts.packets)
    number = np.arange(len(part)) - np.repeat(
        np.cumsum(parts.packets) - parts.packets, parts.packets
    )
    message = parts.message[part]
    done = number * mtu[message]
    share = (parts.begin[part] + done) / np.maximum(1, whole[message])
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
            "offer=captured"
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
    own = free + more.flow.astype(np.int64) * (k - 1) + number - 1
    ports = generator(0).integers(_FIRST_PORT, 1 << 16, len(rows))
    keys: PacketKeys = more.keys._replace(
        sport=np.where(new, ports, more.keys.sport).astype(np.uint16),
        dest_qp=np.where(new, own & 0xFFFFFF, more.keys.dest_qp).astype(np.uint32),
    )
    flow = (more.flow.astype(np.int64) * k + number).astype(np.int32)
    return replace(more, keys=keys, flow=flow)

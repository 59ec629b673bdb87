"""Lower bounds of completion times: an idle network with ideal load balancing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from ...kernels.kernel import Int32s, Ints
from ..fabrics.fabric import Fabric
from ..traffic.traffic import ON_RECEIVED
from .model.arrays import FabricArrays, fabric_arrays
from .model.model import LINE_RATE, Model, Workload, pace_of

Way: TypeAlias = Callable[[int, int, int], int | None]
"""(host, host, bytes) -> ps of the fastest path through an idle network, None without a path."""


class Bounds(NamedTuple):
    """Lower bounds in ps."""

    completion_ps: int
    """Of all messages, from the first release on."""
    message_ps: Ints
    """int64[M]: of each message alone in the network, from its release on; -1 without a path."""
    kind: str
    """What bounds the completion, in words."""


def permutation_bound_ps(
    packets: int, data_ps: int, ack_ps: int, gap_ps: int, propagation_ps: int, hops: int
) -> int:
    """Every host sends `packets` packets to one host, receives as many, and acknowledges each.

    data_ps, ack_ps, gap_ps: time on a link; propagation_ps: one way, all links together. The first
    i1 packets leave before the first ACK; then a host sends data and ACKs in turn; at last the last
    packet crosses the network and its ACK returns. For 1 MiB of 4,096 B packets with
    62 B of header, 64 B ACKs and 20 B gaps at 800 Gb/s over 6 links of 0.5 us: 17.05674 us.

    Source: "Load Balancing for AI Training Workloads" (arXiv 2507.21372), appendix B; the
    closed form is derived from its description and equals its simulated minimum within 2 ns.
    """
    data, ack = data_ps + gap_ps, ack_ps + gap_ps
    alone = -(-(propagation_ps + (hops - 1) * data_ps) // data) + 1
    last = (packets - 1) * data + max(0, packets - alone) * ack
    return last + 2 * propagation_ps + hops * (data_ps + ack_ps)


def bounds(workload: Workload, fabric: Fabric, model: Model, rate_share: float = 1.0) -> Bounds:
    """Bounds for a workload on a fabric whose hosts send data at a share of their rate.

    `permutation_bound_ps` if every host sends as much as it receives on links of one rate (a
    permutation has one message per host, an all-to-all many). Otherwise the larger of the slowest
    message alone, and the host that sends or receives the most. The bounds of phases (between
    barriers) are summed; predecessors extend the messages that wait for them.
    """
    arrays = fabric_arrays(fabric)
    pace = pace_of(rate_share)
    at_once = _alone(workload, arrays, model, pace)
    by_line = at_once if pace == LINE_RATE else _alone(workload, arrays, model, LINE_RATE)
    reached = at_once.done >= 0
    alone = _in_time(workload, at_once)
    total = 0
    kinds = set()
    for phase in range(int(workload.phase.max(initial=-1)) + 1):
        rows = np.flatnonzero((workload.phase == phase) & reached)
        if not len(rows):
            continue
        exact = _permutations(workload, arrays, model, rows, pace)
        if exact is not None:
            total += exact
            kinds.add("data and ACKs of a host")
            continue
        busiest = max(
            _busiest_host(workload, arrays, model, rows, workload.src, at_once.done, pace),
            _busiest_host(workload, arrays, model, rows, workload.dst, by_line.done, LINE_RATE),
        )
        chains = _chains(workload, rows, alone, at_once.received)
        total += max(busiest, chains)
        kinds.add("transmission of the busiest host" if busiest >= chains else "longest message")
    return Bounds(total, alone, ", ".join(sorted(kinds)))


def _service(size: int, q20: int) -> int:
    return (size * q20 + (1 << 19)) >> 20


def _services(size: Ints, q20: int) -> Ints:
    """`_service` without overflow for messages of terabytes."""
    return size // (1 << 20) * q20 + ((size % (1 << 20) * q20 + (1 << 19)) >> 20)


def _occupied(size: int, gap: int, q20: int, pace: int) -> int:
    """Time from the begin of a packet until its port is free for the next packet."""
    return max(_service(size + gap, q20), _service(size, q20) * pace >> 20)


class _Alone(NamedTuple):
    """Times of each message alone in the network from its release on: int64[M], ps; -1: no path."""

    done: Ints
    """Packets back to back, the path of the last packet and of its ACK."""
    received: Ints
    """The same without the ACK."""
    last: Ints
    """The path of the last packet and of its ACK."""


def _alone(workload: Workload, arrays: FabricArrays, model: Model, pace: int) -> _Alone:
    gap = model.gap_bytes
    way = _latencies(arrays)
    wire = workload.message_bytes() if len(workload.wire_bytes) else 0 * workload.packets
    ends = workload.src[workload.flow], workload.dst[workload.flow]
    sizes = workload.packets, workload.packet_bytes, workload.last_bytes, wire
    kinds, of_message = np.unique(np.stack([*ends, *sizes]), axis=1, return_inverse=True)
    found = np.full((3, kinds.shape[1]), -1, np.int64)
    for at, (src, dst, n, size, last, total) in enumerate(kinds.T.tolist()):
        there, back = way(src, dst, last), way(dst, src, model.ack_bytes)
        if there is None or back is None:
            continue
        rate, slowest = _port_rate(arrays, src), _slowest_port(arrays, src)
        each = _occupied(size, gap, rate, pace)
        # The last packet uses one port. It begins when all ports together have sent everything
        # except the share of this port during its last packet.
        single = _occupied(size, gap, slowest, pace)
        if total:  # packets of different sizes, each time rounded to 1 ps
            if rate == slowest:
                single = _occupied(last, gap, slowest, pace)
            sending = _occupied(total, n * gap, rate, pace) - n
            whole = max(0, sending - single) + there
        else:
            whole = max(0, n * each - single) + there
            if n > 1:  # a short last packet may overtake the previous packet
                before = max(0, (n - 1) * each - single)
                whole = max(whole, before + (way(src, dst, size) or 0))
        found[:, at] = whole + back, whole, there + back
    return _Alone(*found[:, of_message.reshape(-1)])


def _in_time(workload: Workload, alone: _Alone) -> Ints:
    """`_Alone.done` if packets are not sent before their times."""
    if not len(workload.due_ps):
        return alone.done
    start = workload.packet_start
    waits = workload.due_ps[start[1:] - 1] - workload.due_ps[start[:-1]]
    return np.where(alone.done >= 0, np.maximum(alone.done, waits + alone.last), -1)


def _port_rate(arrays: FabricArrays, host: int) -> int:
    """ps per byte of all ports of a host together, scaled by 2**20."""
    ports = [int(x) for x in arrays.access[host] if x >= 0]
    rates = [1 / int(arrays.ps_per_byte_q20[link]) for link in ports]
    return round(1 / sum(rates)) if rates else 0


def _slowest_port(arrays: FabricArrays, host: int) -> int:
    """ps per byte of the slowest port of a host, scaled by 2**20."""
    return max(int(arrays.ps_per_byte_q20[x]) for x in arrays.access[host] if x >= 0)


def _latencies(arrays: FabricArrays) -> Way:
    q20, delay = arrays.ps_per_byte_q20.tolist(), arrays.delay_ps.tolist()

    @cache
    def onwards(switch: int, edge: int, size: int, depth: int) -> int | None:
        group = int(arrays.route[switch, edge])
        if group == -2:
            return 0
        if group < 0 or depth > 64:
            return None
        part = slice(int(arrays.group_start[group]), int(arrays.group_start[group + 1]))
        ways = []
        for link in arrays.members[part].tolist():
            rest = onwards(int(arrays.target[link]), edge, size, depth + 1)
            if rest is not None:
                ways.append(_service(size, q20[link]) + delay[link] + rest)
        return min(ways, default=None)

    @cache
    def between(switch: int, edge: int, size: int) -> int | None:
        return onwards(switch, edge, size, 0)

    def way(src: int, dst: int, size: int) -> int | None:
        edge = int(arrays.host_edge[dst])
        ways = []
        for port, switch in enumerate(arrays.host_switch[src].tolist()):
            middle = between(switch, edge, size) if switch >= 0 and edge >= 0 else None
            if middle is not None:
                first = int(arrays.access[src, port])
                last = min(int(x) for x in arrays.exits[dst] if x >= 0)
                ends = sum(_service(size, q20[link]) + delay[link] for link in (first, last))
                ways.append(ends + middle)
        return min(ways, default=None)

    return way


def _permutations(
    workload: Workload, arrays: FabricArrays, model: Model, rows: Ints, pace: int
) -> int | None:
    """The bound if every host sends as much as it receives, all from the begin; else None.

    One message per host is the paper's permutation. With several messages (all-to-all) the last
    packet may have the shortest path, and ACKs may begin as late as the longest path permits.
    """
    if len(workload.wire_bytes):  # captured: no collective
        return None
    flows = workload.flow[rows]
    src, dst = workload.src[flows], workload.dst[flows]
    packets = workload.packets[rows]
    sent = np.bincount(src, packets, arrays.hosts)
    same = np.array_equal(sent, np.bincount(dst, packets, arrays.hosts))
    size = int(workload.packet_bytes[rows[0]])
    sizes = np.concatenate([workload.packet_bytes[rows], workload.last_bytes[rows]])
    plain = (workload.release_ps[rows] == 0).all() and (workload.after[rows] < 0).all()
    uniform = len(np.unique(arrays.ps_per_byte_q20)) == 1 and len(np.unique(arrays.delay_ps)) == 1
    one_port = arrays.access.shape[1] == 1 and model.ack_every == 1
    if not (same and len(np.unique(sent[sent > 0])) == 1 and (sizes == size).all() and plain):
        return None
    if not (uniform and one_port):
        return None
    q20, delay = int(arrays.ps_per_byte_q20[0]), int(arrays.delay_ps[0])
    data, ack = _service(size, q20), _service(model.ack_bytes, q20)
    gap = _service(size + model.gap_bytes, q20) - data
    way = _latencies(arrays)
    edges = np.unique(np.stack([arrays.host_edge[src], arrays.host_edge[dst]]), axis=1)
    first = {int(e): h for h, e in reversed(list(enumerate(arrays.host_edge.tolist())))}
    ways = [way(first[int(a)], first[int(b)], size) or 0 for a, b in edges.T]
    far, near = (round(ps / (data + delay)) for ps in (max(ways), min(ways)))
    if len(src) == np.count_nonzero(sent):
        near = far  # the message with the longest path is the only message of its host
    bound = permutation_bound_ps(int(sent.max()), data, ack, gap, far * delay, far)
    paced = (int(sent.max()) - 1) * _occupied(size, model.gap_bytes, q20, pace)
    return max(
        bound - 2 * (far - near) * delay - (far - near) * (data + ack),
        paced + 2 * near * delay + near * (data + ack),
    )


def _busiest_host(
    workload: Workload,
    arrays: FabricArrays,
    model: Model,
    rows: Ints,
    hosts: Int32s,
    alone: Ints,
    pace: int,
) -> int:
    """All bytes of a host back to back, then the path of the last packet, for the busiest host.

    hosts: the senders or the receivers of flows."""
    gap = model.gap_bytes
    ends, n = hosts[workload.flow[rows]], workload.packets[rows]
    wire = workload.message_bytes()[rows]
    largest = np.where(n > 1, workload.packet_bytes[rows], workload.last_bytes[rows])
    # The rest of a message's time alone after its packets passed the ports of the host, the last
    # packet through one port.
    most = 0
    total, packets = (np.bincount(ends, of, arrays.hosts).astype(np.int64) for of in (wire, n))
    for host in np.flatnonzero(total).tolist():
        rate, port = _port_rate(arrays, host), _slowest_port(arrays, host)
        own = ends == host
        sending = np.maximum(
            np.maximum(
                _services(wire[own] + n[own] * gap, rate), _services(wire[own], rate) * pace >> 20
            ),
            np.maximum(
                _services(largest[own] + gap, port), _services(largest[own], port) * pace >> 20
            ),
        )
        rest = int((alone[rows[own]] - sending).min())
        first = int(workload.release_ps[rows[own]].min())
        whole = _occupied(int(total[host]), int(packets[host]) * gap, rate, pace)
        most = max(most, first + whole + rest)
    return most


def _chains(workload: Workload, rows: Ints, alone: Ints, received: Ints) -> int:
    """The longest chain of messages that wait for their predecessors."""
    if (workload.after[rows] < 0).all():
        return int((workload.release_ps[rows] + alone[rows]).max(initial=0))
    begun: dict[int, int] = {}
    own = set(rows.tolist())
    for m in rows.tolist():
        stack = [m]
        while stack:
            top = stack[-1]
            before = int(workload.after[top])
            if before in own and before not in begun:
                stack.append(before)
                continue
            begun[top] = int(workload.release_ps[top])
            if before in own:
                done = received if workload.on[top] == ON_RECEIVED else alone
                begun[top] += begun[before] + int(done[before])
            stack.pop()
    return max((begin + int(alone[m]) for m, begin in begun.items()), default=0)

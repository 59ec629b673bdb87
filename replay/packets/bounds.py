"""Lower bounds of completion times: an idle network with ideal load balancing."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Array, Ints, NamedTuple
from ..fabrics.fabric import Fabric
from ..traffic.traffic import ON_ACKED
from .failures import SLOW, Failures
from .model.arrays import FabricArrays, Ways, by_any_link, fabric_arrays, with_cut_through
from .model.model import LINE_RATE, Edges, Model, Workload, earliest, pace_of

_ROUNDING_PS = 64
"""More than all roundings of a packet's times on its path."""


class Bounds(NamedTuple):
    """Lower bounds in ps."""

    completion_ps: int
    """From the first release to the end of all messages and computations."""
    message_ps: Ints
    """int64[M]: from release to end of each message, alone in the network; -1 without a path."""
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


def bounds(
    workload: Workload,
    fabric: Fabric,
    model: Model,
    rate_share: float = 1.0,
    failures: Failures | None = None,
) -> Bounds:
    """Bounds for a workload on a fabric whose hosts send data at a share of their rate.

    `permutation_bound_ps` if every host sends as much as it receives on links of one rate (a
    permutation has one message per host, an all-to-all many). Otherwise the larger of the slowest
    message alone, and the host that sends or receives the most. The bounds of phases (between
    barriers) are summed; predecessors extend the messages that wait for them. With failures, whose
    routes may change, paths may take any link, at its highest rate.
    """
    arrays = fabric_arrays(fabric)
    if failures is not None and failures.events:
        arrays = by_any_link(_at_their_fastest(arrays, fabric, failures), fabric.links.source)
    if model.cut_through:
        arrays = with_cut_through(arrays, fabric.links.source, model.header_bytes)
    pace = pace_of(rate_share)
    paths = Ways(arrays)
    at_once = _alone(workload, arrays, paths, model, pace)
    reached = at_once.done >= 0
    alone = _in_time(workload, at_once)
    parts = None
    total = 0
    kinds = set()
    slowest = "longest message"
    if not workload.at_once.all():
        slowest = "longest chain of messages"
        if len(workload.waits.takes_ps):
            slowest += " and computations"
    for phase in range(int(workload.phase.max(initial=-1)) + 1):
        rows = np.flatnonzero((workload.phase == phase) & reached)
        if not len(rows):
            continue
        exact = _permutations(workload, arrays, paths, model, rows, pace)
        if exact is not None:
            total += exact
            kinds.add("data and ACKs of a host")
            continue
        if parts is None:
            parts = _parts(workload, paths, model, reached)
        of_rows = parts.of(
            np.isin(parts.message, rows) if len(rows) < len(reached) else slice(None)
        )
        busiest = max(
            _busiest_sender(of_rows, workload, arrays, model, pace),
            _busiest_receiver(of_rows, workload, arrays, model),
        )
        chains = _chains(workload, rows, alone, at_once.received, phase == 0)
        total += max(busiest, chains)
        kinds.add("transmission of the busiest host" if busiest >= chains else slowest)
    return Bounds(total, alone, ", ".join(sorted(kinds)))


def _at_their_fastest(arrays: FabricArrays, fabric: Fabric, failures: Failures) -> FabricArrays:
    """Links at the highest rate that an event gives them."""
    per_byte = arrays.ps_per_byte_q20.copy()
    for event in failures.events:
        if event.what == SLOW:
            raised = round(8e12 * (1 << 20) / event.value)
            for link in (
                fabric.find_links(event.link) if isinstance(event.link, str) else [event.link]
            ):
                per_byte[link] = min(int(per_byte[link]), raised)
    return arrays._replace(ps_per_byte_q20=per_byte)


def _service(size: Array | int, q20: Array | int) -> Array:
    """Time of messages of any size on a link, without overflow."""
    sizes, per_byte = np.asarray(size, np.int64), np.asarray(q20, np.int64)
    mebibytes, rest = sizes >> 20, sizes & ((1 << 20) - 1)
    return mebibytes * per_byte + ((rest * per_byte + (1 << 19)) >> 20)


def _occupied(size: Array | int, gap: Array | int, q20: Array | int, pace: int) -> Array:
    """Time for which packets of `size` bytes in total keep their port busy."""
    plain = _service(np.asarray(size) + gap, q20)
    if pace == LINE_RATE:
        return plain
    alone = _service(size, q20)
    units, rest = alone // LINE_RATE, alone % LINE_RATE
    return np.maximum(plain, units * pace + (rest * pace >> 20))


class _Alone(NamedTuple):
    """Times from the release of each message, alone in the network: int64[M], ps; -1: no path."""

    done: Ints
    """All packets back to back, then the path of the last packet and of its ACK."""
    received: Ints
    """The same without the ACK."""
    last: Ints
    """The path of the last packet and of its ACK."""


def _alone(
    workload: Workload, arrays: FabricArrays, paths: Ways, model: Model, pace: int
) -> _Alone:
    gap = model.gap_bytes
    src, dst = workload.src[workload.flow], workload.dst[workload.flow]
    n, size, last = workload.packets, workload.packet_bytes, workload.last_bytes
    there, back = _both_ways(paths, src, dst, last, model)
    rate, slowest = _port_rates(arrays)
    # The last packet uses one port. It begins when all ports together have sent everything
    # except the share of this port during its last packet.
    single = _occupied(size, gap, slowest[src], pace)
    if len(workload.wire_bytes):  # packets of different sizes, each time rounded to 1 ps
        one_port = rate[src] == slowest[src]
        single = np.where(one_port, _occupied(last, gap, slowest[src], pace), single)
        sending = _occupied(workload.message_bytes(), n * gap, rate[src], pace) - n
        received = np.maximum(0, sending - single) + there
    else:
        each = _occupied(size, gap, rate[src], pace)
        received = np.maximum(0, n * each - single) + there
        if (n > 1).any():  # a short last packet may overtake the previous packet
            full = paths.fastest(src, dst, size)
            before = np.maximum(0, (n - 1) * each - single) + full
            received = np.where(n > 1, np.maximum(received, before), received)
    reached = (there >= 0) & (back >= 0)
    return _Alone(*(np.where(reached, of, -1) for of in (received + back, received, there + back)))


def _both_ways(paths: Ways, src: Array, dst: Array, size: Array, model: Model) -> tuple[Ints, Ints]:
    """Fastest times of packets, and of their ACKs."""
    there = paths.fastest(src, dst, size)
    return there, paths.fastest(dst, src, np.full(len(src), model.ack_bytes))


def _in_time(workload: Workload, alone: _Alone) -> Ints:
    """`_Alone.done` if packets are not sent before their times."""
    if not len(workload.due_ps):
        return alone.done
    start = workload.packet_start
    waits = workload.due_ps[start[1:] - 1] - workload.due_ps[start[:-1]]
    return np.where(alone.done >= 0, np.maximum(alone.done, waits + alone.last), -1)


def _port_rates(arrays: FabricArrays) -> tuple[Ints, Ints]:
    """(of all ports of each host together, of its slowest port): int64[H], ps per byte scaled by
    2**20; 0 for hosts without a port."""
    there = arrays.access >= 0
    per_byte = np.where(there, arrays.ps_per_byte_q20[arrays.access], 0)
    inverse = np.where(there, 1.0 / np.maximum(per_byte, 1), 0.0).sum(1)
    together = np.where(inverse > 0, np.floor(1.0 / np.where(inverse > 0, inverse, 1.0)), 0)
    slowest = per_byte.max(1)
    return np.where(there.sum(1) == 1, slowest, together.astype(np.int64)), slowest


def _permutations(
    workload: Workload,
    arrays: FabricArrays,
    paths: Ways,
    model: Model,
    rows: Ints,
    pace: int,
) -> int | None:
    """The bound if every host sends as much as it receives, all from the start; else None.

    One message per host is the paper's permutation. With several messages (all-to-all) the last
    packet may have the shortest path, and ACKs may begin as late as the longest path permits.
    """
    if len(workload.wire_bytes) or model.cut_through:  # captured: no collective
        return None
    flows = workload.flow[rows]
    src, dst = workload.src[flows], workload.dst[flows]
    packets = workload.packets[rows]
    sent = np.bincount(src, packets, arrays.hosts)
    same = np.array_equal(sent, np.bincount(dst, packets, arrays.hosts))
    size = int(workload.packet_bytes[rows[0]])
    sizes = np.concatenate([workload.packet_bytes[rows], workload.last_bytes[rows]])
    plain = (workload.release_ps[rows] == 0).all() and workload.at_once[rows].all()
    plain = plain and not len(workload.waits.takes_ps)
    uniform = _equal(arrays.ps_per_byte_q20) and _equal(arrays.delay_ps)
    one_port = arrays.access.shape[1] == 1 and model.ack_every == 1
    if not (same and _equal(sent[sent > 0]) and (sizes == size).all() and plain):
        return None
    if not (uniform and one_port):
        return None
    q20, delay = int(arrays.ps_per_byte_q20[0]), int(arrays.delay_ps[0])
    data, ack = int(_service(size, q20)), int(_service(model.ack_bytes, q20))
    gap = int(_service(size + model.gap_bytes, q20)) - data
    times = paths.fastest(src, dst, np.full(len(src), size))
    far, near = (round(int(ps) / (data + delay)) for ps in (times.max(), times.min()))
    if len(src) == np.count_nonzero(sent):
        near = far  # the message with the longest path is the only message of its host
    bound = permutation_bound_ps(int(sent.max()), data, ack, gap, far * delay, far)
    paced = (int(sent.max()) - 1) * int(_occupied(size, model.gap_bytes, q20, pace))
    return max(
        bound - 2 * (far - near) * delay - (far - near) * (data + ack),
        paced + 2 * near * delay + near * (data + ack),
    )


class _Parts(NamedTuple):
    """Packets of messages, in parts of N: those before the last one, and the last one."""

    message: Ints
    """int64[N]"""
    bytes: Ints
    packets: Ints
    least: Ints
    """int64[N]: size of the smallest packet."""
    most: Ints
    way: Ints
    """int64[2, N]: ps from host to host of the smallest and of the largest packet."""
    back: Ints
    """int64[N]: ps of an ACK."""

    def of(self, rows: Array | slice) -> _Parts:
        """Some of the parts."""
        return _Parts(*(column[..., rows] for column in self))


def _parts(workload: Workload, paths: Ways, model: Model, reached: Array) -> _Parts:
    """The parts of all messages that have a path."""
    m = np.flatnonzero(reached)
    n, size, last = workload.packets[m], workload.packet_bytes[m], workload.last_bytes[m]
    if len(workload.wire_bytes):
        least = np.minimum.reduceat(workload.wire_bytes, workload.packet_start[:-1])[m]
        columns = [[m], [workload.message_bytes()[m]], [n], [least], [size]]
    else:
        more = n > 1
        columns = [
            [m[more], m],
            [(n[more] - 1) * size[more], last],
            [n[more] - 1, np.ones(len(m), np.int64)],
            [size[more], last],
            [size[more], last],
        ]
    message, total, packets, least, most = (
        np.concatenate(column).astype(np.int64) for column in columns
    )
    flow = workload.flow[message]
    src, dst = workload.src[flow], workload.dst[flow]
    small, back = _both_ways(paths, src, dst, least, model)
    way = np.stack([small, paths.fastest(src, dst, most)])
    way -= np.where(least == most, 0, _ROUNDING_PS)  # for the sizes between
    return _Parts(message, total, packets, least, most, way, back)


def _equal(values: Array) -> bool:
    """Whether there are values and all are equal; np.unique loads a large module."""
    return len(values) > 0 and bool((values == values[0]).all())


def _busy(parts: _Parts, model: Model, rate: Ints, port: Ints, pace: int) -> Ints:
    """int64[N]: time of all packets on the ports of their host. Where packets or ports differ, less
    1 ps per packet, which the driver may gain by rounding."""
    each = _occupied(parts.most, model.gap_bytes, rate, pace)
    occupied = _occupied(parts.bytes, parts.packets * model.gap_bytes, rate, pace)
    alike = (parts.least == parts.most) & (rate == port)
    return np.where(alike, parts.packets * each, occupied - parts.packets)


def _busiest_sender(
    parts: _Parts, workload: Workload, arrays: FabricArrays, model: Model, pace: int
) -> int:
    """No order of a host's packets ends before Jackson's rule: the longest remaining path time
    first. In this order the k-th packet waits for all packets before it."""
    rate, port = _port_rates(arrays)
    host = workload.src[workload.flow[parts.message]]
    busy = _busy(parts, model, rate[host], port[host], pace)
    rest = parts.way - np.stack(
        [_occupied(size, model.gap_bytes, port[host], pace) for size in (parts.least, parts.most)]
    )
    tail = rest.min(0) + parts.back
    return _busiest(host, busy, workload.release_ps[parts.message], tail, -tail)


def _busiest_receiver(parts: _Parts, workload: Workload, arrays: FabricArrays, model: Model) -> int:
    """The same at the links to a host: by the path time up to there, the longest last."""
    mirrored = arrays._replace(access=arrays.exits)
    rate, port = _port_rates(mirrored)
    host = workload.dst[workload.flow[parts.message]]
    busy = _busy(parts, model, rate[host], port[host], LINE_RATE)
    before = parts.way - np.stack(
        [_service(size + model.gap_bytes, port[host]) for size in (parts.least, parts.most)]
    )
    head = workload.release_ps[parts.message] + before.min(0)
    return _busiest(host, busy, head, parts.back, head)


def _busiest(host: Array, busy: Ints, head: Ints, tail: Ints, order: Ints) -> int:
    """The maximum of earliest head + all transmissions + shortest tail, over hosts and over the
    sets of parts with which the order of a host begins or ends.

    busy: time of all packets of a part on the ports of the host.
    """
    if not len(host):
        return 0
    most = 0
    rows = np.lexsort((order, host))
    ends = np.flatnonzero(np.append(np.diff(host[rows]) != 0, True)) + 1
    begin = 0
    for end in ends.tolist():
        rows_of_host = rows[begin:end]
        begin = end
        heads, tails, work = head[rows_of_host], tail[rows_of_host], busy[rows_of_host]
        first = np.minimum.accumulate(heads) + np.cumsum(work) + np.minimum.accumulate(tails)
        later = slice(None, None, -1)
        last = (
            np.minimum.accumulate(heads[later])
            + np.cumsum(work[later])
            + np.minimum.accumulate(tails[later])
        )
        most = max(most, int(first.max()), int(last.max()))
    return most


def _chains(workload: Workload, rows: Ints, alone: Ints, received: Ints, first: bool) -> int:
    """The longest chain of messages and computations that wait for their predecessors. first: this
    phase has the computations."""
    nodes, takes_ps = workload.nodes, workload.waits.takes_ps
    if workload.at_once.all() and not len(takes_ps):
        return int((workload.release_ps[rows] + alone[rows]).max(initial=0))
    included = np.zeros(nodes, np.bool_)
    included[rows] = True
    included[len(workload.flow) :] = first
    edges = workload.edges
    kept = included[edges.node] & included[edges.after]
    takes = np.stack([np.append(alone, takes_ps), np.append(received, takes_ps)])
    release = np.append(workload.release_ps, np.zeros(len(takes_ps), np.int64))
    begin, _ = earliest(nodes, Edges(*(column[kept] for column in edges)), release, takes)
    return int((begin + takes[ON_ACKED])[included].max(initial=0))

"""The queue pairs of generated traffic, and when they send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bools, Ints, NamedTuple
from ..traffic.traffic import ordinals
from .patterns import Demands

MAX_MESSAGE_BYTES: Final = 1 << 31
"""Largest message of a reliable connection (InfiniBand Architecture, 9.7.1)."""
PATH_MTUS: Final = (256, 512, 1024, 2048, 4096)
MAX_QPN = 0xFFFFFF
MAX_ENTROPY_VALUES: Final = 1 << 14
"""Source ports 0xC000 to 0xFFFF."""

ETHERNET, IPV4, IPV6, UDP, BTH, RETH, AETH, ICRC = 14, 20, 40, 8, 12, 16, 4, 4


class Sending(NamedTuple):
    """How hosts send."""

    qps: int = 1
    """Queue pairs per pair of hosts; a message is split evenly over them."""
    entropy_values: int = 1
    """UDP source ports that the packets of a queue pair use in turn."""
    path_mtu: int = 4096
    rate_bits_per_second: int = 400_000_000_000
    round_trip_ns: int = 8_000
    """Time from the last packet of a message to its ACK."""
    ipv6: bool = False
    write: bool = True
    """RDMA WRITE, otherwise SEND."""

    @property
    def headers(self) -> int:
        """Bytes of Ethernet, IP, UDP, BTH and ICRC."""
        return ETHERNET + (IPV6 if self.ipv6 else IPV4) + UDP + BTH + ICRC


@dataclass(frozen=True)
class QueuePairs:
    """Equally long columns, one row per connection (requester `src`, responder `dst`).

    Packet j of message m leaves at start_ns + m * period_ns + j * interval_ns; the ACK of
    message m follows its last packet after a round trip.
    """

    sending: Sending
    src: Ints
    dst: Ints
    src_qp: Ints
    dst_qp: Ints
    first_psn: Ints
    port: Ints
    """UDP source port as Linux derives it from both QPNs; ACKs use it too."""
    stride: Ints
    """Entropy value i has the port 0xC000 | (port + i * stride) & 0x3FFF."""
    messages: Ints
    message_bytes: Ints
    packets: Ints
    """Packets of a message."""
    start_ns: Ints
    interval_ns: Ints
    period_ns: Ints

    def __len__(self) -> int:
        return len(self.src)

    @property
    def total_packets(self) -> int:
        """Packets of all messages and their ACKs."""
        return int((self.messages * (self.packets + 1)).sum())


def linux_source_port(local_qp: Ints, remote_qp: Ints) -> Ints:
    """UDP source port of a queue pair: rdma_calc_flow_label and rdma_flow_label_to_udp_sport.

    Symmetric in the QPNs, so both directions share it (Linux include/rdma/ib_verbs.h).
    """
    v = local_qp * remote_qp
    v ^= v >> 20
    v ^= v >> 40
    v &= 0xFFFFF
    return ((v & 0x3FFF) ^ ((v & 0xFC000) >> 14)) | 0xC000


def queue_pairs(demand: Demands, sending: Sending, rng: np.random.Generator) -> QueuePairs:
    """The queue pairs of the demands of a pattern. UsageError names an invalid value."""
    _check(demand, sending)
    k, n = sending.qps, len(demand.src)
    src, dst = np.repeat(demand.src, k), np.repeat(demand.dst, k)
    number = np.tile(np.arange(k), n)  # within its pair
    size = np.repeat(demand.message_bytes, k)
    size = size // k + (number < size % k)
    packets = -(-size // sending.path_mtu)
    src_qp, dst_qp = _numbers(src, dst, rng)
    bits = 8 * (sending.headers + np.minimum(size, sending.path_mtu))
    share = np.repeat(demand.sharing, k) * k
    interval = np.maximum(1, np.rint(bits * 1e9 / sending.rate_bits_per_second)) * share
    interval = interval.astype(np.int64)
    period = packets * interval
    if demand.in_turn:
        period += sending.round_trip_ns
    return QueuePairs(
        sending=sending,
        src=src,
        dst=dst,
        src_qp=src_qp,
        dst_qp=dst_qp,
        first_psn=rng.integers(0, 1 << 24, n * k),
        port=linux_source_port(src_qp, dst_qp),
        stride=2 * rng.integers(0, MAX_ENTROPY_VALUES // 2, n * k) + 1,  # odd: reaches every port
        messages=np.repeat(demand.messages, k),
        message_bytes=size,
        packets=packets,
        start_ns=np.repeat(demand.start_ns, k) + rng.integers(0, interval),
        interval_ns=interval,
        period_ns=period,
    )


def _numbers(src: Ints, dst: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """QPNs of both ends, unique per host: consecutive from a random number."""
    ends = np.stack([src, dst], 1).reshape(-1)
    ordinal = ordinals(ends)
    most = int(ordinal.max(initial=0))
    if most > MAX_QPN - 0x200:
        raise UsageError(f"a host would have {most:,} queue pairs; use fewer QPs, hosts or flows")
    first = rng.integers(0x100, min(1 << 20, MAX_QPN - most), int(ends.max(initial=-1)) + 1)
    numbers = (first[ends] + ordinal).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def _check(demand: Demands, sending: Sending) -> None:
    if sending.path_mtu not in PATH_MTUS:
        raise UsageError(f"--mtu must be one of {', '.join(map(str, PATH_MTUS))}")
    if not 1 <= sending.qps <= 4096:
        raise UsageError(f"--qps must be 1 to 4096, not {sending.qps}")
    if not 1 <= sending.entropy_values <= MAX_ENTROPY_VALUES:
        raise UsageError(f"--spray must be 1 to {MAX_ENTROPY_VALUES}, not {sending.entropy_values}")
    if int(demand.messages.min()) < 1:
        raise UsageError("--messages must be 1 or more")
    smallest, largest = int(demand.message_bytes.min()), int(demand.message_bytes.max())
    if smallest < sending.qps:
        raise UsageError(f"a message of {smallest} bytes cannot be split over {sending.qps} QPs")
    if largest // sending.qps >= MAX_MESSAGE_BYTES:
        raise UsageError(f"a message of {largest:,} bytes is larger than RoCE allows (2 GiB)")


# Send times of all packets of all queue pairs, in time order, in batches.

START_NS: Final = 1_700_000_000_000_000_000
"""Start time of generated traffic: fixed, so that equal arguments give equal bytes."""


class Packets(NamedTuple):
    """Equally long columns, one row per packet, in time order."""

    time_ns: Ints
    """Time since the start of the traffic."""
    pair: Ints
    """Row of the queue pair."""
    number: Ints
    """Packet number over all messages of the pair; ACK m acknowledges message m."""
    is_ack: Bools
    marked: Bools
    """Congestion Experienced."""

    def part(self, start: int, stop: int) -> Packets:
        """Packets start .. stop as views."""
        return Packets._make(column[start:stop] for column in self)


def packets_in_order(pairs: QueuePairs, at_once: int = 1 << 18) -> Iterator[Packets]:
    """All packets, about `at_once` at a time (more only if more leave in the same ns)."""
    last = pairs.start_ns + (pairs.messages - 1) * pairs.period_ns + _ack_after(pairs)
    end = int(last.max()) + 1
    begin, sent = 0, _sent_before(pairs, 0)
    while begin < end:
        stop = _stop(pairs, begin, end, int(sum(s.sum() for s in sent)) + at_once)
        now = _sent_before(pairs, stop)
        yield _between(pairs, sent, now)
        begin, sent = stop, now


def _ack_after(pairs: QueuePairs) -> Ints:
    """Time from the first packet of a message to its ACK."""
    return (pairs.packets - 1) * pairs.interval_ns + pairs.sending.round_trip_ns


def _sent_before(pairs: QueuePairs, time_ns: int) -> tuple[Ints, Ints]:
    """Data packets and ACKs of every pair before this time."""
    elapsed = time_ns - 1 - pairs.start_ns
    message = np.clip(elapsed // pairs.period_ns, 0, pairs.messages - 1)
    inside = (elapsed - message * pairs.period_ns) // pairs.interval_ns + 1
    data = message * pairs.packets + np.clip(inside, 0, pairs.packets)
    acks = (elapsed - _ack_after(pairs)) // pairs.period_ns + 1
    return np.where(elapsed < 0, 0, data), np.clip(acks, 0, pairs.messages)


def _stop(pairs: QueuePairs, begin: int, end: int, wanted: int) -> int:
    """The latest time before which at most `wanted` packets leave, at least begin + 1."""
    low, high = begin + 1, end
    while low < high:
        middle = (low + high + 1) // 2
        if sum(int(s.sum()) for s in _sent_before(pairs, middle)) <= wanted:
            low = middle
        else:
            high = middle - 1
    return low


def _between(pairs: QueuePairs, before: tuple[Ints, Ints], after: tuple[Ints, Ints]) -> Packets:
    pair, number = _ranges(before[0], after[0])
    ack_pair, ack = _ranges(before[1], after[1])
    message, position = np.divmod(number, pairs.packets[pair])
    time = (
        pairs.start_ns[pair] + message * pairs.period_ns[pair] + position * pairs.interval_ns[pair]
    )
    ack_time = (
        pairs.start_ns[ack_pair] + ack * pairs.period_ns[ack_pair] + _ack_after(pairs)[ack_pair]
    )
    times = np.concatenate([time, ack_time])
    order = np.argsort(times, kind="stable")
    return Packets(
        times[order],
        np.concatenate([pair, ack_pair])[order],
        np.concatenate([number, ack])[order],
        (np.arange(len(times)) >= len(time))[order],
        np.zeros(len(times), np.bool_),
    )


def _ranges(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """(row, number) for every number of start[row] .. stop[row] - 1."""
    counts = stop - start
    row = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts - start, counts)
    return row, number

"""Send times of all packets of all queue pairs, in time order, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ...kernels.kernel import Bools, Ints
from ...kernels.named import NamedTuple
from .queue_pairs import QueuePairs

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

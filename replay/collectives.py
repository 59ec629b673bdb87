"""Offered traffic of the packet engine: generated patterns with barriers, and captured traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analyzer.errors import UsageError
from .engine.model import PS, Model, Workload
from .engine.offered import workload_of
from .fabric import Fabric
from .generate import generate, offered_traffic
from .keys import PacketKeys
from .patterns.demands import Settings
from .queue_pairs import QueuePairs, Sending
from .traffic import Traffic

ITERATED = frozenset({"ring-allreduce"})
"""Patterns whose messages are steps: all hosts finish one before any begins the next."""
LARGEST_ACK_BYTES = 100
"""Captured flows of smaller packets on average are ACKs: the engine makes its own."""


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
    """A pattern of `rocescope generate` on the hosts of a fabric, as fast as they can send.

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
    """Generated queue pairs as flows; with barriers message i of all of them is phase i."""
    offered = offered_traffic(
        without_spray(pairs), fabric.addresses
    )  # per pair: its data, then its ACKs
    n = len(pairs)
    units = np.concatenate([2 * np.arange(n), 2 * np.arange(n) + 1])
    flow = np.repeat(np.arange(n), pairs.messages)
    number = np.arange(len(flow)) - np.repeat(
        np.cumsum(pairs.messages) - pairs.messages, pairs.messages
    )
    return workload_of(
        pairs.src,
        pairs.dst,
        pairs.message_bytes[flow],
        offered.take(units),
        model,
        flow=flow,
        phase=number if barriers else None,
    )


def without_spray(pairs: QueuePairs) -> QueuePairs:
    """The same queue pairs with one entropy value each: strategies choose others."""
    return replace(pairs, sending=pairs.sending._replace(entropy_values=1))


def captured(traffic: Traffic, model: Model, *, as_captured: bool) -> tuple[Workload, list[str]]:
    """Captured units as flows, and what is said about it.

    as_captured: what a unit sent in a window is released at the begin of the window (without
    windows: all of it at its first packet); else everything as fast as possible, messages after
    those that they waited for, as far as `traffic.messages` tells.
    UsageError when nothing is left.
    """
    data = traffic.packets * LARGEST_ACK_BYTES <= traffic.wire_bytes
    if not as_captured and traffic.messages is not None:
        data[traffic.messages.unit] = True  # small, but data
    data &= traffic.src_host != traffic.dst_host
    notes = []
    if not data.all():
        left = int(np.count_nonzero(~data))
        notes.append(f"{left:,} units of ACKs are left out: the packet engine makes its own")
    if not data.any():
        raise UsageError("the traffic has no data packets to replay; ACKs alone are not offered")
    traffic = traffic.take(data)
    if not as_captured and traffic.messages is not None:
        notes += traffic.messages.notes
        whole = len(traffic) - len(np.unique(traffic.messages.unit))
        if whole:
            notes.append(
                f"asap: {whole:,} units are offered whole and at once: what one waits for is told "
                "of reliable queue pairs with one entropy value only"
            )
    offered = _messages(traffic, as_captured)
    packets = np.maximum(1, -(-offered.wire_bytes // offered.packet_bytes))
    workload = workload_of(
        traffic.src_host,
        traffic.dst_host,
        packets * model.payload_bytes,
        _both_ways(traffic, model),
        model,
        flow=offered.unit,
        release_ps=offered.release_ps,
        after=offered.after,
        on=offered.on,
    )
    last = np.maximum(1, offered.wire_bytes - (packets - 1) * offered.packet_bytes)
    return workload._replace(packet_bytes=offered.packet_bytes, last_bytes=last), notes


class _Offered(NamedTuple):
    """Messages, sorted by unit."""

    unit: NDArray[np.int64]
    wire_bytes: NDArray[np.int64]
    packet_bytes: NDArray[np.int64]
    """Of all packets but the last."""
    release_ps: NDArray[np.int64]
    after: NDArray[np.int32] | None = None
    on: NDArray[np.uint8] | None = None


def _messages(traffic: Traffic, as_captured: bool) -> _Offered:
    size = np.maximum(1, traffic.wire_bytes // np.maximum(1, traffic.packets))
    if not as_captured:
        return _in_closed_loop(traffic, size)
    start = int(traffic.first_ns.min())
    windows = traffic.windows
    if windows is None:
        release = (traffic.first_ns - start) * PS
        return _Offered(np.arange(len(traffic)), traffic.wire_bytes, size, release)
    begin = windows.window.astype(np.int64) * windows.width_ns + windows.start_ns - start
    rows = windows.wire_bytes > 0
    unit = windows.unit[rows].astype(np.int64)
    return _Offered(unit, windows.wire_bytes[rows], size[unit], np.maximum(0, begin[rows]) * PS)


def _in_closed_loop(traffic: Traffic, size: NDArray[np.int64]) -> _Offered:
    """The messages that are known, and units without any as one message each."""
    units = np.arange(len(traffic))
    sent = traffic.messages
    if sent is None:
        return _Offered(units, traffic.wire_bytes, size, np.zeros(len(units), np.int64))
    whole = np.setdiff1d(units, sent.unit)
    unit = np.concatenate([sent.unit.astype(np.int64), whole])
    order = np.argsort(unit, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    none = np.full(len(whole), -1, np.int32)
    after = np.where(sent.after >= 0, place[sent.after], -1).astype(np.int32)
    largest = -(-sent.wire_bytes // np.maximum(1, sent.packets))
    return _Offered(
        unit[order],
        np.concatenate([sent.wire_bytes, traffic.wire_bytes[whole]])[order],
        np.maximum(1, np.concatenate([largest, size[whole]]))[order],
        np.zeros(len(order), np.int64),
        np.concatenate([after, none])[order],
        np.concatenate([sent.on, np.zeros(len(whole), np.uint8)])[order],
    )


def _both_ways(traffic: Traffic, model: Model) -> Traffic:
    """The units and, behind them, the ACKs that answer each: addresses exchanged, same ports."""
    keys = traffic.keys
    back = keys._replace(src=keys.dst, dst=keys.src)
    columns: list[Any] = [
        np.concatenate([a, b]) for a, b in zip(list(keys), list(back), strict=True)
    ]
    both = PacketKeys(*columns)
    twice = np.tile(np.arange(len(traffic)), 2)
    acks = np.arange(2 * len(traffic)) >= len(traffic)
    src = np.concatenate([traffic.src_host, traffic.dst_host])
    dst = np.concatenate([traffic.dst_host, traffic.src_host])
    return Traffic(
        keys=both,
        src_host=src,
        dst_host=dst,
        flow=np.arange(2 * len(traffic), dtype=np.int32),
        packets=traffic.packets[twice],
        wire_bytes=np.where(
            acks, traffic.packets[twice] * model.ack_bytes, traffic.wire_bytes[twice]
        ),
        first_ns=traffic.first_ns[twice],
        last_ns=traffic.last_ns[twice],
    )

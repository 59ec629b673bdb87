"""Offered traffic of the packet engine: generated patterns with barriers, and captured traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    windows: all of it at its first packet); else everything as fast as possible.
    UsageError when nothing is left.
    """
    data = traffic.packets * LARGEST_ACK_BYTES <= traffic.wire_bytes
    data &= traffic.src_host != traffic.dst_host
    notes = []
    if not data.all():
        left = int(np.count_nonzero(~data))
        notes.append(f"{left:,} units of ACKs are left out: the packet engine makes its own")
    if not data.any():
        raise UsageError("the traffic has no data packets to replay; ACKs alone are not offered")
    traffic = traffic.take(data)
    unit, wire, release = _messages(traffic, as_captured)
    size = np.maximum(1, traffic.wire_bytes // np.maximum(1, traffic.packets))[unit]
    packets = np.maximum(1, -(-wire // size))
    workload = workload_of(
        traffic.src_host,
        traffic.dst_host,
        packets * model.payload_bytes,
        _both_ways(traffic, model),
        model,
        flow=unit,
        release_ps=release,
    )
    last = wire - (packets - 1) * size
    return workload._replace(packet_bytes=size, last_bytes=np.maximum(1, last)), notes


def _messages(
    traffic: Traffic, as_captured: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(unit, wire bytes, release in ps) of every message."""
    start = int(traffic.first_ns.min())
    windows = traffic.windows
    if not as_captured or windows is None:
        unit = np.arange(len(traffic))
        release = (traffic.first_ns - start) * PS if as_captured else np.zeros(len(unit), np.int64)
        return unit, traffic.wire_bytes, release
    begin = windows.window.astype(np.int64) * windows.width_ns + windows.start_ns - start
    rows = windows.wire_bytes > 0
    return (
        windows.unit[rows].astype(np.int64),
        windows.wire_bytes[rows],
        np.maximum(0, begin[rows]) * PS,
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

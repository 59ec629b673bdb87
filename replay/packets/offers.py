"""Workloads of the packet engine, from lists of messages or from patterns with barriers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Array
from ..fabrics.fabric import AddressPlan, Fabric
from ..generate.from_pattern import generate, keys_of
from ..generate.patterns import Settings
from ..generate.queue_pairs import START_NS, QueuePairs, Sending
from ..hashing.keys import PacketKeys
from ..traffic.traffic import ON_ACKED, Traffic
from .model.model import MOST_MESSAGES, MOST_PACKETS, Model, Workload


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

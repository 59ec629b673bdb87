"""Workloads of the packet engine from lists of messages."""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Array
from ...fabrics.addressing import AddressPlan
from ...generate.from_pattern import keys_of
from ...generate.queue_pairs import QueuePairs
from ...generate.schedule import START_NS
from ...traffic.traffic import ON_ACKED, Traffic
from ..model.model import MOST_MESSAGES, MOST_PACKETS, Model, Workload


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

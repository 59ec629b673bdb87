"""Offered traffic of the packet engine: generated patterns with barriers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...fabrics.fabric import Fabric
from ...generate.from_pattern import generate
from ...generate.patterns.demands import Settings
from ...generate.queue_pairs import QueuePairs, Sending
from ...hashing.keys import PacketKeys
from ...traffic.traffic import Traffic
from ..model.model import Model, Workload
from .offered import units_of, workload_of

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

"""Packets of messages between two flows, and what `MessageStatistics` says of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tracked_batches import START_NS, tracked, updated

from rocescope.analyzer.measures.messages import MessageStatistics
from rocescope.analyzer.track.batch import IN_ORDER, NOT_SEQUENCED
from rocescope.analyzer.wire.bth import opcode_name
from rocescope.analyzer.wire.packets import ACK_REQUEST, HAS_AETH, HAS_RETH

OPCODES = {opcode_name(op): op for op in range(256)}


def row(name, psn, time, flow=0, payload=0, **more):
    """One packet; times are in ns since the start."""
    return {
        "flow": flow,
        "opcode": OPCODES[name],
        "psn": psn % (1 << 24),
        "time_ns": START_NS + time,
        "payload_bytes": payload,
        "verdict": IN_ORDER,
    } | more


def ack(psn, time, flow=1, syndrome=0x1F):
    return row(
        "RC_ACK",
        psn,
        time,
        flow,
        aeth=syndrome << 24,
        decode_flags=HAS_AETH,
        verdict=NOT_SEQUENCED,
    )


def write(psn, packets, time, step=10, payload=1024, flow=0, **more):
    """A WRITE of several packets whose last one asks for an ACK."""
    names = ["FIRST", *["MIDDLE"] * (packets - 2), "LAST"] if packets > 1 else ["ONLY"]
    rows = [
        row(f"RC_WRITE_{name}", psn + i, time + i * step, flow, payload, **more)
        for i, name in enumerate(names)
    ]
    rows[-1]["bth_flags"] = ACK_REQUEST
    return rows


def read(psn, length, time):
    return row(
        "RC_READ_REQUEST",
        psn,
        time,
        dma_length=length,
        decode_flags=HAS_RETH,
        bth_flags=ACK_REQUEST,
    )


def responses(psn, packets, time, payload=1024):
    names = ["FIRST", *["MIDDLE"] * (packets - 2), "LAST"] if packets > 1 else ["ONLY"]
    return [
        row(f"RC_READ_RESPONSE_{name}", psn + i, time + 10 * i, 1, payload)
        for i, name in enumerate(names)
    ]


def batch_of(rows, peers=(1, 0)):
    batch = tracked(rows, len(peers))
    return replace(batch, peer=np.array(peers, np.int32))


def measure(rows, peers=(1, 0)):
    return updated(MessageStatistics(), [batch_of(rows, peers)])


def summary(quantiles):
    if quantiles is None:
        return None
    return quantiles.count, quantiles.min, pytest.approx(quantiles.mean), quantiles.max


def of(*values):
    return (len(values), min(values), pytest.approx(sum(values) / len(values)), max(values))

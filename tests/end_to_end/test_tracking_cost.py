"""Hostile sequences cost a bounded multiple of orderly ones, and lose no count."""

from __future__ import annotations

import time

import numpy as np
import pytest
from traffic import ACK, READ_MIDDLE, READ_REQUEST, WRITE_ONLY, packets, track

from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import IN_ORDER, RESTARTED
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import HAS_AETH, HAS_RETH

PACKETS = 100_000
TIMES_IN_ORDER = 400
"""Unbounded, all of these cost thousands of times as much as packets in order; now below 100."""


def flood(**columns):
    """A table of that many packets."""
    table = packets([{}] * 2).take(np.zeros(PACKETS, np.int64))
    table.time_ns[:] += 1000 * np.arange(PACKETS)
    table.ip_id[:] = np.arange(PACKETS) & 0xFFFF
    table.opcode[:] = WRITE_ONLY
    for name, values in columns.items():
        getattr(table, name)[:] = values
    table.psn[:] &= 0xFFFFFF
    return table


def random_psns(rng, i):
    return {"psn": rng.integers(0, 1 << 24, PACKETS)}


def jumps_forward(rng, i):
    return {"psn": i * 32_767}


def jumps_forward_of_responses(rng, i):
    return {"psn": i * 32_767, "opcode": READ_MIDDLE}


def half_the_space(rng, i):
    return {"psn": i << 23}


def reversed_order(rng, i):
    return {"psn": PACKETS - i}


def enormous_reads(rng, i):
    return {
        "psn": rng.integers(0, 1 << 24, PACKETS),
        "opcode": np.where(i % 2, READ_REQUEST, WRITE_ONLY),
        "dma_length": 0xFFFFFFFF,
        "decode_flags": HAS_RETH,
    }


def answers_to_nobody(rng, i):
    """5,000 queue pairs each way between two hosts, and ACKs that fit many or none."""
    forth = i % 2 == 0
    return {
        "src": np.where(forth, 0, 1),
        "dst": np.where(forth, 1, 0),
        "dest_qp": rng.integers(2, 5_002, PACKETS),
        "psn": i // 10_000,
        "opcode": np.where(forth, WRITE_ONLY, ACK),
        "aeth": 0x1F << 24,
        "decode_flags": HAS_AETH,
    }


def cost(table):
    """Processor time of tracking a table, and the tracker."""
    tracker = FlowTracker()
    began = time.process_time()
    track(tracker, table, range(0, PACKETS, 10_000))
    return time.process_time() - began, tracker


@pytest.mark.parametrize(
    "kind",
    [
        random_psns,
        jumps_forward,
        jumps_forward_of_responses,
        half_the_space,
        reversed_order,
        enormous_reads,
        answers_to_nobody,
    ],
)
def test_cost_per_packet_is_bounded(kind):
    table = flood(**kind(np.random.default_rng(1), np.arange(PACKETS)))
    track(FlowTracker(), table.slice(0, 10))  # compiles
    orderly, _ = cost(flood(psn=np.arange(PACKETS)))
    hostile, tracker = cost(table)
    assert hostile < TIMES_IN_ORDER * orderly
    assert tracker.flows["packets"].sum() == PACKETS
    for flow in range(min(len(tracker), 10)):
        assert tracker.missing(flow, state.REQUESTS)[0] >= 0


def test_after_a_restart_all_is_as_at_the_beginning():
    """Whatever window the sequence before has left: the next one is judged like the first."""
    rng = np.random.default_rng(7)
    before = [*range(100), *range(20_000, 20_100), 19_000, *range(45_000, 45_100)]
    parts = [np.arange(9_000_000, 9_000_400)]
    for start in (9_000_400, 9_001_500, 9_004_000, 9_020_000):  # gaps that widen the window
        block = np.arange(start, start + 300)
        rng.shuffle(block)
        parts += [block, np.arange(start - 60, start - 40)]
    after = np.concatenate(parts).tolist()
    alone = track(FlowTracker(), packets([{"psn": p, "ip_id": 0} for p in after]))
    both = packets([{"psn": p, "ip_id": 0} for p in [*before, *after]])
    both.time_ns[len(before) :] += 10_000_000_000
    tracker = FlowTracker()
    verdicts = track(tracker, both)[len(before) :]
    assert (alone[0], verdicts[0]) == (IN_ORDER, RESTARTED)
    assert np.array_equal(verdicts[1:], alone[1:])
    assert tracker.stream(0, state.REQUESTS)["restarts"] == 1

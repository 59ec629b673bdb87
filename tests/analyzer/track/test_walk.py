"""Hostile sequences need a bounded multiple of the work of orderly ones, and lose no count."""

from __future__ import annotations

import numpy as np
import pytest
from examples import thorough
from traffic import ACK, READ_MIDDLE, READ_REQUEST, WRITE_ONLY, packets, track
from work import lines_run

from rocescope.analyzer.track import answers, state
from rocescope.analyzer.track.batch import IN_ORDER, RESTARTED
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import HAS_AETH, HAS_RETH

PACKETS = 100_000
LINES_PER_PACKET, LINES_PER_SLOT = 4_000, 150
"""Most lines of plain Python per packet, and once per slot of a window that grows to its largest.

A packet in order takes 130. Unbounded, each of the sequences below would take millions for some
packets: one for each PSN in between.
"""


def flood(count=PACKETS, **columns):
    """A table of `count` packets."""
    table = packets([{}] * 2).take(np.zeros(count, np.int64))
    table.time_ns[:] += 1000 * np.arange(count)
    table.ip_id[:] = np.arange(count) & 0xFFFF
    table.opcode[:] = WRITE_ONLY
    for name, values in columns.items():
        getattr(table, name)[:] = values
    table.psn[:] &= 0xFFFFFF
    return table


def random_psns(rng, i):
    return {"psn": rng.integers(0, 1 << 24, len(i))}


def jumps_forward(rng, i):
    return {"psn": i * 32_767}


def jumps_forward_of_responses(rng, i):
    return {"psn": i * 32_767, "opcode": READ_MIDDLE}


def half_the_space(rng, i):
    return {"psn": i << 23}


def reversed_order(rng, i):
    return {"psn": len(i) - i}


def enormous_reads(rng, i):
    return {
        "psn": rng.integers(0, 1 << 24, len(i)),
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
        "dest_qp": rng.integers(2, 5_002, len(i)),
        "psn": i // 10_000,
        "opcode": np.where(forth, WRITE_ONLY, ACK),
        "aeth": 0x1F << 24,
        "decode_flags": HAS_AETH,
    }


KINDS = [
    random_psns,
    jumps_forward,
    jumps_forward_of_responses,
    half_the_space,
    reversed_order,
    enormous_reads,
    answers_to_nobody,
]
WINDOWS_GROW = (jumps_forward, jumps_forward_of_responses)
BRIEF = (random_psns, half_the_space, reversed_order, enormous_reads)
"""Whose work is counted within seconds."""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*BRIEF, *thorough(k for k in KINDS if k not in BRIEF)])
def test_work_per_packet_is_bounded(kind, monkeypatch):
    # The search for peers is unlimited up to this number of candidates, and rationed after it.
    monkeypatch.setattr(answers, "_CANDIDATES_FREE", 1 << 12)
    count = 16 if kind in WINDOWS_GROW else 1_000 if kind is answers_to_nobody else 150
    table = flood(count, **kind(np.random.default_rng(1), np.arange(count)))
    lines = lines_run(lambda: track(FlowTracker(), table, [count // 2]))
    growing = LINES_PER_SLOT * state.MAX_WINDOW if kind in WINDOWS_GROW else 0
    assert lines < LINES_PER_PACKET * count + growing


@pytest.mark.parametrize("kind", KINDS)
def test_no_packet_is_lost(kind):
    table, tracker = flood(**kind(np.random.default_rng(1), np.arange(PACKETS))), FlowTracker()
    track(tracker, table, range(0, PACKETS, 10_000))
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

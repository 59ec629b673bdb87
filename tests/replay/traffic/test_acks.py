"""First ACKs of messages."""

from __future__ import annotations

import numpy as np
from message_traffic import OPCODES, ack, row, write
from tracked_batches import START_NS, tracked

from rocescope.replay.traffic.acks import AckTimes

PEER = np.array([1, 0, -1], np.int32)


def _acks(*rows: dict[str, int], most: int = 100) -> AckTimes:
    times = AckTimes(most)
    times.update(tracked([*rows]))
    return times


def test_a_message_is_acknowledged_by_the_first_ack_of_its_last_psn_or_a_later_one() -> None:
    wrap = (1 << 24) - 1
    times = _acks(
        *write(wrap - 1, 3, 0),
        ack(wrap - 1, 50),
        ack(1, 90),  # wrapped: covers PSNs 0 and 1
        row("RC_ACK", 2, 95, 1, aeth=0x60 << 24, decode_flags=ack(0, 0)["decode_flags"]),
        ack(2, 120),
    )
    flow = np.zeros(4, np.int32)
    found = times.of(flow, np.array([wrap - 1, 0, 2, 5]), PEER)
    assert found.tolist() == [START_NS + 50, START_NS + 90, START_NS + 120, -1]
    assert OPCODES["RC_ACK"] == 0x11


def test_flows_without_a_peer_and_too_many_acks_have_no_times() -> None:
    times = _acks(ack(1, 50), ack(2, 60))
    assert times.of(np.array([2], np.int32), np.array([1]), PEER).tolist() == [-1]
    full = _acks(ack(1, 50), ack(2, 60), most=1)
    assert full.full and full.of(np.zeros(1, np.int32), np.array([1]), PEER).tolist() == [-1]

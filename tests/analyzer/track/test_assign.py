"""What IPv4 identifications can tell, by the way NICs set them, and what is left without them."""

from __future__ import annotations

import numpy as np
import pytest
from traffic import ACK, START_NS, WRITE_MIDDLE, WRITE_ONLY, packets, track

from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import (
    IN_ORDER,
    MIRROR_DUPLICATE,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import IPV6

CNP = 0x81
CONSTANT = {"ip_id": 0}
NONE = {"ip_id": 0, "decode_flags": IPV6}


def verdicts(rows):
    tracker = FlowTracker()
    return tracker, track(tracker, packets(rows)).tolist()


def test_the_first_packet_sent_again_and_again_is_no_duplicate():
    """A peer that is gone: one SEND and seven retries, all with the identification 0."""
    rows = [
        {"psn": 5, "opcode": WRITE_ONLY, "time_ns": START_NS + 4_000_000 * i} | CONSTANT
        for i in range(8)
    ]
    tracker, found = verdicts(rows)
    assert found == [IN_ORDER] + [RETRANSMITTED] * 7
    assert tracker.flows[0]["retransmitted_by"][state.BY_TIMEOUT] == 7


def test_cnps_with_a_constant_identification_on_two_taps():
    """In series each CNP counts once, not twice; all CNPs have PSN 0."""
    rows = []
    for i in range(20):
        ack = {"psn": 8 * i, "opcode": ACK, "syndrome": 0x1F} | CONSTANT
        rows += [ack | {"tap": 0}, ack | {"tap": 1}]
        cnp = {"psn": 0, "opcode": CNP} | CONSTANT
        rows += [cnp | {"tap": 0}, cnp | {"tap": 1}]
    tracker, found = verdicts(rows)
    assert found == [NOT_SEQUENCED, TAP_COPY] * 40
    assert tracker.flows[0]["cnps"] == tracker.flows[0]["ack_packets"] == 20


@pytest.mark.parametrize("same", [CONSTANT, NONE])
def test_acks_of_every_64th_packet_on_their_way_between_two_taps(same):
    """The second tap sees each of them ten ACKs later."""
    acks = [{"psn": 64 * i, "opcode": ACK, "syndrome": 0x1F} | same for i in range(100)]
    rows = []
    for i in range(110):
        rows += [a | {"tap": 0} for a in acks[i : i + 1]]
        rows += [a | {"tap": 1} for a in acks[max(i - 10, 0) : i - 9] if i >= 10]
    tracker, found = verdicts(rows)
    assert found.count(TAP_COPY) == found.count(NOT_SEQUENCED) == 100
    assert tracker.flows[0]["ack_packets"] == 100


@pytest.mark.parametrize("same", [CONSTANT, NONE])
def test_a_mirror_further_on_without_identifications(same):
    """Its copies come five packets later, with one hop less: nothing was sent twice."""
    rows = []
    for i in range(105):
        rows += [{"psn": i} | same] if i < 100 else []
        rows += [{"psn": i - 5, "hop_limit": 63} | same] if i >= 5 else []
    tracker, found = verdicts(rows)
    assert found.count(IN_ORDER) == found.count(MIRROR_DUPLICATE) == 100
    assert tracker.flows[0]["rewinds"] == 0


def test_identifications_of_a_busy_sender_date_nothing_after_a_timeout():
    """The counter of all its queue pairs has gone round meanwhile: 0x9000 further is "before"."""
    rows = [{"psn": p, "ip_id": 40 * p & 0xFFFF} for p in [*range(100), 101]]
    resend = {"psn": 100, "ip_id": (40 * 101 + 0x9000) & 0xFFFF, "time_ns": START_NS + 50_000_000}
    tracker, found = verdicts([*rows, resend])
    assert found[-1] == RECOVERED
    assert tracker.stream(0, state.REQUESTS)["reordered"] == 0


@pytest.mark.parametrize("ids", ["ascending", "constant", "random"])
def test_a_sprayed_flow_seen_from_its_middle_on(ids):
    """Paths differ by hundreds of packets: PSNs before the first one seen are not retransmitted.

    Oracle: every packet is sent once and comes once.
    """
    rng = np.random.default_rng(4)
    psns = np.arange(3000)
    arrival = np.argsort(psns + rng.integers(0, 600, 3000), kind="stable")
    order = psns[arrival][400:]  # the capture begins here
    rows = []
    for i, p in enumerate(order.tolist()):
        ip_id = {"ascending": p & 0xFFFF, "constant": 0, "random": int(rng.integers(0, 1 << 16))}
        row = {"psn": 70_000 + p, "opcode": WRITE_MIDDLE, "ip_id": ip_id[ids]}
        rows.append(row | {"time_ns": START_NS + 100 * i})
    tracker, found = verdicts(rows)
    highest = np.maximum.accumulate(order)
    assert [v == REORDERED for v in found] == (order < highest).tolist()
    assert RETRANSMITTED not in found and RECOVERED not in found


@pytest.mark.parametrize("same", [{}, NONE])
def test_unreliable_connections_send_nothing_again(same):
    """Late by any time and with any identification: it is the only transmission."""
    middle = {"opcode": 0x27} | same
    rows = [{"psn": p} | middle for p in [*range(30), 31]]
    rows += [{"psn": 30, "time_ns": START_NS + 5_000_000} | middle]
    assert verdicts(rows)[1][-1] == REORDERED


def test_flows_of_unknown_opcodes_and_of_cnps_name_their_transport():
    tracker, _ = verdicts([{"opcode": 0xC0, "psn": 1}, {"opcode": CNP, "psn": 0, "dest_qp": 0x21}])
    assert tracker.flows["transport"].tolist() == [6, 4]

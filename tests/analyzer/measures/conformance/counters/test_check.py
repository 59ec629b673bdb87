"""Counters of adapters beside a trace counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import traffic
from conformance_traces import NAK, answer, last, read, response, write
from traffic import packets

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.measures.conformance.counters import (
    COUNTERS,
    DAMAGED_RECEIVED,
    TapCounts,
    check_counters,
)
from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.measures.conformance.taps import TapConformance
from rocescope.analyzer.track.state import EVIDENCE_CM
from rocescope.analyzer.track.tracker import FlowTracker

ROWS = [
    write(1, opcode=traffic.WRITE_FIRST, traffic_class=3),
    write(3),
    answer(2, NAK),
    {"opcode": 0x81, "answer": True},
    write(2),
    last(3),
    answer(3),
    write(3),
    read(4, 1024),
    response(4, traffic.READ_ONLY),
]
SENDER, RECEIVER = "10.0.0.1", "2001:db8::2"
BY_HAND = {
    SENDER: {
        "sent_pkts": 6,
        "rcvd_pkts": 4,
        "packet_seq_err": 1,
        "rp_cnp_handled": 1,
        "completer_retry_err": 2,  # for the NAK, and again to 3
        "np_cnp_sent": 0,
        "local_ack_timeout_err": 0,
    },
    RECEIVER: {
        "sent_pkts": 4,
        "out_of_sequence": 1,
        "np_ecn_marked_roce_packets": 1,
        "InRdmaReads": 1,
        "InRdmaWrites": 1,
        "dup_req": 1,  # the last 3
        "oos_drop_count": 1,  # the first 3
        "tx_cnp_pkts": 1,
    },
}


@pytest.fixture(scope="module")
def taps():
    table, tracker = packets(ROWS), FlowTracker()
    one = TapConformance(ConformanceOptions())
    tracker.index_flows(table)
    tracker.pair(0, 1, EVIDENCE_CM)
    one.update(tracker.update(table), tracker.flows)
    book = one.keeper.book
    return [
        TapCounts("tap", tracker.flows, book.states[:2], tracker.opcodes(np.arange(len(tracker))))
    ]


@pytest.mark.parametrize("host", [SENDER, RECEIVER])
def test_counted_by_hand(taps, host) -> None:
    saved = HostCounters(host, BY_HAND[host] | {"unknown_to_us": 5})
    found = check_counters(saved, taps, [SENDER, RECEIVER])
    assert {one.counter: one.captured for one in found} == BY_HAND[host]
    assert all(one.agrees and not one.text for one in found)


def test_every_counter_has_a_quantity(taps) -> None:
    found = check_counters(HostCounters(SENDER, dict.fromkeys(COUNTERS, 99)), taps, [SENDER])
    assert len(found) == len(COUNTERS)
    assert all(one.text for one in found)
    assert {one.counter for one in found if one.agrees is None} == {
        name for name, counter in COUNTERS.items() if counter.quantity == DAMAGED_RECEIVED
    }
    assert not any(one.agrees for one in found)


def test_addresses_in_other_words(taps) -> None:
    saved = HostCounters("2001:db8:0:0::2", {"sent_pkts": 4})
    assert check_counters(saved, taps, [SENDER, RECEIVER])[0].agrees
    with pytest.raises(UsageError, match="not an IP address"):
        check_counters(HostCounters("host", {}), taps, [SENDER, RECEIVER])
    with pytest.raises(UsageError, match="not in this capture"):
        check_counters(HostCounters("10.0.0.9", {}), taps, [SENDER, RECEIVER])

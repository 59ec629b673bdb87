"""Counters of adapters beside a trace counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import traffic
from conformance_traces import NAK, answer, last, read, response, write
from traffic import packets

from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.measures.conformance.counters import (
    COUNTERS,
    DAMAGED_RECEIVED,
    TapCounts,
    check_counters,
    growth,
    read_counters,
)
from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.measures.conformance.taps import TapConformance
from rocescope.analyzer.track.state import EVIDENCE_CM
from rocescope.analyzer.track.tracker import FlowTracker

# Counters of adapters beside a trace counted by hand.

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


# Saved counters in the forms that the tools write.

ETHTOOL = "NIC statistics:\n     rx_packets: 12\n     rx_vport_rdma_unicast_packets: 345\n"
RDMA = (
    "link mlx5_0/1 rx_write_requests 7 out_of_sequence 3 \n"
    "    packet_seq_err 1 link mlx5_1/1 out_of_sequence 2\n"
)
RDMA_JSON = '[{"ifindex":0,"ifname":"mlx5_0","port":1,"out_of_sequence":3,"packet_seq_err":1}]'
IRDMA = "link irdma0/1 ip4InPkts 9 RNR sent 3 Nak Sequence Error 4 RTO 2 \n"
BNXT_SYSFS = (
    "/sys/class/infiniband/bnxt_re0/ports/1/hw_counters/seq_err_naks_rcvd:6\n"
    "/sys/class/infiniband/bnxt_re0/ports/1/hw_counters/to_retransmits:1\n"
)
ETHTOOL_BNXT = "NIC statistics:\n     [0]: rx_ucast_packets: 5\n     rx_cnp_pkts: 3\n"
LUMINA = (
    "port-counters:\n  port_rcv_packets: 8\nhw-counters:\n  out_of_sequence: 2\n"
    "ethtool-counters:\n  rx_discards_phy: 0\n"
)
GREP = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts:31690\nhw_counters/rcvd_pkts:462\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ETHTOOL, {"rx_packets": 12, "rx_vport_rdma_unicast_packets": 345}),
        (RDMA, {"rx_write_requests": 7, "out_of_sequence": 5, "packet_seq_err": 1}),
        (RDMA_JSON, {"out_of_sequence": 3, "packet_seq_err": 1}),
        (IRDMA, {"RNR sent": 3, "Nak Sequence Error": 4, "ip4InPkts": 9, "RTO": 2}),
        (BNXT_SYSFS, {"seq_err_naks_rcvd": 6, "to_retransmits": 1}),
        (ETHTOOL_BNXT, {"rx_cnp_pkts": 3}),
        (LUMINA, {"port_rcv_packets": 8, "out_of_sequence": 2, "rx_discards_phy": 0}),
        (GREP, {"sent_pkts": 31690, "rcvd_pkts": 462}),
        ("Nak Sequence Error: 4\n", {"Nak Sequence Error": 4}),
    ],
)
def test_forms(tmp_path: Path, text: str, expected: dict[str, int]) -> None:
    path = tmp_path / "saved"
    path.write_text(text)
    assert read_counters(path) == expected


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "sent_pkts").write_text("5\n")
    (tmp_path / "lifespan").write_text("not a number\n")
    assert read_counters(tmp_path) == {"sent_pkts": 5}


def test_growth(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("a_count: 1\nb_count: 2\n")
    after.write_text("a_count: 4\nc_count: 2\n")
    assert growth(before, after) == {"a_count": 3}
    with pytest.raises(UnreadableInput, match="swap the two files"):
        growth(after, before)


@pytest.mark.parametrize("text", ["", "{", "nothing here", '{"port": 1}'])
def test_nothing_to_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "saved").write_text(text)
    with pytest.raises(UnreadableInput, match="no counter in it"):
        read_counters(tmp_path / "saved")
    with pytest.raises(UnreadableInput, match="no such file"):
        read_counters(tmp_path / "absent")

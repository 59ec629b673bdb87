"""Saved counters in the forms that the tools write."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.measures.conformance.counters import growth, read_counters

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

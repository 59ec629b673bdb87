"""Losses between taps against what the network itself counted."""

from __future__ import annotations

from functools import cache

import pytest
from captures import DATA, data, truth

from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions


@cache
def hops_of(*names: str):
    return analyze([str(name) for name in names], AnalyzeOptions()).hops


def test_what_netem_dropped_between_two_taps():
    """180 packets from A to B, none of the answers; per flow as the two captures differ."""
    there, back = hops_of(*sorted(DATA.glob("i01*.pcap.gz")))
    _, facts = truth("i01")
    lost = facts["between_the_two_captures"]["A_to_B_lost"]
    assert there.from_taps[0].endswith("atA.pcap.gz") and there.to_taps[0].endswith("atB.pcap.gz")
    assert (there.lost_packets, there.added_packets) == (lost["packets"], 0) == (180, 0)
    per_flow = {}
    for packet in lost["list"]:
        key = f"{packet['src']} > {packet['dst']} QP 0x{packet['dest_qp']:06x}"
        per_flow[key] = per_flow.get(key, 0) + packet["missing"]
    assert there.lost_by_flow == per_flow
    assert (back.packets_before, back.packets_after, back.lost_packets) == (462, 462, 0)


def test_one_tap_has_no_hops():
    assert hops_of(data("i04")) == []


def test_parallel_taps_are_no_hops():
    assert hops_of(*sorted((DATA / "leafspine" / "r01_clean_write").glob("*.pcap.gz"))) == []


@pytest.mark.parametrize("missing", [1, 50])
def test_parallel_taps_in_series_with_others(tmp_path, missing):
    """Two links side by side, then one: what vanishes behind them is counted, per flow."""
    from factories import START_NS, Frame, write_pcap
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    links = ([], [])
    after = []
    for i in range(400):
        packet = Ether() / IP(src="10.0.0.1", dst="10.0.0.2", id=i, ttl=64, flags="DF")
        packet /= UDP(sport=50000 + i % 2, dport=4791, chksum=0)
        packet /= BTH(opcode=10, dqpn=0x11, psn=i) / bytes(24)
        links[i % 2].append(Frame(START_NS + 10_000 * i, bytes(packet)))
        if i % 8 or i // 8 >= missing:
            packet[IP].ttl = 63
            del packet[IP].chksum
            after.append(Frame(START_NS + 10_000 * i + 3_000, bytes(packet)))
    paths = [write_pcap(tmp_path / f"link{n}.pcap", frames) for n, frames in enumerate(links)]
    paths.append(write_pcap(tmp_path / "after.pcap", after))
    (hop,) = hops_of(*paths)
    assert (hop.from_taps, hop.to_taps) == (["link0.pcap", "link1.pcap"], ["after.pcap"])
    assert (hop.packets_before, hop.packets_after) == (400, 400 - missing)
    assert hop.lost_by_flow == {"10.0.0.1 > 10.0.0.2 QP 0x000011": missing}

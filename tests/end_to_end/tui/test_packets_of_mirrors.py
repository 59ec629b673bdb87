"""Packets found inside mirrors and tunnels, looked at one by one."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from encapsulations import WRAPPERS
from factories import Frame, write_pcap

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.tui.exports import save
from rocescope.tui.session.packet_export import PacketExport
from rocescope.tui.session.packets import PacketScan, Wanted
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey

from ..test_encapsulated import frames_of


@pytest.mark.parametrize("name", ["field", "ip_in_ip", "vxlan"])
@pytest.mark.parametrize("packed", [False, True])
def test_packets_can_be_looked_at(name: str, packed: bool, tmp_path: Path) -> None:
    """The bytes of a packet are those inside, with the link type that they begin with."""
    frames = [f for f in frames_of("c10_rping_ipv4", 40) if f.data[23] == 17]
    path = write_pcap(
        tmp_path / "mirror.pcap", [Frame(f.time_ns, WRAPPERS[name](f.data)) for f in frames]
    )
    if packed:
        data, path = path.read_bytes(), tmp_path / "mirror.pcap.gz"
        path.write_bytes(gzip.compress(data))
    (flow, *_) = analyze([str(path)], AnalyzeOptions()).flows
    key = FlowKey(flow.src, flow.dst, flow.dest_qp)
    packets = PacketScan([str(path)], key).run()
    assert len(packets) == flow.packets
    for row in range(len(packets)):
        original = frames[int(packets.table.frame_number[row]) - 1].data
        link_type, data = packets.link_type(row), packets.frame(row)
        if name == "ip_in_ip":
            assert (link_type, data) == (228, original[14:])
        else:
            assert link_type == 1 and data.endswith(original[14:])


@pytest.mark.parametrize("name", ["ip_in_ip", "vxlan"])
def test_packets_of_tunnels_are_exported_with_their_own_link_type(
    name: str, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    frames = [f for f in frames_of("c10_rping_ipv4", 40) if f.data[23] == 17]
    path = write_pcap(
        tmp_path / "mirror.pcap", [Frame(f.time_ns, WRAPPERS[name](f.data)) for f in frames]
    )
    (flow, *_) = analyze([str(path)], AnalyzeOptions()).flows
    key = FlowKey(flow.src, flow.dst, flow.dest_qp)
    out = save(
        tmp_path / "x.pcapng", PacketExport(Session.open([str(path)]), [key], Wanted()).write
    )
    command = [need_tool("tshark"), "-r", str(out), "-T", "fields", "-e", "infiniband.bth.psn"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    packets = PacketScan([str(path)], key).run()
    assert [int(psn) for psn in told] == packets.table.psn.tolist() and len(told) == flow.packets

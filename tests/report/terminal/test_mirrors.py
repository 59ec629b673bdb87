"""What the report says of mirrors, on a capture of samples, a mirror and Ultra Ethernet."""

from __future__ import annotations

import struct
from pathlib import Path

import encapsulations as enc
from factories import START_NS, Frame, write_pcap

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.report.terminal.mirrors import mirrors

from ...analyzer.decode.test_decoder import frame as roce


def test_lines_at_80_columns_hold_the_facts(tmp_path: Path) -> None:
    sample = enc.flow_sample(enc.raw_header(roce(1)), rate=1000)
    pds = struct.pack(">HHIHH", 2 << 11, 0, 9, 1, 2)
    packets = [
        enc.ethernet(0x0800, enc.ipv4(47, enc.erspan2(roce(1)))),
        enc.ethernet(0x0800, enc.ipv4(17, enc.udp(6343, enc.sflow(sample)))),
        enc.ethernet(0x0800, enc.ipv4(17, enc.udp(4793, pds))),
    ]
    frames = [Frame(START_NS + i, data) for i, data in enumerate(packets)]
    path = write_pcap(tmp_path / "all.pcap", frames)
    assert mirrors(analyze([str(path)], AnalyzeOptions())) == [
        "Encapsulated frames (mirrors and tunnels): ERSPAN II 1, sFlow 1. Taps: erspan 12 from"
        " 192.0.2.1 (1), sflow interface 7 ingress from 198.51.100.4 (1).",
        "sflow interface 7 ingress from 198.51.100.4: estimated 1,000 packets, 122 kB"
        " (standard error 100.0 %)",
        "Ultra Ethernet, counted but not tracked: 1 RUD request; 54 B, 1 entropy value, PSN 9 to 9",
    ]
    plain = write_pcap(tmp_path / "plain.pcap", [Frame(START_NS, roce(1))])
    assert mirrors(analyze([str(plain)], AnalyzeOptions())) == []

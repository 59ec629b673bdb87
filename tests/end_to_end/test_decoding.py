"""Real captures against the ground truth an independent parser wrote beside them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import batch, decoder, read_pcap, write_pcap
from captures import DATA
from decode_twin import SIZES, headers_of
from examples import first
from scapy.layers.inet import IP, UDP, IPOption_NOP, IPOption_Router_Alert
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from rocescope.analyzer.decode import extensions as ext
from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.decode.extensions import decode_extensions
from rocescope.analyzer.wire import bth as opcodes
from rocescope.analyzer.wire.bth import opcode_name
from rocescope.analyzer.wire.packets import (
    ACK_REQUEST,
    FIRST_FRAGMENT,
    HAS_AETH,
    HAS_DETH,
    HAS_RETH,
    LENGTH_MISMATCH,
    MIGRATION,
    SNAPPED,
    SOLICITED_EVENT,
    VERSION_MASK,
    PacketTable,
)

# Real captures against the ground truth an independent parser wrote beside them.

CAPTURES = {
    "c05_rc_atomic_fetchadd": ".pcap",
    "c07_ud_send": ".pcap.gz",
    "c08_uc_write_q2_64k": ".pcap.gz",
    "c10_rping_ipv4": ".pcap",
    "c13_rc_write_rdmacm_ipv4": ".pcap.gz",
    "c15_rc_write_ipv6_gid": ".pcap.gz",
    "c23_rc_write_vlan100": ".pcap.gz",
    "c40_rc_oddities_ipv4": ".pcap",
    "i13_write_ecn_ce2_AtoB": ".pcap.gz",
}


def facts_of(data: Path, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((data / f"{name}.facts.json").read_text())["captures"]["atB"]
    return facts


def their_name(opcode: int) -> str:
    """Our opcode name in the spelling of the facts files."""
    name = opcode_name(opcode).replace("READ_REQUEST", "READ_REQ")
    return name.replace("READ_RESPONSE", "READ_RESP").replace("COMPARE_SWAP", "CMP_SWAP")


@pytest.mark.parametrize("name", CAPTURES)
def test_counts(data: Path, name: str) -> None:
    facts = facts_of(data, name)
    frames = read_pcap(data / f"{name}.atB{CAPTURES[name]}")
    whole = CAPTURES[name] == ".pcap"
    dec = decoder(check_icrc=True)
    table = dec.decode(frames)
    assert dec.counters.frames() == facts["packets"]
    assert len(table) == dec.counters.roce_packets() == facts["roce"]
    assert dec.counters.undecodable() == {}
    assert Counter(map(their_name, table.opcode.tolist())) == facts["opcodes"]
    others = np.setdiff1d(np.arange(len(frames)), table.frame_number - 1)
    assert table.wire_bytes.sum() + frames.wire[others].sum() == facts["wire_bytes"]
    assert np.count_nonzero(table.vlan & 0xFFF == 100) == facts["vlan_tagged"]
    ecn = Counter(
        {0: "not-ECT", 1: "ECT1", 2: "ECT0", 3: "CE"}[v & 3] for v in table.traffic_class.tolist()
    )
    assert ecn == facts["ecn"]
    icrc = dec.counters.icrc()
    assert icrc["bad"] == icrc["unchecked"] == 0
    if whole:
        assert icrc["ok"] == facts["icrc"]["ok"] == len(table)
    assert icrc["ok"] + icrc["truncated"] == len(table)
    assert (icrc["truncated"] > 0) != whole
    assert not (table.decode_flags & (LENGTH_MISMATCH | SNAPPED)).any()


@pytest.mark.parametrize("name", CAPTURES)
def test_streams(data: Path, name: str) -> None:
    facts = facts_of(data, name)
    dec = decoder()
    table = dec.decode(read_pcap(data / f"{name}.atB{CAPTURES[name]}"))
    texts = dec.registry.endpoints.texts()
    streams: Counter[tuple[str, str, int]] = Counter()
    ports: dict[tuple[str, str, int], set[int]] = {}
    for src, dst, dest_qp, sport in zip(
        table.src.tolist(),
        table.dst.tolist(),
        table.dest_qp.tolist(),
        table.udp_sport.tolist(),
        strict=True,
    ):
        key = (texts[src], texts[dst], dest_qp)
        streams[key] += 1
        ports.setdefault(key, set()).add(sport)
    assert {
        (s["src"], s["dst"], s["dest_qp"]): (s["packets"], set(s["udp_sports"]))
        for s in facts["streams"]
    } == {key: (n, ports[key]) for key, n in streams.items()}


def test_naks(data: Path) -> None:
    facts = facts_of(data, "c40_rc_oddities_ipv4")
    table = decoder().decode(read_pcap(data / "c40_rc_oddities_ipv4.atB.pcap"))
    syndromes = table.aeth[table.decode_flags & HAS_AETH != 0] >> np.uint32(24)
    naks = Counter(
        {0x60: "NAK_PSN_SEQ", 0x62: "NAK_REMOTE_ACCESS", 0x63: "NAK_REMOTE_OP"}.get(s, "RNR_NAK")
        for s in syndromes.tolist()
        if s & 0x60
    )
    assert naks == facts["naks"]


def test_payload_of_real_messages(data: Path) -> None:
    """Atomics and rping have known sizes: nothing, and the 64 bytes rping is told to send."""
    table = decoder().decode(read_pcap(data / "c05_rc_atomic_fetchadd.atB.pcap"))
    assert set(table.payload_bytes.tolist()) == {0}
    frames = read_pcap(data / "c10_rping_ipv4.atB.pcap")
    table = decoder().decode(frames)
    write_only = table.take(table.opcode == 0x0A)
    assert (write_only.payload_bytes == write_only.dma_length).all()
    extensions = decode_extensions(table, frames.data, 0)
    assert (extensions.reth_dma_length == table.dma_length).all()


# Every header field equals tshark's, on real captures and on crafted frames.

MORE_CAPTURES = os.environ.get("ROCESCOPE_CAPTURES")
"""A folder with more captures to compare, for instance the whole recorded set."""

FIELDS = (
    "frame.number frame.len vlan.priority vlan.id ip.src ip.dst ip.id ip.dsfield ip.ttl "
    "ipv6.src ipv6.dst ipv6.tclass ipv6.flow ipv6.hlim udp.srcport udp.dstport "
    "infiniband.bth.opcode infiniband.bth.se infiniband.bth.m infiniband.bth.padcnt "
    "infiniband.bth.tver infiniband.bth.p_key infiniband.bth.destqp infiniband.bth.a "
    "infiniband.bth.psn infiniband.aeth.syndrome infiniband.aeth.msn infiniband.reth.va "
    "infiniband.reth.r_key infiniband.reth.dmalen infiniband.deth.q_key "
    "infiniband.deth.srcqp infiniband.atomiceth.swapdt "
    "infiniband.atomiceth.cmpdt infiniband.atomicacketh.origremdt infiniband.immdt "
    "infiniband.ieth _ws.col.Info"
).split()


def number(text: str) -> int:
    """A field as a number; the innermost or last one where tshark lists several."""
    text = text.rsplit(",", 1)[-1]
    return {"True": 1, "False": 0}[text] if text in ("True", "False") else int(text, 0)


def tshark(tool: str, path: Path, *options: str) -> dict[int, dict[str, str]]:
    """tshark's fields of each frame of a capture, by frame number."""
    selection = [argument for name in FIELDS for argument in ("-e", name)]
    done = subprocess.run(
        [tool, "-n", "-r", str(path), "-T", "fields", *selection, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {int(v[0]): dict(zip(FIELDS, v, strict=True)) for v in lines}


def columns_as_tshark(table: PacketTable, texts: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """(tshark's field, our values) for the fields that every RoCE packet has."""
    f = table.bth_flags
    yield "frame.number", table.frame_number.tolist()
    yield "frame.len", table.wire_bytes.tolist()
    yield "udp.srcport", table.udp_sport.tolist()
    yield "udp.dstport", table.udp_dport.tolist()
    yield "infiniband.bth.opcode", table.opcode.tolist()
    yield "infiniband.bth.se", (f & SOLICITED_EVENT != 0).astype(int).tolist()
    yield "infiniband.bth.m", (f & MIGRATION != 0).astype(int).tolist()
    yield "infiniband.bth.padcnt", (f >> np.uint32(4) & np.uint32(3)).tolist()
    yield "infiniband.bth.tver", (f & VERSION_MASK).tolist()
    yield "infiniband.bth.p_key", table.partition_key.tolist()
    yield "infiniband.bth.destqp", table.dest_qp.tolist()
    yield "infiniband.bth.a", (f & ACK_REQUEST != 0).astype(int).tolist()
    yield "infiniband.bth.psn", table.psn.tolist()


def compare_every_packet(
    table: PacketTable, texts: list[str], expected: dict[int, dict[str, str]]
) -> None:
    """The table has exactly the frames with a BTH, and every field agrees."""
    roce = {n: fields for n, fields in expected.items() if fields["infiniband.bth.opcode"]}
    assert table.frame_number.tolist() == list(roce)
    for name, values in columns_as_tshark(table, texts):
        assert values == [number(fields[name]) for fields in roce.values()], name
    for i, fields in enumerate(roce.values()):
        if fields["ip.src"]:
            assert texts[table.src[i]] == fields["ip.src"]
            assert texts[table.dst[i]] == fields["ip.dst"]
            assert table.ip_id[i] == number(fields["ip.id"])
            assert table.traffic_class[i] == number(fields["ip.dsfield"])
            assert table.hop_limit[i] == number(fields["ip.ttl"])
        else:
            assert texts[table.src[i]] == fields["ipv6.src"]
            assert texts[table.dst[i]] == fields["ipv6.dst"]
            assert table.traffic_class[i] == number(fields["ipv6.tclass"])
            assert table.flow_label[i] == number(fields["ipv6.flow"])
            assert table.hop_limit[i] == number(fields["ipv6.hlim"])
        if fields["vlan.id"]:
            tci = number(fields["vlan.priority"]) << 13 | number(fields["vlan.id"])
            assert table.vlan[i] & 0xEFFF == tci
        else:
            assert table.vlan[i] == 0
        if table.opcode[i] >> 5 == opcodes.RD:
            continue  # tshark reads the wrong bytes
        for name, flag, got in (
            ("infiniband.aeth.syndrome", HAS_AETH, table.aeth[i] >> np.uint32(24)),
            ("infiniband.aeth.msn", HAS_AETH, table.aeth[i] & np.uint32(0xFFFFFF)),
            ("infiniband.reth.dmalen", HAS_RETH, table.dma_length[i]),
            ("infiniband.deth.srcqp", HAS_DETH, table.src_qp[i]),
        ):
            if fields[name]:
                assert table.decode_flags[i] & flag and got == number(fields[name])


def capture_files() -> list[Path]:
    here = DATA
    files = {path.name: path for path in sorted(here.glob("*.pcap*"))}
    if MORE_CAPTURES:
        files |= {path.name: path for path in sorted(Path(MORE_CAPTURES).rglob("*.pcap*"))}
    return list(files.values())


@pytest.mark.parametrize("path", first(4, capture_files()), ids=lambda p: p.name)
def test_real_captures(path: Path, need_tool: Callable[[str], str], tmp_path: Path) -> None:
    expected = tshark(need_tool("tshark"), path)
    dec = decoder()
    if ".pcapng" in path.suffixes:
        path, pcapng = tmp_path / "as.pcap", path
        command = (need_tool("editcap"), "-F", "nsecpcap", str(pcapng), str(path))
        subprocess.run(command, check=True, capture_output=True)
    table = dec.decode(read_pcap(path))
    assert len(table) > 100
    compare_every_packet(table, dec.registry.endpoints.texts(), expected)


def bth(opcode: int, psn: int = 0xABCDEF, flags: int = 0x80, dest_qp: int = 0x123456) -> bytes:
    return struct.pack(">BBHII", opcode, flags, 0xFFFF, dest_qp, 0x80000000 | psn)


CONTENT = bytes(range(1, 101))


def udp(opcode: int = 0x0A, sport: int = 0xC123) -> Packet:
    return UDP(sport=sport, dport=4791, chksum=0) / Raw(bth(opcode) + CONTENT)


def check_crafted(
    tool: str, tmp_path: Path, packets: list[bytes], link_type: int = 1
) -> PacketTable:
    path = tmp_path / f"crafted{link_type}.pcap"
    write_pcap(path, packets, link_type)
    dec = decoder()
    table = dec.decode(batch(packets, link_type=link_type))
    compare_every_packet(table, dec.registry.endpoints.texts(), tshark(tool, path))
    return table


def ethernet(packet: Packet) -> bytes:
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet)


V4 = IP(src="10.1.2.3", dst="10.4.5.6", id=0x1234, tos=0x6B, ttl=61, flags="DF")
V6 = IPv6(src="2001:db8::1", dst="fe80::2", tc=0x6B, fl=0xABCDE, hlim=33)


def test_every_opcode(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    frames = [ethernet(V4 / udp(opcode)) for opcode in range(256)]
    table = check_crafted(need_tool("tshark"), tmp_path, frames)
    assert table.opcode.tolist() == list(range(256))
    for opcode in range(256):
        headers = headers_of(opcode) or []
        assert table.payload_bytes[opcode] == 100 - 4 - sum(SIZES[h] for h in headers), opcode


@pytest.mark.thorough
def test_extension_headers_of_every_opcode(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    frames = batch([ethernet(V4 / udp(opcode)) for opcode in range(256)], base_offset=24)
    table = decoder().decode(frames)
    path = tmp_path / "opcodes.pcap"
    write_pcap(path, [ethernet(V4 / udp(opcode)) for opcode in range(256)], 1)
    expected = tshark(need_tool("tshark"), path)
    found = decode_extensions(table, frames.data, 24)
    names = {
        "infiniband.aeth.syndrome": found.aeth_syndrome,
        "infiniband.aeth.msn": found.aeth_msn,
        # tshark shows the address and key of an AtomicETH under the RETH's names.
        "infiniband.reth.va": found.reth_virtual_address | found.atomic_virtual_address,
        "infiniband.reth.r_key": found.reth_r_key | found.atomic_r_key,
        "infiniband.reth.dmalen": found.reth_dma_length,
        "infiniband.deth.q_key": found.deth_q_key,
        "infiniband.deth.srcqp": found.deth_src_qp,
        "infiniband.atomiceth.swapdt": found.atomic_swap_add,
        "infiniband.atomiceth.cmpdt": found.atomic_compare,
        "infiniband.atomicacketh.origremdt": found.atomic_ack_original,
    }
    seen = set()
    for opcode in (*range(0x40), *range(0x60, 256)):
        for name, values in names.items():
            text = expected[opcode + 1][name]
            if text:
                seen.add(name)
                assert int(values[opcode]) == number(text), (hex(opcode), name)
        for name, values in (("immdt", found.immediate), ("ieth", found.invalidate_r_key)):
            text = expected[opcode + 1][f"infiniband.{name}"].split(",")[-1]
            if text:
                seen.add(name)
                assert int(values[opcode]) == int(text, 16), (hex(opcode), name)
    assert len(seen) == 12
    rd_write = 0x4B  # the bytes after the BTH are 1, 2, 3, ...
    assert found.present[rd_write] == ext.RDETH | ext.DETH | ext.RETH | ext.IMM_DT
    assert found.rdeth_ee_context[rd_write] == 0x020304
    assert found.deth_q_key[rd_write] == 0x05060708
    assert found.deth_src_qp[rd_write] == 0x0A0B0C == table.src_qp[rd_write]
    assert found.reth_dma_length[rd_write] == 0x191A1B1C == table.dma_length[rd_write]
    assert found.immediate[rd_write] == 0x1D1E1F20
    rd_atomic_ack = 0x52
    assert found.present[rd_atomic_ack] == ext.RDETH | ext.AETH | ext.ATOMIC_ACK_ETH
    assert table.aeth[rd_atomic_ack] == 0x05060708
    assert found.atomic_ack_original[rd_atomic_ack] == 0x090A0B0C0D0E0F10
    xrc_add = 0xB4
    assert found.present[xrc_add] == ext.XRCETH | ext.ATOMIC_ETH
    assert found.xrceth_srq[xrc_add] == 0x020304
    assert found.atomic_virtual_address[xrc_add] == 0x05060708090A0B0C
    assert found.atomic_r_key[xrc_add] == 0x0D0E0F10
    assert found.atomic_swap_add[xrc_add] == 0x1112131415161718
    assert found.atomic_compare[xrc_add] == 0x191A1B1C1D1E1F20
    flush = 0x1C
    assert found.present[flush] == ext.FETH | ext.RETH
    assert (found.flush_placement[flush], found.flush_selectivity[flush]) == (0x4, 0x0)
    assert found.reth_virtual_address[flush] == 0x05060708090A0B0C
    assert found.present[0x1D] == ext.RETH and found.present[0x07] == 0


@pytest.mark.thorough
def test_encapsulations(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    tool = need_tool("tshark")
    options = [IPOption_Router_Alert(), IPOption_NOP(), IPOption_NOP()]
    frames = [
        ethernet(packet)
        for packet in (
            V4 / udp(),
            V6 / udp(),
            Dot1Q(vlan=100, prio=3) / V4 / udp(),
            Dot1AD(vlan=7) / Dot1Q(vlan=4094, prio=5) / V6 / udp(0x64),
            Dot1AD(vlan=7) / Dot1AD(vlan=8) / Dot1Q(vlan=9) / Dot1Q(vlan=10) / V4 / udp(),
            IP(src="1.2.3.4", dst="5.6.7.8", options=options, id=9) / udp(0x11),
            IP(src="1.2.3.4", dst="5.6.7.8", options=[IPOption_NOP()] * 40) / udp(0x11),
            V6 / IPv6ExtHdrHopByHop() / udp(),
            V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / udp(),
            V6 / IPv6ExtHdrRouting(addresses=["2001:db8::9"], segleft=0) / udp(0x0C),
            V6 / IPv6ExtHdrFragment(offset=0, m=0, id=5) / udp(),
        )
    ]
    table = check_crafted(tool, tmp_path, frames)
    assert len(table) == len(frames)
    assert table.vlan.tolist()[2:5] == [3 << 13 | 100, 5 << 13 | 4094, 10]
    assert not (table.decode_flags & LENGTH_MISMATCH).any()
    for link_type, frame in (
        (101, bytes(V4 / udp())),
        (101, bytes(V6 / udp())),
        (228, bytes(V4 / udp())),
        (229, bytes(V6 / udp())),
        (113, bytes(14) + b"\x08\x00" + bytes(V4 / udp())),
        (113, bytes(14) + b"\x86\xdd" + bytes(V6 / udp())),
        (276, b"\x08\x00" + bytes(18) + bytes(V4 / udp())),
    ):
        assert len(check_crafted(tool, tmp_path, [frame], link_type)) == 1, link_type


def test_first_fragment_is_decoded_and_later_ones_counted() -> None:
    """tshark holds fragments back for reassembly; the bytes themselves are the oracle."""
    datagram = bytes(udp(0x0A))
    first = ethernet(IP(src="10.1.2.3", dst="10.4.5.6", flags="MF", proto=17) / Raw(datagram[:48]))
    last = ethernet(IP(src="10.1.2.3", dst="10.4.5.6", frag=6, proto=17) / Raw(datagram[48:]))
    first6 = ethernet(V6 / IPv6ExtHdrFragment(nh=17, m=1, id=5) / Raw(datagram[:48]))
    last6 = ethernet(V6 / IPv6ExtHdrFragment(nh=17, offset=6, id=5) / Raw(datagram[48:]))
    dec = decoder()
    table = dec.decode(batch([first, last, first6, last6]))
    assert table.frame_number.tolist() == [1, 3]
    assert table.psn.tolist() == [0xABCDEF, 0xABCDEF]
    assert (table.decode_flags & FIRST_FRAGMENT).all()
    assert not (table.decode_flags & LENGTH_MISMATCH).any()
    assert table.payload_bytes.tolist() == [100 - 16 - 4] * 2
    assert dec.counters.later_fragments() == 2
    assert dec.counters.noted(outcomes.FIRST_FRAGMENTS) == 2


def test_where_tshark_is_wrong(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    congestion = bytes.fromhex("8100ffff4000011800000000") + bytes(20)
    frames = [
        ethernet(V4 / UDP(sport=0xC000, dport=4791, chksum=0) / Raw(congestion)),
        ethernet(V4 / udp(0x04, sport=69)),
        ethernet(V4 / udp(0x04))[:60],
    ]
    path = tmp_path / "wrong.pcap"
    write_pcap(path, frames, 1)
    tool = need_tool("tshark")
    version = subprocess.run([tool, "-v"], capture_output=True, text=True).stdout
    if "(Wireshark) 4.0." in version:
        theirs = tshark(tool, path)
        assert "Unknown" in theirs[1]["_ws.col.Info"]
        assert theirs[2]["infiniband.bth.opcode"] == ""  # dissected as TFTP
        assert "Malformed" in theirs[3]["_ws.col.Info"]
    table = decoder().decode(batch(frames, wire=[len(frames[0]), len(frames[1]), 158]))
    assert table.opcode[0] == 0x81 and table.dest_qp[0] == 0x118
    assert table.bth_flags[0] >> np.uint32(8) & np.uint32(0xC0) == 0x40  # BECN, no FECN
    assert table.payload_bytes[0] == 0
    assert table.udp_sport[1] == 69 and table.dest_qp[1] == 0x123456
    assert table.payload_bytes[2] == 96 and table.psn[2] == 0xABCDEF

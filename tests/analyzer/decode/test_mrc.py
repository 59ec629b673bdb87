"""Segment lists from outer IPv6 headers written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from batches import batch, decode, decoder

from rocescope.analyzer.decode.mrc import (
    ALWAYS_SKIP,
    CC_STATE,
    EETH,
    ERTH,
    EV_PROBE,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    SKIP_ONCE,
    TSETH,
    number_paths,
)
from rocescope.analyzer.wire.bth import MRC, OPCODE_CLASS, TRANSPORT_OF, opcode_name
from rocescope.analyzer.wire.packets import HAS_AETH, HAS_RETH, I64, U8, PacketTable
from rocescope.analyzer.wire.registry import SegmentLists, parse_usid_format

# Segment lists from outer IPv6 headers written out by hand.

CARRIER = "fcbbbb00 0101 0201 0102 f001 0000 0000"
SHIFTED = "fcbbbb00 0102 f001 0000 0000 0000 0000"


def ipv6(destination: str, next_header: int = 41, rest: str = "") -> bytes:
    content = bytes.fromhex(rest)
    head = f"60000000 {len(content):04x} {next_header:02x} 40 20010db8" + "00" * 11 + "01"
    return bytes.fromhex(head + destination) + content


def srh(left: int, last: int, *segments: str) -> str:
    """Next header 41, length in 8 bytes beyond the first, type 4, segments left, last entry."""
    return f"29 {2 * len(segments):02x} 04 {left:02x} {last:02x} 00 0000" + "".join(segments)


def numbers(lists: SegmentLists, *packets: bytes, cut: int = 0) -> list[int]:
    data = np.frombuffer(b"".join(packets), np.uint8)
    data.flags.writeable = False
    lengths = np.array([len(p) for p in packets], np.int64)
    begin = np.cumsum(lengths) - lengths
    return numbered(lists, data, begin, begin, lengths - cut)


def numbered(
    lists: SegmentLists, data: U8, outer_ipv6: I64, begin: I64, captured: I64
) -> list[int]:
    out = np.full(len(begin), 99, np.uint32)
    number_paths(lists, data, outer_ipv6, begin, captured.astype(np.uint32), out)
    return out.tolist()


def test_carriers() -> None:
    lists = SegmentLists()
    assert numbers(lists, ipv6(CARRIER), ipv6(SHIFTED), ipv6(CARRIER)) == [1, 2, 1]
    assert lists.names() == [
        "no segments",
        "fcbb:bb00:0101:0201:0102:f001",
        "fcbb:bb00:0102:f001",
    ]
    block, left, empty = lists.usids(lists.segments(2)[0])
    assert (block, left, empty) == ("fcbb:bb00", ["0102", "f001"], 4)


def test_an_ordinary_tunnel_is_no_path() -> None:
    lists = SegmentLists()
    tunnel = "20010db8 0000 0000 0000 0000 0000 0002"
    assert numbers(lists, ipv6(tunnel)) == [0]
    data = np.frombuffer(ipv6(CARRIER), np.uint8)
    minus_one = np.array([-1], np.int64)
    nothing = np.zeros(1, np.int64)
    assert numbered(lists, data, minus_one, nothing, nothing + len(data)) == [0]


def test_routing_header() -> None:
    """The active segment is the destination; behind it come those with lower indices."""
    first, second, third = (f"20010db8 00{i}0 0000 0000 0000 0000 0001" for i in (1, 2, 3))
    lists = SegmentLists()
    packets = [
        ipv6(first, 43, srh(2, 2, third, second, first)),
        ipv6(second, 43, srh(1, 2, third, second, first)),
        ipv6(third, 43, srh(0, 2, third, second, first)),
        ipv6(first, 43, srh(2, 1, third, second)),  # reduced: without the first segment
    ]
    found = numbers(lists, *packets)
    texts = [[f"{s:032x}" for s in lists.segments(n)] for n in found]
    a, b, c = (s.replace(" ", "") for s in (first, second, third))
    assert texts == [[a, b, c], [b, c], [c], [a, b, c]]
    assert found[0] == found[3]
    assert lists.name(found[1]).count(" > ") == 1


def test_lengths_that_lie() -> None:
    lists = SegmentLists()
    huge = ipv6(CARRIER, 43, "29 ff 04 ff ff 00 0000" + "00" * 16)
    assert numbers(lists, huge) == [1]  # the header is not there: the carrier alone
    left_beyond = ipv6(CARRIER, 43, srh(200, 200, SHIFTED))
    assert numbers(lists, left_beyond)[0] > 1
    whole = ipv6(CARRIER, 43, srh(1, 1, SHIFTED, CARRIER))
    for cut in range(len(whole)):
        (number,) = numbers(lists, whole, cut=cut)
        assert (number == 0) == (len(whole) - cut < 40)
    loop = ipv6(CARRIER, 0, "00 00 00 00 00 00 00 00" * 20)
    assert numbers(lists, loop) == [1]


@pytest.mark.parametrize(
    ("text", "carrier", "name"),
    [
        ("48:16", "fcbbbb000001 0101 0201 0000 0000 0000", "fcbb:bb00:1:0101:0201"),
        ("16:32", "fcbb 00010101 00000201 00000000 0000", "fcbb:00010101:00000201"),
        ("64:16", "fcbbbb0000000001 0101 0000 0000 0000", "fcbb:bb00:0:1:0101"),
        ("80:8", "fcbbbb00000000010002 01 02 00 00 00 00", "fcbb:bb00:0:1:2:01:02"),
    ],
)
def test_formats(text: str, carrier: str, name: str) -> None:
    lists = SegmentLists(parse_usid_format(text))
    (number,) = numbers(lists, ipv6(carrier))
    assert lists.name(number) == name


def test_memory_is_bounded() -> None:
    lists = SegmentLists()
    many = [ipv6(f"fcbbbb00 {1 + i // 60000:04x} {i % 60000:04x}" + "00" * 8) for i in range(70000)]
    found = numbers(lists, *many)
    assert len(set(found)) == (1 << 16) + 1
    assert lists.name(found[-1]) == "other"
    assert lists.name(found[0]) == "fcbb:bb00:0001"


# MRC headers from bytes written out by hand, offset by offset (docs/mrc.md).

# Ethernet, IPv6 with flow label 0x2ABCD (traffic class 0x68: DSCP 26), addresses 2001:db8::a > ::b
ETHERNET = "020000000002 020000000001 86dd"
IPV6 = (
    "6682abcd {length:04x} 11 40 20010db800000000000000000000000a 20010db800000000000000000000000b"
)


def frame(udp_payload: str, sport: int = 0xC001, dport: int = 4791) -> bytes:
    """A frame around the bytes after the UDP header."""
    content = bytes.fromhex(udp_payload)
    length = 8 + len(content)
    udp = f"{sport:04x} {dport:04x} {length:04x} 0000"
    return bytes.fromhex(ETHERNET + IPV6.format(length=length) + udp) + content


# BTH: opcode, byte 1 (pad in bits 5..4), P_Key, byte 4, QP, byte 8 (A 7, RTX 5, TS 4), PSN
WRITE_FIRST = (
    "c6 00 ffff 00 000123 80 00fffe"  # AckReq, PSN 0xfffe
    "0007 0102"  # METH: RQMSN 7, MSN 0x102
    "00007f0011223344 0000beef 00002000" + "55" * 16 + "00000000"  # RETH: VA, R_Key, DMALen 8192
)
WRITE_MIDDLE_TS = (
    "c7 00 ffff 00 000123 30 00ffff"  # RTX and TS
    "0000 0102"
    "abcd 8001"  # TSETH: timestamp 0xabcd, TSR 1, ftype 1
    "00007f0011224344 0000beef 00002000" + "55" * 16 + "00000000"
)
WRITE_ONLY_IMM = (
    "cb 30 ffff 00 000123 00 010000"  # three pad bytes
    "0008 0103"
    "0000000000001000 00000001 00000005"  # DMALen 5
    "deadbeef"  # ImmDt
    "0102030405" + "000000" + "00000000"
)
ACK = "d1 00 ffff 00 000456 00 00ffff 1f 000102 00000000"
SACK = (
    "dc 00 ffff 00 000456 00 00ffff"
    "00"  # 0: type, nxt
    "40"  # 1: m = 2 (bits 6..5), pr = 0 (bit 1)
    "fffd"  # 2-3: ack_psn_offset -3
    "abcdc001"  # 4-7: entropy
    "0123 0456"  # 8-11: spdcid, dpdcid
    "00 00ffff"  # 12: reserved, 13-15: cack_psn
    "00"  # 16: cc_type 0, cc_flags 0
    "08"  # 17: mpr, 1024 PSNs
    "0001"  # 18-19: sack_offset
    "8000000000000005"  # 20-27: sack_bitmap
    "1234"  # 28-29: reflected timestamp
    "8011"  # 30-31: reserved bit, ooo_count 17
    "c0"  # 32: restore_cwnd 1, rcv_cwnd_pen 64
    "0a0b0c"  # 33-35: rcvd_bytes
    "00000000"
)
PROBE_RESPONSE = SACK.replace("40fffd", "22beef")  # m = 1, pr = 1, probe_id 0xbeef
NACK = (
    "dd 00 ffff 00 000456 00 000000"
    "0000"  # 0-1
    "01"  # 2: TRIMMED
    "5a"  # 3: vendor_info
    "abcdc001"  # 4-7
    "0123 0456"  # 8-11
    "00 00abcd"  # 12, 13-15: nack_psn
    "20 00"  # 16: cc_type 2, 17
    "4321"  # 18-19: reflected timestamp
    "00000000"
)
PROBE = (
    "de 00 ffff 00 000123 00 000000"
    "0000 00 00"  # 0-3
    "beef"  # 4-5: probe_id
    "0000 0123 0456"  # 6-7, 8-11
    "1111"  # 12-13: timestamp
    "0001"  # 14-15: TSR 0, ftype 1
    "00000000"
)
ENDPOINT_REQUEST = (
    "d8 00 ffff 00 000002 00 00cafe"
    "00 01 00 00"  # 1: op 1 in bits 1..0, EV probe
    "0000000e"  # 4-7: port_status_mask
    "00000000"  # 8-11
    "2222 0001"  # 12-15
    "00000000"
)
ENDPOINT_RESPONSE = "d9 00 ffff 00 000002 00 00cafe" + "00" * 28 + "3333" + "00" * 6 + "00000000"
CONTROL = [ACK, SACK, PROBE_RESPONSE, NACK, PROBE, ENDPOINT_REQUEST, ENDPOINT_RESPONSE]
ALL = [WRITE_FIRST, WRITE_MIDDLE_TS, WRITE_ONLY_IMM, *CONTROL]


def fields(udp_payload: str, **options: int) -> tuple[PacketTable, dict[str, int]]:
    """The row and the MRC fields that are not 0 of a packet."""
    table = decode([frame(udp_payload, **options)])
    assert len(table) == 1
    assert table.mrc is not None
    (record,) = table.mrc.tolist()
    names = table.mrc.dtype.names
    assert names is not None
    return table, {name: v for name, v in zip(names, record, strict=True) if v}


EV = 0xABCDC001


def test_write_without_timestamp() -> None:
    table, found = fields(WRITE_FIRST)
    assert found == {
        "present": METH | RETH,
        "ev": EV,
        "msn": 0x102,
        "rqmsn": 7,
        "virtual_address": 0x7F0011223344,
        "r_key": 0xBEEF,
    }
    assert table.payload_bytes[0] == 16
    assert table.dma_length[0] == 8192
    assert table.decode_flags[0] & HAS_RETH
    assert table.psn[0] == 0xFFFE
    assert opcode_name(int(table.opcode[0])) == "MRC_WRITE_FIRST"


def test_write_with_timestamp() -> None:
    table, found = fields(WRITE_MIDDLE_TS)
    assert found == {
        "present": METH | TSETH | RETH,
        "ev": EV,
        "msn": 0x102,
        "timestamp": 0xABCD,
        "timestamp_flags": 0x8001,
        "virtual_address": 0x7F0011224344,
        "r_key": 0xBEEF,
    }
    assert table.payload_bytes[0] == 16
    assert table.dma_length[0] == 8192


def test_write_with_immediate() -> None:
    table, found = fields(WRITE_ONLY_IMM)
    assert found["rqmsn"] == 8
    assert "trimmed" not in found
    assert table.payload_bytes[0] == table.dma_length[0] == 5


def test_acknowledge() -> None:
    table, found = fields(ACK)
    assert found == {"ev": EV}
    assert table.aeth[0] == 0x1F000102
    assert table.decode_flags[0] & HAS_AETH


def test_sack() -> None:
    _, found = fields(SACK)
    assert found == {
        "present": SETH | CC_STATE,
        "ev": EV,
        "entropy": EV,
        "psn": 0xFFFF,
        "psn_offset": -3,
        "feedback": ALWAYS_SKIP,
        "spdcid": 0x123,
        "dpdcid": 0x456,
        "mpr": 8,
        "sack_offset": 1,
        "sack_bitmap": 0x8000000000000005,
        "timestamp": 0x1234,
        "ooo_count": 17,
        "restore_cwnd": 1,
        "cwnd_penalty": 64,
        "rcvd_bytes": 0x0A0B0C,
    }


def test_probe_response() -> None:
    _, found = fields(PROBE_RESPONSE)
    assert (found["feedback"], found["probe_response"]) == (SKIP_ONCE, 1)
    assert found["probe_id"] == 0xBEEF
    assert "psn_offset" not in found


def test_nack() -> None:
    _, found = fields(NACK)
    assert found == {
        "present": NETH,
        "ev": EV,
        "entropy": EV,
        "psn": 0xABCD,
        "reason": 1,
        "spdcid": 0x123,
        "dpdcid": 0x456,
        "cc_type": 2,
        "timestamp": 0x4321,
    }


def test_probe_and_endpoint_operations() -> None:
    _, found = fields(PROBE)
    assert found["present"] == PETH
    assert (found["probe_id"], found["timestamp"]) == (0xBEEF, 0x1111)
    _, found = fields(ENDPOINT_REQUEST)
    assert found["present"] == ERTH
    assert (found["operation"], found["port_mask"]) == (EV_PROBE, 0x0E)
    assert (found["probe_id"], found["timestamp"]) == (0xCAFE, 0x2222)
    _, found = fields(ENDPOINT_RESPONSE)
    assert found["present"] == EETH
    assert (found["probe_id"], found["timestamp"]) == (0xCAFE, 0x3333)


def test_trimmed() -> None:
    cut = "ca" + WRITE_FIRST[2 : -2 * 20] + "00000000"  # Only, 8192 bytes announced, none there
    assert fields(cut)[1]["trimmed"] == 1
    behind_the_meth = "c7 00 ffff 00 000123 00 00ffff 0000 0102"
    assert fields(behind_the_meth)[1]["trimmed"] == 1
    by_dscp = decoder(trimmed_dscps=[26]).decode(batch([frame(WRITE_FIRST)]))
    assert by_dscp.mrc is not None
    assert by_dscp.mrc["trimmed"].tolist() == [1]


@pytest.mark.parametrize("packet", ALL)
def test_the_printed_port_counts_when_it_looks_like_mrc(packet: str) -> None:
    on_4971, on_4791 = fields(packet, dport=4971), fields(packet)
    assert on_4971[1] == on_4791[1]
    assert on_4971[0].udp_dport[0] == 4971


@pytest.mark.parametrize("packet", CONTROL)
def test_other_lengths_are_other_protocols(packet: str) -> None:
    """Fixed lengths tell MRC from other uses of the block, on any port."""
    longer = packet + "00"
    assert len(decode([frame(longer, dport=4971)])) == 0
    assert decode([frame(longer)]).mrc is None
    other_version = packet[:4] + packet[4:].replace("0", "1", 1)
    assert len(decode([frame(other_version, dport=4971)])) == 0


def test_other_opcodes_of_the_block_stay_unknown() -> None:
    for opcode in {*range(0xC0, 0xE0)} - {*range(0xC6, 0xCC), 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE}:
        assert OPCODE_CLASS[opcode] == 0
        assert TRANSPORT_OF[opcode] != MRC
        assert opcode_name(opcode) == f"0x{opcode:02x}"
        packet = f"{opcode:02x}" + WRITE_FIRST[2:]
        assert decode([frame(packet)]).mrc is None
        assert len(decode([frame(packet, dport=4971)])) == 0


@pytest.mark.parametrize("packet", ALL)
def test_cut_at_every_byte(packet: str) -> None:
    """No field is read from beyond the capture: what is there equals what the whole has."""
    whole = frame(packet)
    frames = [whole[:length] for length in range(54 + 8 + 12, len(whole) + 1)]
    table = decode(frames, wire=[len(whole)] * len(frames))
    assert len(table) == len(frames)
    assert table.mrc is not None
    assert len(table.mrc) == len(frames)
    last = table.mrc[-1]
    for record in table.mrc:
        missing = int(last["present"]) & ~int(record["present"])
        for name in table.mrc.dtype.names[1:]:
            assert missing or record[name] == last[name], name
            assert record[name] in (0, last[name]) or name == "present"


def test_rows_follow_the_table() -> None:
    """Slices, selections and joined tables keep the records with their rows."""
    plain = "04" + WRITE_FIRST[2:]
    table = decode([frame(p) for p in (plain, WRITE_FIRST, SACK, plain, NACK)])
    assert table.mrc is not None
    assert table.mrc["row"].tolist() == [1, 2, 4]
    part = table.slice(2, 5)
    assert part.mrc is not None
    assert (part.mrc["row"].tolist(), part.mrc["reason"].tolist()) == ([0, 2], [0, 1])
    turned = table.take([4, 3, 2, 0])  # type: ignore[arg-type]
    assert turned.mrc is not None
    assert (turned.mrc["row"].tolist(), turned.mrc["reason"].tolist()) == ([0, 2], [1, 0])
    assert table.take(table.opcode == 0x04).mrc is None
    joined = PacketTable.concatenate([table.slice(3, 4), part])
    assert joined.mrc is not None
    assert joined.mrc["row"].tolist() == [1, 3]

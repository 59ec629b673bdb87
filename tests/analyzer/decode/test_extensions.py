"""Extension headers on damaged frames: what the packet table holds too must be the same."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from batches import batch, decoder
from corpus import frame
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from rocescope.analyzer.decode import extensions as ext
from rocescope.analyzer.decode.extensions import crc32_update, decode_extensions
from rocescope.analyzer.wire.packets import (
    HAS_AETH,
    HAS_DETH,
    HAS_RETH,
    ICRC_BAD,
    ICRC_OK,
    ICRC_TRUNCATED,
    ICRC_UNCHECKED,
)

# Extension headers on damaged frames: what the packet table holds too must be the same.


def test_agrees_with_the_packet_table_on_any_frames() -> None:
    rng = random.Random(5)
    frames = [frame(rng) for _ in range(10_000)]
    together = batch(
        [data for data, _, _ in frames],
        link_type=[link_type for _, link_type, _ in frames],
        wire=[wire for _, _, wire in frames],
        base_offset=777,
    )
    table = decoder().decode(together)
    found = decode_extensions(table, together.data, 777)
    for flag, bit in ((HAS_AETH, ext.AETH), (HAS_RETH, ext.RETH), (HAS_DETH, ext.DETH)):
        assert np.array_equal(table.decode_flags & flag != 0, found.present & bit != 0)
        assert np.count_nonzero(found.present & bit) > 20
    syndrome = found.aeth_syndrome.astype(np.uint32) << np.uint32(24)
    assert np.array_equal(table.aeth, syndrome | found.aeth_msn)
    assert np.array_equal(table.dma_length, found.reth_dma_length)
    assert np.array_equal(table.src_qp, found.deth_src_qp)


def test_nothing_is_made_up_for_snapped_headers() -> None:
    rng = random.Random(6)
    whole = bytes(12) + b"\x08\x00" + bytes.fromhex("450000380000000040110000")
    whole += bytes.fromhex("0a0000010a000002") + bytes.fromhex("c00012b700240000")
    whole += bytes.fromhex("0600ffff0000001200000001") + rng.randbytes(16)
    for cut in range(42 + 12, len(whole)):
        frames = batch([whole[:cut]], wire=[len(whole) + 4])
        table = decoder().decode(frames)
        found = decode_extensions(table, frames.data, 0)
        assert found.present[0] == 0 and found.reth_virtual_address[0] == 0
    frames = batch([whole], wire=[len(whole) + 4])
    found = decode_extensions(decoder().decode(frames), frames.data, 0)
    assert found.present[0] == ext.RETH
    assert int(found.reth_virtual_address[0]) == int.from_bytes(whole[54:62], "big")


# The ICRC against vectors from real hardware, zlib and scapy.

CONNECTX_CNP = bytes.fromhex(
    "e41d2dab2bc27cfe90643b320800"
    "45c2003c718c4000401191610a0011010a001201"
    "000012b700280000"
    "8100ffff4000011800000000"
    "00000000000000000000000000000000"
    "82fd002a"
)
UC_SEND = bytes(
    Ether()
    / IP(src="192.168.0.7", dst="192.168.0.7", id=1144, flags="DF", len=64)
    / UDP(sport=49152, dport=4791, len=44, chksum=0)
    / Raw(
        bytes.fromhex("2460ffff000000d300cf1710")
        + bytes.fromhex("4630818be28935d90e9a95505401be885e500000")
        + bytes.fromhex("78f353f3")
    )
)


def state(frame: bytes, **options: object) -> int:
    table = decoder(check_icrc=True).decode(batch([frame], **options))  # type: ignore[arg-type]
    return int(table.icrc_state[0])


@pytest.mark.parametrize("frame", [CONNECTX_CNP, UC_SEND], ids=["ConnectX-4 CNP", "UC SEND"])
def test_published_vectors(frame: bytes) -> None:
    assert state(frame) == ICRC_OK
    assert state(frame + bytes(6)) == ICRC_OK  # Ethernet padding is not part of it
    assert state(frame[:-1], wire=[len(frame)]) == ICRC_TRUNCATED


def test_every_bit_counts_but_those_routers_change() -> None:
    """TOS, TTL, both checksums and BTH byte 4 are outside; all else changes the state."""
    free = {15, 22, 24, 25, 40, 41, 46}
    fixed_structure = {14, 16, 17, 20, 21, 23, 36, 37, 38, 39}  # changes what the frame is
    for at in range(14, len(UC_SEND)):
        if at in fixed_structure:
            continue
        damaged = bytearray(UC_SEND)
        damaged[at] ^= 0x10 if at != 43 else 0x80
        assert state(bytes(damaged)) == (ICRC_OK if at in free else ICRC_BAD), at


@pytest.mark.thorough
@given(st.binary(max_size=600), st.integers(0, 20), st.integers(0, 0xFFFFFFFF))
def test_crc_equals_zlib(data: bytes, start: int, seed: int) -> None:
    start = min(start, len(data))
    ours = crc32_update(
        np.uint32(seed ^ 0xFFFFFFFF), np.frombuffer(data, np.uint8), start, len(data)
    )
    assert int(ours) ^ 0xFFFFFFFF == zlib.crc32(data[start:], seed)


@pytest.mark.parametrize("size", [0, 4, 20, 1024])
def test_equals_scapy(size: int) -> None:
    send = BTH(opcode="RC_SEND_ONLY", dqpn=0x1234, psn=7, solicited=1, ackreq=1) / Raw(bytes(size))
    udp = UDP(sport=0xC000, chksum=0)
    # Without addresses scapy would look them up on the network, for a second.
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    v4 = link / IP(src="10.0.0.1", dst="10.0.0.2", tos=3, ttl=9) / udp / send
    v6 = link / IPv6(src="2001:db8::1", dst="2001:db8::2", tc=3, fl=77, hlim=9) / udp / send
    for packet in (v4, v6):
        table = decoder(check_icrc=True).decode(batch([bytes(packet)]))
        assert table.payload_bytes.tolist() == [size]
        assert table.icrc_state.tolist() == [ICRC_OK]


def test_not_asked_for() -> None:
    table = decoder().decode(batch([CONNECTX_CNP]))
    assert table.icrc_state.tolist() == [ICRC_UNCHECKED]

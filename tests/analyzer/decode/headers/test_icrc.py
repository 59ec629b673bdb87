"""The ICRC against vectors from real hardware, zlib and scapy."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from batches import batch, decoder
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from rocescope.analyzer.decode.headers.icrc import crc32_update
from rocescope.analyzer.wire.packets import ICRC_BAD, ICRC_OK, ICRC_TRUNCATED, ICRC_UNCHECKED

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
    for frame in (v4, v6):
        table = decoder(check_icrc=True).decode(batch([bytes(frame)]))
        assert table.payload_bytes.tolist() == [size]
        assert table.icrc_state.tolist() == [ICRC_OK]


def test_not_asked_for() -> None:
    table = decoder().decode(batch([CONNECTX_CNP]))
    assert table.icrc_state.tolist() == [ICRC_UNCHECKED]

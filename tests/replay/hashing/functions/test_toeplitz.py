"""Toeplitz against Microsoft's verification suite and against sliding the key bit by bit."""

from __future__ import annotations

import pytest
from hash_keys import ROWS, SEEDS, rows
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.functions.toeplitz import MICROSOFT_KEY, key_of, toeplitz
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import HashSettings

# Microsoft, "Verifying the RSS hash calculation": source, destination, addresses alone, with ports.
SUITE = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323E8FC2, 0x51CCC178),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xD718262A, 0xC626B0EA),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xD2D0A5DE, 0x5C2B394A),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xAFC7327F),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5D1809C5, 0x10E828A2),
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2CC18CD5, 0x40207D3D),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0F0C461C, 0xDDE51BBF),
    (
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        "fe80::200:f8ff:fe21:67cf",
        38024,
        0x4B61E985,
        0x02D1FEEF,
    ),
]


def test_microsofts_verification_suite():
    src, sport, dst, dport, addresses, ports = zip(*SUITE, strict=True)
    keys = packet_keys(src, dst, sport, dport)
    for field_set, expected in (("src+dst", addresses), ("4-tuple", ports)):
        bound = bind(keys, HashSettings("toeplitz", field_set))
        assert bound.values(0).tolist() == [list(expected)]
        assert bound.is_linear


def plain(text: bytes, key: bytes) -> int:
    bits = len(key) * 8
    value = 0
    for i in range(len(text) * 8):
        if text[i // 8] >> (7 - i % 8) & 1:
            value ^= int.from_bytes(key, "big") >> (bits - 32 - i) & 0xFFFFFFFF
    return value


@given(ROWS, SEEDS, st.binary(min_size=8, max_size=52))
def test_any_key(texts, seed, key):
    expected = [plain(t, key * 8) ^ seed for t in texts]
    assert toeplitz(rows(texts), key, seed).tolist() == expected


def test_symmetric_key_hashes_both_directions_alike():
    settings = HashSettings("toeplitz", "4-tuple", extra={"key": "symmetric"})
    there = bind(packet_keys(["10.0.0.1"], ["10.0.0.2"], [50000]), settings)
    back = bind(packet_keys(["10.0.0.2"], ["10.0.0.1"], [4791], [50000]), settings)
    assert there.values(5).tolist() == back.values(5).tolist()


def test_keys_as_text():
    assert key_of("microsoft") == MICROSOFT_KEY
    assert key_of("6d:5a:6d:5a:6d:5a:6d:5a") == b"\x6d\x5a" * 4
    for wrong in ("6d5a", "microsaft"):
        with pytest.raises(UsageError, match="Toeplitz key"):
            key_of(wrong)

"""CRCs against zlib, binascii, scapy, the `crc` package and the catalogue's check values."""

from __future__ import annotations

import binascii
import hashlib
import zlib
from math import comb

import crc as independent
import numpy as np
import pytest
from hash_keys import ROWS, SEEDS, rows, some_keys
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.sctp import crc32c as scapy_crc32c

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.functions import (
    CRC16_BISYNC,
    CRC16_CCITT,
    CRC32,
    CRC32C,
    FOLD_BITS,
    MICROSOFT_KEY,
    crc,
    digests,
    fold,
    jhash_2words,
    key_of,
    prepare_fnv1a,
    prepare_jenkins,
    toeplitz,
)
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import HashSettings, equal_cost

# CRCs against zlib, binascii, scapy, the `crc` package and the catalogue's check values.


@pytest.mark.parametrize(
    ("parameters", "seed", "check"),
    [
        (CRC16_CCITT, 0, 0x31C3),  # CRC-16/XMODEM
        (CRC16_CCITT, 0xFFFF, 0x29B1),  # CRC-16/IBM-3740
        (CRC16_BISYNC, 0, 0xBB3D),  # CRC-16/ARC
        (CRC16_BISYNC, 0xFFFF, 0x4B37),  # CRC-16/MODBUS
        (CRC32, 0, 0xCBF43926),  # CRC-32/ISO-HDLC
        (CRC32C, 0, 0xE3069283),  # CRC-32/ISCSI
    ],
)
def test_check_values_of_the_catalogue(parameters, seed, check):
    assert crc(parameters, rows([b"123456789"]), seed).tolist() == [check]


@given(ROWS, SEEDS)
def test_crc32_is_that_of_zlib(texts, seed):
    assert crc(CRC32, rows(texts), seed).tolist() == [zlib.crc32(t, seed) for t in texts]


@given(ROWS, SEEDS)
def test_ccitt_is_that_of_binascii(texts, seed):
    expected = [binascii.crc_hqx(t, seed & 0xFFFF) for t in texts]
    assert crc(CRC16_CCITT, rows(texts), seed).tolist() == expected


@given(ROWS)
def test_crc32c_is_that_of_scapy(texts):
    # scapy gives the bytes as SCTP sends them, in little-endian order.
    expected = [int.from_bytes(scapy_crc32c(t).to_bytes(4, "big"), "little") for t in texts]
    assert crc(CRC32C, rows(texts)).tolist() == expected


@given(ROWS, SEEDS)
@pytest.mark.parametrize("parameters", [CRC16_CCITT, CRC16_BISYNC, CRC32, CRC32C])
def test_every_crc_and_seed_is_that_of_the_crc_package(parameters, texts, seed):
    register = (parameters.start ^ seed) & ((1 << parameters.bits) - 1)
    if parameters.reflected:  # the package takes the first register highest bit first
        register = int(f"{register:0{parameters.bits}b}"[::-1], 2)
    calculator = independent.Calculator(
        independent.Configuration(
            width=parameters.bits,
            polynomial=parameters.polynomial,
            init_value=register,
            final_xor_value=parameters.end,
            reverse_input=parameters.reflected,
            reverse_output=parameters.reflected,
        )
    )
    expected = [calculator.checksum(t) for t in texts]
    assert crc(parameters, rows(texts), seed).tolist() == expected


# FNV-1a against the authors' published vectors and a plain twin.


def plain(text: bytes, start: int = 0x811C9DC5) -> int:
    for byte in text:
        start = (start ^ byte) * 16777619 % (1 << 32)
    return start


def values(texts, seed, prepended=False):
    out = np.empty((1, len(texts)), np.uint32)
    prepare_fnv1a(rows(texts), prepended)(np.array([seed], np.uint32), out)
    return out[0].tolist()


# test_fnv.c of the reference distribution.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0x811C9DC5),
        (b"a", 0xE40C292C),
        (b"foobar", 0xBF9CF968),
        (b"chongo was here!\n", 0xD49930D5),
        (b"ch\0", 0x1C85C7CA),
    ],
)
def test_published_vectors(text, expected):
    assert values([text], 0) == [expected] == [plain(text)]


@given(ROWS, SEEDS)
def test_any_bytes_and_seed(texts, seed):
    assert values(texts, seed) == [plain(t, 0x811C9DC5 ^ seed) for t in texts]
    assert values(texts, seed, True) == [plain(seed.to_bytes(4, "big") + t) for t in texts]


# lookup3 against Bob Jenkins's published test values and a plain twin.


def lookup3(text: bytes, initval: int) -> int:
    """hashlittle of lookup3.c, in plain integers."""

    def left(x: int, k: int) -> int:
        return (x << k | x >> (32 - k)) & 0xFFFFFFFF

    state = [(0xDEADBEEF + len(text) + initval) & 0xFFFFFFFF] * 3
    blocks = [text[i : i + 12] for i in range(0, len(text), 12)]
    for number, block in enumerate(blocks):
        for i in range(3):
            word = int.from_bytes(block.ljust(12, b"\0")[4 * i : 4 * i + 4], "little")
            state[i] = (state[i] + word) & 0xFFFFFFFF
        if number + 1 < len(blocks):
            for step, k in enumerate((4, 6, 8, 16, 19, 4)):
                a, b, c = step % 3, (step + 1) % 3, (step + 2) % 3
                state[a] = ((state[a] - state[c]) & 0xFFFFFFFF) ^ left(state[c], k)
                state[c] = (state[c] + state[b]) & 0xFFFFFFFF
        else:
            for step, k in enumerate((14, 11, 25, 16, 4, 14, 24)):
                x, y = (2 + step) % 3, (1 + step) % 3
                state[x] = ((state[x] ^ state[y]) - left(state[y], k)) & 0xFFFFFFFF
    return state[2]


# driver5() of lookup3.c.
PUBLISHED = [
    (b"", 0, 0xDEADBEEF),
    (b"", 0xDEADBEEF, 0xBD5B7DDE),
    (b"Four score and seven years ago", 0, 0x17770551),
    (b"Four score and seven years ago", 1, 0xCD628161),
]


def values_jenkins(texts, seeds, prepended=False):
    out = np.empty((len(seeds), len(texts)), np.uint32)
    prepare_jenkins(rows(texts), prepended)(np.array(seeds, np.uint32), out)
    return out.tolist()


@pytest.mark.parametrize(("text", "seed", "expected"), PUBLISHED)
def test_published_values(text, seed, expected):
    assert lookup3(text, seed) == expected
    assert values_jenkins([text], [seed]) == [[expected]]


@given(ROWS, SEEDS)
def test_any_bytes(texts, seed):
    assert values_jenkins(texts, [seed, 0]) == [[lookup3(t, s) for t in texts] for s in (seed, 0)]


@pytest.mark.thorough
@given(ROWS, SEEDS)
def test_seed_in_front(texts, seed):
    expected = [lookup3(seed.to_bytes(4, "big") + t, 0) for t in texts]
    assert values_jenkins(texts, [seed], prepended=True) == [expected]


def test_halves_are_those_of_sai():
    keys = some_keys(50)
    whole = bind(keys, HashSettings("jenkins")).values([9])
    assert (bind(keys, HashSettings("jenkins-lo")).values([9]) == whole & 0xFFFF).all()
    assert (bind(keys, HashSettings("jenkins-hi")).values([9]) == whole >> 16).all()


@given(SEEDS, SEEDS, SEEDS)
def test_jhash_of_two_words_is_lookup3_of_their_bytes(a, b, initval):
    expected = lookup3(a.to_bytes(4, "little") + b.to_bytes(4, "little"), initval)
    assert jhash_2words(np.uint32(a), np.uint32(b), np.uint32(initval)) == expected


# Toeplitz against Microsoft's verification suite and against sliding the key bit by bit.

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


def plain_toeplitz(text: bytes, key: bytes) -> int:
    bits = len(key) * 8
    value = 0
    for i in range(len(text) * 8):
        if text[i // 8] >> (7 - i % 8) & 1:
            value ^= int.from_bytes(key, "big") >> (bits - 32 - i) & 0xFFFFFFFF
    return value


@given(ROWS, SEEDS, st.binary(min_size=8, max_size=52))
def test_any_key(texts, seed, key):
    expected = [plain_toeplitz(t, key * 8) ^ seed for t in texts]
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


# XOR folds against folding one bit at a time.


def plain_xor(text: bytes, bits: int, seed: int) -> int:
    padded = "".join(f"{byte:08b}" for byte in text)
    padded += "0" * (-len(padded) % bits)
    value = seed % (1 << bits)
    for at in range(0, len(padded), bits):
        value ^= int(padded[at : at + bits], 2)
    return value


@given(ROWS, SEEDS)
@pytest.mark.parametrize("bits", FOLD_BITS)
def test_folds(bits, texts, seed):
    assert fold(rows(texts), bits, seed).tolist() == [plain_xor(t, bits, seed) for t in texts]


def test_by_hand():
    text = bytes([0x12, 0x34, 0xF0, 0x0F, 0xFF])
    folds = {bits: fold(rows([text]), bits)[0] for bits in FOLD_BITS}
    assert folds == {32: 0xED34F00F, 16: 0x1D3B, 8: 0x26, 4: 0x4, 2: 1, 1: 1}


# The random oracle is as even, and no more even, than chance.


def splitmix64(state: int) -> int:
    """One output of the published generator (Steele, Lea, Flood 2014)."""
    z = (state + 0x9E3779B97F4A7C15) % (1 << 64)
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    z = (z ^ z >> 27) * 0x94D049BB133111EB % (1 << 64)
    return z ^ z >> 31


def test_finaliser_is_splitmix64():
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # first output from state 0
    keys = some_keys(20)
    bound = bind(keys, HashSettings("random-oracle", "dport"))
    digest = int.from_bytes(
        hashlib.blake2b(int(keys.dport[3]).to_bytes(2, "big"), digest_size=8).digest(), "little"
    )
    assert bound.values([77])[0, 3] == splitmix64(digest ^ splitmix64(77)) >> 32


def test_different_keys_have_different_digests():
    assert len(np.unique(digests(rows([b"a", b"b", b"ab", b"a\0", b"a"])))) == 4


def test_flow_imbalance_is_that_of_chance():
    """E[FIM] of n flows on k links, in closed form (de Moivre): 2m C(n,m) p^m q^(n-m+1) / mu."""
    n, k, seeds = 64, 8, 20_000
    members = bind(some_keys(n), HashSettings("random-oracle")).choose(range(seeds), equal_cost(k))
    counts = np.stack([(members == link).sum(axis=1) for link in range(k)], axis=1)
    fim = 100 * np.abs(counts - n / k).mean(axis=1) / (n / k)
    m = n // k + 1
    expected = 100 * 2 * m * comb(n, m) * (1 / k) ** m * (1 - 1 / k) ** (n - m + 1) / (n / k)
    assert abs(fim.mean() - expected) < 4 * fim.std() / seeds**0.5

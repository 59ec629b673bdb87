"""CRCs against zlib, binascii, scapy, the `crc` package and the catalogue's check values."""

from __future__ import annotations

import binascii
import zlib

import crc as independent
import pytest
from hash_keys import ROWS, SEEDS, rows
from hypothesis import given
from scapy.layers.sctp import crc32c as scapy_crc32c

from rocescope.replay.hashing.functions.crc import CRC16_BISYNC, CRC16_CCITT, CRC32, CRC32C, crc


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

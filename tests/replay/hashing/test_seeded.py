"""Hashes that are linear in their seed, with zlib's CRC-32 as the function."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hash_keys import ROWS, SEEDS, rows
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.seeded import LinearHash, SeededHash, SeedRange, Shape, switch_seeds

# Hashes that are linear in their seed, with zlib's CRC-32 as the function.


def crc(keys, seed):
    """uint32[n]: the CRC-32 of each row, begun with the seed."""
    texts = [bytes(row[:n]) for row, n in zip(keys.data, keys.lengths.tolist(), strict=True)]
    return np.array([zlib.crc32(text, seed) for text in texts], np.uint32)


@given(ROWS, st.lists(SEEDS, min_size=1, max_size=4))
def test_one_xor_per_seed_is_the_function(texts, seeds):
    keys = rows(texts)
    linear = LinearHash(keys, crc, 32, "modulo")
    wanted = [crc(keys, seed).tolist() for seed in seeds]
    out = np.empty((len(seeds), len(texts)), np.uint32)
    linear.fill(np.array(seeds, np.uint64), out)
    assert out.tolist() == wanted


@given(ROWS, st.lists(SEEDS, min_size=2, max_size=4), st.randoms())
def test_another_seed_for_every_value(texts, seeds, random):
    keys = rows(texts)
    linear = LinearHash(keys, crc, 32, "modulo")
    which = np.array([[random.randrange(len(seeds)) for _ in texts] for _ in range(3)], np.int32)
    out = np.empty(which.shape, np.uint32)
    linear.fill_at(np.array(seeds, np.uint64), which, out)
    table = [crc(keys, seed) for seed in seeds]
    assert out.tolist() == [[int(table[w][i]) for i, w in enumerate(row)] for row in which.tolist()]


# Halves, rotation and offset of a value, with Python's integers.


def shaped(value, raw_bits, half, rotate, offset, seed=0):
    width = 16 if half else raw_bits
    value = (value >> (16 if half == "hi" else 0) ^ seed) & (1 << width) - 1
    bits = f"{value:0{width}b}"
    return int(bits[width - rotate :] + bits[: width - rotate], 2) >> offset


@given(
    st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=5),
    st.sampled_from([(32, ""), (16, ""), (32, "lo"), (32, "hi"), (8, "")]),
    st.integers(0, 31),
    st.integers(0, 31),
    SEEDS,
)
def test_shape(values, kind, rotate, offset, seed):
    raw_bits, half = kind
    width = 16 if half else raw_bits
    rotate, offset = rotate % width, offset % width
    shape = Shape(raw_bits, half, rotate, offset)
    assert (shape.width, shape.bits) == (width, width - offset)
    out = np.array([values], np.uint32)
    shape.apply(out, seed)
    assert out[0].tolist() == [shaped(v, raw_bits, half, rotate, offset, seed) for v in values]


@pytest.mark.parametrize(("rotate", "offset"), [(16, 0), (0, 16), (-1, 0)])
def test_shifts_beyond_the_value(rotate, offset):
    with pytest.raises(UsageError, match="rotate and offset are 0 to 15 for a hash of 16 bits"):
        Shape(32, "lo", rotate, offset)


def test_every_seed_needs_new_values():
    def fill(seeds, out):
        out[:] = (seeds[:, None] if seeds.ndim == 1 else seeds) * np.uint32(3) + np.arange(
            out.shape[1], dtype=np.uint32
        )

    hashed = SeededHash(2, fill, Shape(32, "", 0, 1), "modulo")
    seeds = np.array([10, 20], np.uint64)
    out = np.empty((2, 2), np.uint32)
    hashed.fill(seeds, out)
    assert out.tolist() == [[15, 15], [30, 30]]  # (30, 31) and (60, 61), without the lowest bit
    hashed.fill_at(seeds, np.array([[1, 0]], np.int32), out[:1])
    assert out[0].tolist() == [30, 15]


# Seeds of switches: splitmix64 with Python's integers, and its published first outputs.

MASK = (1 << 64) - 1


def splitmix64(number):
    """Output `number`, from 0, of the sequence that begins with state 0."""
    x = (number + 1) * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def test_the_twin_is_splitmix64():
    assert [splitmix64(n) for n in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=4), st.integers(1, 5))
def test_every_switch_has_its_own_seed(seeds, switches):
    found = switch_seeds(np.array(seeds, np.uint64), switches, "different")
    wanted = [[splitmix64(seed << 32 | i) >> 32 for i in range(switches)] for seed in seeds]
    assert found.tolist() == wanted
    same = np.array(seeds, np.uint64)
    assert switch_seeds(same, switches, "equal") is same


@given(st.integers(0, 50), st.integers(0, 60), st.integers(1, 9))
def test_parts_of_a_range_are_the_range(first, end, step):
    span = SeedRange(first, end, step)
    assert span.seeds == len(range(first, end, step))
    half = span.seeds // 2
    parts = [*span.part(0, half).tolist(), *span.part(half, span.seeds).tolist()]
    assert parts == list(range(first, end, step))

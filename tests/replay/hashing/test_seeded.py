"""Halves, rotation and offset of a value, with Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hash_keys import SEEDS
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.seeded import SeededHash, Shape


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

"""Hashes that are linear in their seed, with zlib's CRC-32 as the function."""

from __future__ import annotations

import zlib

import numpy as np
from hash_keys import ROWS, SEEDS, rows
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.hashing.linear import LinearHash


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

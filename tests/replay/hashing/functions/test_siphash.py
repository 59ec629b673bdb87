"""SipHash-2-4 against the reference vectors, through the plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from siphash_twin import siphash24

from rocescope.replay.hashing.functions import siphash

REFERENCE_KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)

# vectors.h of the reference implementation, by length of the message 00 01 02 ...
REFERENCE = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    8: 0x93F5F5799A932462,
    15: 0xA129CA6149BE45E5,
    16: 0x3F2ACC7F57C29BDB,
    48: 0xE612A3CB9ECBA951,
    63: 0x958A324CEB064572,
}


@pytest.mark.parametrize("length", REFERENCE)
def test_the_twin_gives_the_reference_vectors(length):
    assert siphash24(bytes(range(length)), *REFERENCE_KEY) == REFERENCE[length]


def words_of(message: bytes) -> np.ndarray:
    return np.frombuffer(message, "<u8").astype(np.uint64)


def test_steps_give_the_reference_vector_of_48_bytes():
    k0, k1 = (np.uint64(k) for k in REFERENCE_KEY)
    start = siphash.seeded(np.uint64(0))
    state = (start[0] ^ k0, start[1] ^ k1, start[2] ^ k0, start[3] ^ k1)
    words = words_of(bytes(range(48)))
    for word in words[:3]:
        state = siphash.compress(tuple(np.uint64(v) for v in state), word)  # type: ignore[arg-type]
    out = np.empty((1, 1), np.uint32)
    siphash.hash_all(np.array([state], np.uint64), words[3:, None].copy(), out)
    assert out[0, 0] == REFERENCE[48] & 0xFFFFFFFF


SEEDS = st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=3)


@given(SEEDS, st.integers(0, (1 << 64) - 1), st.sampled_from([3, 6]), st.data())
def test_kernels_are_the_twin(seeds, first, words, data):
    rest = data.draw(st.binary(min_size=8 * words, max_size=8 * words))
    message = first.to_bytes(8, "little") + bytes(16) + rest
    keys = [(seed << 32) | seed for seed in seeds]
    expected = [[siphash24(message, key, key) & 0xFFFFFFFF] for key in keys]
    seed_array = np.array(seeds, np.uint64)
    states = np.empty((len(seeds), 4), np.uint64)
    siphash.prefix_states(seed_array, np.uint64(first), states)
    column = words_of(rest)[:, None].copy()
    out = np.empty((len(seeds), 1), np.uint32)
    siphash.hash_all(states, column, out)
    assert out.tolist() == expected
    which = np.arange(len(seeds), dtype=np.int32)[::-1].reshape(-1, 1).copy()
    siphash.hash_at(states, which, column, out)
    assert out.tolist() == expected[::-1]
    siphash.hash_each(seed_array, which, np.array([first], np.uint64), column, out)
    assert out.tolist() == expected[::-1]

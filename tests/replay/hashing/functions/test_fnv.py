"""FNV-1a against the authors' published vectors and a plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hash_keys import ROWS, SEEDS, rows
from hypothesis import given

from rocescope.replay.hashing.functions.fnv import prepare


def plain(text: bytes, start: int = 0x811C9DC5) -> int:
    for byte in text:
        start = (start ^ byte) * 16777619 % (1 << 32)
    return start


def values(texts, seed, prepended=False):
    out = np.empty((1, len(texts)), np.uint32)
    prepare(rows(texts), prepended)(np.array([seed], np.uint32), out)
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

"""XOR folds against folding one bit at a time."""

from __future__ import annotations

import pytest
from hash_keys import ROWS, SEEDS, rows
from hypothesis import given

from rocescope.replay.hashing.functions.xor import FOLD_BITS, fold


def plain(text: bytes, bits: int, seed: int) -> int:
    padded = "".join(f"{byte:08b}" for byte in text)
    padded += "0" * (-len(padded) % bits)
    value = seed % (1 << bits)
    for at in range(0, len(padded), bits):
        value ^= int(padded[at : at + bits], 2)
    return value


@given(ROWS, SEEDS)
@pytest.mark.parametrize("bits", FOLD_BITS)
def test_folds(bits, texts, seed):
    assert fold(rows(texts), bits, seed).tolist() == [plain(t, bits, seed) for t in texts]


def test_by_hand():
    text = bytes([0x12, 0x34, 0xF0, 0x0F, 0xFF])
    folds = {bits: fold(rows([text]), bits)[0] for bits in FOLD_BITS}
    assert folds == {32: 0xED34F00F, 16: 0x1D3B, 8: 0x26, 4: 0x4, 2: 1, 1: 1}

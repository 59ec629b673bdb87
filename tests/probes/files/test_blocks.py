"""Packet blocks cut at a size."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture.pcapng_writer import Blocks

BLOCKS = st.lists(st.tuples(st.integers(3, 12), st.integers(0, 2)), max_size=8)


def laid(sizes):
    """Blocks of these numbers of words and interfaces."""
    data = b"".join(
        struct.pack("<III", 6, 4 * words, interface) + bytes(4 * words - 12)
        for words, interface in sizes
    )
    frames = np.bincount([interface for _, interface in sizes], minlength=3).astype(np.int64)
    return Blocks(memoryview(data), frames)


def ends(sizes):
    return np.cumsum([0, *(4 * words for words, _ in sizes)]).tolist()


@given(BLOCKS, st.integers(1, 400))
def test_split_is_where_a_block_begins(sizes, size):
    blocks = laid(sizes)
    first, rest = blocks.split(size)
    kept = sum(begin < size for begin in ends(sizes)[:-1])
    assert bytes(first.data) + bytes(rest.data) == bytes(blocks.data)
    assert len(first.data) == ends(sizes)[kept]
    assert first.frames.tolist() == laid(sizes[:kept]).frames.tolist()
    assert (first.frames + rest.frames).tolist() == blocks.frames.tolist()


@given(BLOCKS, st.integers(-20, 400))
def test_whole_blocks_only(sizes, size):
    blocks = laid(sizes)
    size = min(size, len(blocks.data))
    whole = blocks.whole(size)
    kept = sum(end <= size for end in ends(sizes)[1:])
    assert len(whole.data) == ends(sizes)[kept]
    assert whole.frames.tolist() == laid(sizes[:kept]).frames.tolist()

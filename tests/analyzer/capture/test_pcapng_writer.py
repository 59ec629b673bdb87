"""Packet blocks with comments against a plain twin and dpkt."""

from __future__ import annotations

import struct

import dpkt
import numpy as np
import pytest
from examples import examples
from factories import Pcapng, option
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture.pcapng_writer import (
    Laid,
    block_around,
    comment_option,
    packet_block,
    with_comments,
)

OURS = b"late by 2 [rocescope verdict=reordered]"
OPTIONS = st.lists(
    st.sampled_from([(1, b"theirs"), (1, OURS), (2, b"\1\0\0\0"), (2988, b"custom")]), max_size=4
)


def block(order, data, options, interface=3, ticks=77):
    """An enhanced packet block."""
    head = struct.pack(f"{order}IIIII", interface, 0, ticks, len(data), len(data) + 5)
    body = head + data + bytes(-len(data) % 4)
    for code, value in options:
        turned = value[::-1] if code == 2 and order == ">" else value
        body += option(code, turned, order)
    return Pcapng(order).block(6, body + (option(0, b"") if options else b"")).bytes()


@examples(40)
@given(st.binary(min_size=1, max_size=90), OPTIONS, st.sampled_from("<>"), st.booleans())
def test_like_a_block_written_plainly(data, options, order, commented):
    new = [(1, b"new [rocescope gap=1]")] if commented else []
    source = block(order, data, options)
    buffer = np.frombuffer(b"front" + source + b"behind!!!!!!", np.uint8)
    offset = np.array([5 + 28], np.int64)
    comments = {0: comment_option(new[0][1])} if new else {}
    laid = Laid(
        buffer,
        offset,
        np.array([len(data)], np.uint32),
        np.array([len(data) + 5], np.uint32),
        True,
        comments,
    )
    kept = [(code, value) for code, value in options if value != OURS] + new
    expected = block("<", data, kept, interface=1, ticks=99)
    out = np.full(laid.size[0], 0xAA, np.uint8)
    laid.write(out, np.zeros(1, np.int64), np.array([99], np.int64), np.array([1], np.int64))
    assert out.tobytes() == expected
    assert laid.ours[0] == sum(value == OURS for _, value in options)
    around = block_around(buffer, 33)
    assert (around.begin, around.end, around.order) == (5, 5 + len(source), order)
    spliced = with_comments(buffer, around, [text for _, text in new])
    assert spliced == block(order, data, kept)


def test_a_simple_block_has_no_options():
    data = np.frombuffer(Pcapng().simple(b"12345678").bytes(), np.uint8)
    assert block_around(data, 12).options is None
    with pytest.raises(ValueError, match="no packet block"):
        block_around(np.zeros(64, np.uint8), 32)


def test_long_comments_are_cut():
    assert len(comment_option(b"x" * 70_000)) == 65_004


@given(st.binary(max_size=90), st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_single_blocks_read_by_dpkt(frame, comments):
    written = packet_block(3, (7 << 32) + 9, frame, 1500, comments)
    read = dpkt.pcapng.EnhancedPacketBlockLE(written)
    assert (read.iface_id, read.ts_high, read.ts_low) == (3, 7, 9)
    assert (read.pkt_data, read.pkt_len) == (frame, 1500)
    assert [option.text for option in read.opts if option.code] == comments
    assert len(written) == read.len and (comments or not read.opts)

"""Numbers in frames (network byte order) and in pcap records (that of the file)."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.replay.generate.from_pattern import put, put_word


@pytest.mark.parametrize(("size", "value"), [(1, 0xAB), (2, 0x1234), (3, 0x00FFEE), (8, 1 << 40)])
def test_a_number_in_network_byte_order(size: int, value: int) -> None:
    frame = np.full(12, 0x55, np.uint8)
    put(frame, 2, size, value)
    assert frame.tobytes() == b"\x55" * 2 + value.to_bytes(size, "big") + b"\x55" * (10 - size)


def test_a_word_in_the_byte_order_of_the_file() -> None:
    out = np.zeros(6, np.uint8)
    put_word(out, 1, 0x01020304)
    assert out.tolist() == [0, 4, 3, 2, 1, 0]

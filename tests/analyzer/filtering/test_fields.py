"""Filters on fields of MRC, over packets written out by hand."""

from __future__ import annotations

import pytest
from batches import decode

from rocescope.analyzer.filtering.compiler import Filter
from rocescope.analyzer.wire.registry import Registry

from ..decode.test_mrc import ACK, NACK, PROBE, SACK, WRITE_FIRST, WRITE_MIDDLE_TS, frame

OTHER_VENDOR = "c0" + WRITE_FIRST[2:]
PACKETS = [WRITE_FIRST, WRITE_MIDDLE_TS, ACK, SACK, NACK, PROBE, OTHER_VENDOR]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mrc", [0, 1, 2, 3, 4, 5]),
        ("transport == MRC", [0, 1, 2, 3, 4, 5]),
        ("transport == C0", [6]),
        ("opcode == MRC_SACK", [3]),
        ("mrc.rtx", [1]),
        ("mrc.ev == 0xabcdc001", [0, 1, 2, 3, 4, 5]),
        ("mrc.msn == 0x102", [0, 1]),
        ("mrc.entropy == 0xabcdc001", [3, 4]),
        ("mrc.skip == 2", [3]),
        ("mrc.skip < 2", []),
        ("mrc.nack == 1", [4]),
        ("mrc.ooo >= 17", [3]),
        ("not mrc.trimmed and not mrc", [6]),
    ],
)
def test_fields(text: str, expected: list[int]) -> None:
    table = decode([frame(packet) for packet in PACKETS])
    mask = Filter(text).mask(table, Registry())
    assert mask.nonzero()[0].tolist() == expected

"""Extension headers of every opcode against the twin's own table."""

from __future__ import annotations

import pytest
from decode_twin import SIZES, headers_of

from rocescope.analyzer.decode.headers import HEADER_LENGTH, extension_headers, header_offset


@pytest.mark.parametrize("opcode", range(256))
def test_headers(opcode: int) -> None:
    expected = headers_of(opcode) or []
    assert [name.replace("CNPpad", "pad") for name in extension_headers(opcode)] == expected
    assert HEADER_LENGTH[opcode] == 12 + sum(SIZES[name] for name in expected)


def test_offsets() -> None:
    assert header_offset(0x4B, "RETH") == 12 + 4 + 8
    assert header_offset(0x4B, "ImmDt") == 12 + 4 + 8 + 16
    assert header_offset(0xA6, "RETH") == 12 + 4
    assert header_offset(0x07, "RETH") == 0

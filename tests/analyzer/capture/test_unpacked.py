"""The bytes of a capture as its reader sees them."""

from __future__ import annotations

import gzip
import lzma

import pytest

from rocescope.analyzer.capture.unpacked import unpacked
from rocescope.analyzer.errors import UnreadableInput


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_bytes_are_those_before_compression(tmp_path, pack):
    plain = bytes(range(256)) * 5_000
    path = tmp_path / "capture"
    path.write_bytes(pack(plain))
    stream, got, buffer = unpacked(str(path)), b"", memoryview(bytearray(70_000))
    while size := stream.read_into(buffer):
        got += buffer[:size]
    stream.close()
    assert got == plain


def test_a_missing_file(tmp_path):
    with pytest.raises(UnreadableInput, match="no such file"):
        unpacked(str(tmp_path / "none"))

"""The bytes of a capture file as its reader sees them: decompressed, from the beginning."""

from __future__ import annotations

from .bytestream import ByteStream, RawStream
from .identify import MAGIC_BYTES, compression


def unpacked(path: str) -> ByteStream:
    """The bytes of a file, decompressed where needed. UnreadableInput if it cannot be opened."""
    raw = RawStream(path)
    kind = compression(raw.peek(MAGIC_BYTES))
    if kind is None:
        return raw
    from .decompress import DecompressedStream  # its libraries load slowly

    return DecompressedStream(raw, kind)

"""Identifies a byte stream by its first bytes, never by a file name."""

from __future__ import annotations

from typing import Literal

Compression = Literal["gzip", "zstd", "xz", "lz4"]

_COMPRESSIONS: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
MAGIC_BYTES = 6
"""Number of bytes that identify a compression."""

_CONVERT = "convert it with `editcap -F pcapng IN OUT`"

_OTHER: tuple[tuple[bytes, str], ...] = (
    (b"snoop\x00\x00\x00", f"a snoop capture: {_CONVERT}"),
    (b"RTSS", f"a Microsoft Network Monitor 1 capture: {_CONVERT}"),
    (b"GMBU", f"a Microsoft Network Monitor 2 capture: {_CONVERT}"),
    (b"TRSNIFF data    \x1a", f"a Sniffer capture: {_CONVERT}"),
    (b"XCP\x00", f"a NetXRay capture: {_CONVERT}"),
    (b"iptrace", f"an AIX iptrace capture: {_CONVERT}"),
    (b"btsnoop\x00", "a Bluetooth capture: it holds no RoCE"),
    (b"\xab\x01\x00\x1c", f"an Ixia capture: {_CONVERT}"),
    (b"\xac\x01\x00\x1c", f"an Ixia capture: {_CONVERT}"),
    (b"\x34\xcd\xb2\xa1IX", f"an Ixia capture: {_CONVERT}"),
    (b"BZh", "bzip2 compressed: decompress it with bunzip2"),
    (b"PK\x03\x04", "a ZIP archive: unpack it and name the captures in it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it and name the captures in it"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a Windows program"),
    (b"\x89PNG", "a PNG picture"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3", "a SQLite database"),
)


def compression(head: bytes) -> Compression | None:
    """The compression of the stream that begins with `head`."""
    for magic, name in _COMPRESSIONS:
        if head.startswith(magic):
            return name
    # A zstd stream may begin with a skippable frame: magics 184D2A50 to 184D2A5F.
    if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
        return "zstd"
    return None


def describe(head: bytes) -> str:
    """Description of a stream that is not a capture, for an error message.

    `head`: its first few hundred bytes.
    """
    for magic, what in _OTHER:
        if head.startswith(magic):
            return what
    if len(head) > 262 and head[257:262] == b"ustar":
        return "a tar archive: unpack it and name the captures in it"
    if not head.strip(b"\x00"):
        return "only zero bytes"
    nested = compression(head)
    if nested:
        return f"{nested} compressed a second time: decompress it once"
    return _describe_text(head)


def _describe_text(head: bytes) -> str:
    if any(byte < 9 or 13 < byte < 27 for byte in head):
        return "binary data of an unknown kind"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    lowered = start[:15].lower()
    if lowered.startswith((b"<!doctype html", b"<html")):
        return "an HTML page (was a login page downloaded in place of the capture?)"
    if start.startswith(b"<"):
        return "XML text"
    if start.startswith((b"{", b"[")):
        return "JSON text"
    return "text"

"""Wireshark's dissection of one frame, through pyshark and tshark."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One line of the dissection."""

    text: str
    depth: int
    begin: int
    """The bytes it stands for; an empty span when there are none."""
    end: int


def dissect(frame: bytes, wire_bytes: int, link_type: int, time_ns: int) -> list[Line]:
    """Every layer and field, as Wireshark shows them.

    Runs tshark, which takes about half a second: call it from a worker thread.
    What goes wrong becomes the text of the only line.
    """
    if which("tshark") is None:
        lines = ("tshark is not installed", "apt install tshark shows all fields")
        return [Line(lines[0], 0, 0, 0), Line(lines[1], 1, 0, 0)]
    import pyshark

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with tempfile.TemporaryDirectory(prefix="rocescope-") as folder:
            path = Path(folder) / "frame.pcap"
            path.write_bytes(_pcap(frame, wire_bytes, link_type, time_ns))
            capture = pyshark.FileCapture(str(path), eventloop=loop, keep_packets=True)
            try:
                return list(_lines(capture[0]))
            finally:
                capture.close()
    except Exception as error:  # pyshark raises what it likes; the screen must stand
        return [Line(f"tshark failed: {type(error).__name__}: {error}", 0, 0, 0)]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _pcap(frame: bytes, wire_bytes: int, link_type: int, time_ns: int) -> bytes:
    seconds, nanoseconds = divmod(time_ns, 10**9)
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type)
    record = struct.pack("<IIII", seconds & 0xFFFFFFFF, nanoseconds, len(frame), wire_bytes)
    return header + record + frame


def _lines(packet: Any) -> list[Line]:
    lines = []
    for layer in packet.layers:
        fields = [field for container in layer._all_fields.values() for field in container.fields]
        spans = [_span(field) for field in fields]
        begin = min((s for s in spans if s[1] > s[0]), default=(0, 0))[0]
        end = max((s[1] for s in spans), default=0)
        lines.append(Line(_title(layer, fields), 0, begin, end))
        for field, (first, last) in zip(fields, spans, strict=True):
            text = field.showname or f"{field.name}: {field.show}"
            if not field.hide and field.name and text:
                lines.append(Line(text, 1, first, last))
    return lines


def _title(layer: Any, fields: list[Any]) -> str:
    whole = next((f.showname for f in fields if not f.name or f.name == layer.layer_name), None)
    return str(whole or layer.layer_name.upper())


def _span(field: Any) -> tuple[int, int]:
    try:
        begin, size = int(field.pos), int(field.size)
    except (TypeError, ValueError):
        return 0, 0
    return begin, begin + size

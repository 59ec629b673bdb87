"""Wireshark's dissection of one frame, as tshark writes it in PDML."""

from __future__ import annotations

import subprocess
from shutil import which
from typing import NamedTuple
from xml.etree import ElementTree

from ....analyzer.packages import explained
from ....probes.rights.identity import program_settings

_PATIENCE_S = 60.0
"""A frame could keep a dissector busy without end."""


class Line(NamedTuple):
    """One line of the dissection."""

    text: str
    depth: int
    begin: int
    """Its bytes; an empty span if it has none."""
    end: int


def dissect(frame: bytes, wire_bytes: int, link_type: int, time_ns: int) -> list[Line]:
    """Every layer and field, as Wireshark shows them.

    Runs tshark, which takes about half a second: call it from a worker thread.
    An error becomes the text of the only line.
    """
    tshark = which("tshark")
    if tshark is None:
        lines = ("tshark is not installed", "apt install tshark shows all fields")
        return [Line(lines[0], 0, 0, 0), Line(lines[1], 1, 0, 0)]
    command = [tshark, "-n", "-r", "-", "-T", "pdml"]
    try:
        done = subprocess.run(
            command,
            input=_pcap(frame, wire_bytes, link_type, time_ns),
            capture_output=True,
            check=True,
            timeout=_PATIENCE_S,
            **program_settings(),
        )
        return _lines(ElementTree.fromstring(done.stdout))
    except ModuleNotFoundError as error:
        return [Line(str(explained(error) or error), 0, 0, 0)]
    except subprocess.CalledProcessError as error:
        return [Line(f"tshark failed: {error.stderr.decode(errors='replace').strip()}", 0, 0, 0)]
    except (OSError, subprocess.TimeoutExpired, ElementTree.ParseError) as error:
        return [Line(f"tshark failed: {error}", 0, 0, 0)]


def _pcap(frame: bytes, wire_bytes: int, link_type: int, time_ns: int) -> bytes:
    from dpkt.pcap import TCPDUMP_MAGIC_NANO, LEFileHdr, LEPktHdr

    seconds, nanoseconds = divmod(time_ns, 10**9)
    header = LEFileHdr(magic=TCPDUMP_MAGIC_NANO, snaplen=262_144, linktype=link_type)
    # dpkt's Writer would give the captured bytes as bytes on the wire: the frame may be snapped.
    record = LEPktHdr(
        tv_sec=seconds & 0xFFFFFFFF, tv_usec=nanoseconds, caplen=len(frame), len=wire_bytes
    )
    return bytes(header) + bytes(record) + frame


def _lines(document: ElementTree.Element) -> list[Line]:
    """The layers of the only packet of a PDML document, and their fields."""
    lines = []
    for layer in document.findall("packet/proto"):
        name = layer.get("name", "")
        if name in ("geninfo", "frame"):  # describes the file, not the packet
            continue
        fields = layer.findall(".//field")
        spans = [_span(field) for field in fields]
        begin = min((s for s in spans if s[1] > s[0]), default=(0, 0))[0]
        end = max((s[1] for s in spans), default=0)
        lines.append(Line(layer.get("showname") or name.upper(), 0, begin, end))
        for field, (first, last) in zip(fields, spans, strict=True):
            text = field.get("showname") or f"{field.get('name')}: {field.get('show')}"
            if field.get("name") and field.get("hide") != "yes":
                lines.append(Line(text, 1, first, last))
    return lines


def _span(field: ElementTree.Element) -> tuple[int, int]:
    begin, size = int(field.get("pos", 0)), int(field.get("size", 0))
    return begin, begin + size

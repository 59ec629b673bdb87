"""The dissection of one frame: by Wireshark, and of MRC headers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from shutil import which
from types import SimpleNamespace
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from ...analyzer.decode import mrc
from ...analyzer.decode.headers import BTH_BYTES
from ...analyzer.errors import explained
from ...analyzer.wire.bth import MRC_ACK, opcode_name
from ...analyzer.wire.packets import RTX, TS
from ...probes.rights import program_settings
from .packets import Packets

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
    lines: list[Line] = []
    fields_of: Callable[[ElementTree.Element], Sequence[Any]] = _fields_by_pyshark
    for layer in document.findall("packet/proto"):
        name = layer.get("name", "")
        if name in ("geninfo", "frame"):  # describes the file, not the packet
            continue
        try:
            fields = fields_of(layer)
        except (ImportError, KeyError, TypeError) as error:  # missing, or older than this tshark
            text = f"fields read without pyshark ({error}): pip install -U pyshark"
            lines.append(Line(text, 0, 0, 0))
            fields_of = _fields_by_hand
            fields = fields_of(layer)
        spans = [_span(field) for field in fields]
        begin = min((s for s in spans if s[1] > s[0]), default=(0, 0))[0]
        end = max((s[1] for s in spans), default=0)
        lines.append(Line(layer.get("showname") or name.upper(), 0, begin, end))
        for field, (first, last) in zip(fields, spans, strict=True):
            if field.name and not field.hide:
                text = field.showname or f"{field.name}: {field.show}"
                lines.append(Line(text, 1, first, last))
    return lines


def _fields_by_pyshark(layer: ElementTree.Element) -> list[Any]:
    """The fields of a layer as pyshark reads them.

    pyshark's captures would run tshark on an event loop, which fails on Python 3.14, and without
    a time limit; its layers only read the document.
    """
    from pyshark.packet.layers.xml_layer import XmlLayer

    names = [field.get("name", "") for field in layer.findall(".//field")]
    read = XmlLayer(layer)
    # pyshark groups the fields of one name; the document has the order of Wireshark.
    same_name = {name: iter(read.get_field(name).all_fields) for name in names}
    return [next(same_name[name]) for name in names]


def _fields_by_hand(layer: ElementTree.Element) -> list[Any]:
    empty = dict.fromkeys(("name", "showname", "show", "hide", "pos", "size"))
    return [SimpleNamespace(**empty | field.attrib) for field in layer.findall(".//field")]


def _span(field: Any) -> tuple[int, int]:
    begin, size = int(field.pos or 0), int(field.size or 0)
    return begin, begin + size


# The headers of an MRC packet as lines of a dissection: Wireshark does not dissect them.
#
# Values come from the decoder (`analyzer/decode/mrc.py`), with the source of each
# meaning.

OURS = "decoded by rocescope"
_MEANING = {column.name: column for column in mrc.MRC_COLUMNS}
_HEX = {
    "entropy": 8, "ev": 8, "virtual_address": 16, "r_key": 8, "psn": 6, "sack_bitmap": 16,
    "port_mask": 8, "timestamp_flags": 4, "spdcid": 4, "dpdcid": 4,
}  # fmt: skip
_WORDS: dict[str, dict[int, str]] = {
    "feedback": {0: "NONE", 1: "SKIP_ONCE", 2: "ALWAYS_SKIP"},
    "operation": {0: "PORT_STATUS_UPDATE", 1: "EV_PROBE"},
    "reason": mrc.NACK_REASONS,
}
_TSETH = (("timestamp", 0, 2), ("timestamp_flags", 2, 2))
_RETH = (("virtual_address", 0, 8), ("r_key", 8, 4))
_HEADERS: dict[str, tuple[int, int, tuple[tuple[str, int, int], ...]]] = {
    "METH": (mrc.METH, 4, (("rqmsn", 0, 2), ("msn", 2, 2))),
    "TSETH": (mrc.TSETH, 4, _TSETH),
    "RETH": (mrc.RETH, 16, _RETH),
    "SETH": (
        mrc.SETH,
        28,
        (
            ("feedback", 1, 1), ("probe_response", 1, 1), ("psn_offset", 2, 2), ("probe_id", 2, 2),
            ("entropy", 4, 4), ("spdcid", 8, 2), ("dpdcid", 10, 2), ("psn", 13, 3),
            ("cc_type", 16, 1), ("mpr", 17, 1), ("sack_offset", 18, 2), ("sack_bitmap", 20, 8),
        ),
    ),
    "CC_STATE": (
        mrc.CC_STATE,
        8,
        (
            ("timestamp", 0, 2), ("ooo_count", 2, 2), ("restore_cwnd", 4, 1),
            ("cwnd_penalty", 4, 1), ("rcvd_bytes", 5, 3),
        ),
    ),
    "NETH": (
        mrc.NETH,
        20,
        (
            ("reason", 2, 1), ("entropy", 4, 4), ("spdcid", 8, 2), ("dpdcid", 10, 2),
            ("psn", 13, 3), ("cc_type", 16, 1), ("timestamp", 18, 2),
        ),
    ),
    "PETH": (
        mrc.PETH,
        16,
        (
            ("probe_id", 4, 2), ("spdcid", 8, 2), ("dpdcid", 10, 2), ("timestamp", 12, 2),
            ("timestamp_flags", 14, 2),
        ),
    ),
    "ERTH": (
        mrc.ERTH,
        16,
        (
            ("operation", 1, 1), ("port_mask", 4, 4), ("timestamp", 12, 2),
            ("timestamp_flags", 14, 2),
        ),
    ),
    "EETH": (mrc.EETH, 36, (("timestamp", 28, 2),)),
}  # fmt: skip
"""Headers in the order after the BTH: bit of `present`, length, and of each field the name,
offset and length."""


def mrc_lines(packets: Packets, row: int) -> list[Line]:
    """The BTH and the following headers of one packet; empty for other transports."""
    table = packets.table
    records = table.mrc
    at = -1 if records is None else int(np.searchsorted(records["row"], row))
    if records is None or at >= len(records) or int(records["row"][at]) != row:
        return []
    record = records[at]
    begin, opcode = int(table.bth_offset[row]), int(table.opcode[row])
    flags = int(packets.table.bth_flags[row])
    lines = [
        Line(f"{opcode_name(opcode)}, {OURS}", 0, begin, begin + BTH_BYTES),
        Line(f"opcode: 0x{opcode:02x} {opcode_name(opcode)}", 1, begin, begin + 1),
        Line(f"destination QP: 0x{int(table.dest_qp[row]):06x}", 1, begin + 5, begin + 8),
        Line(f"RTX (a retransmission): {_yes(flags & RTX)}", 1, begin + 8, begin + 9),
        Line(f"TS (a TSETH follows): {_yes(flags & TS)}", 1, begin + 8, begin + 9),
        Line(f"PSN: 0x{int(table.psn[row]):06x}", 1, begin + 9, begin + 12),
        _field(record, "ev", 0, 0),
    ]
    if record["trimmed"]:
        lines.append(_field(record, "trimmed", 0, 0))
    place = begin + BTH_BYTES
    for name, (bit, size, fields) in _HEADERS.items():
        if not int(record["present"]) & bit:
            continue
        lines.append(Line(f"{name}, {OURS}", 0, place, place + size))
        for field, offset, length in fields:
            unused = "psn_offset" if record["probe_response"] else "probe_id"
            if bit == mrc.SETH and field == unused:  # the same bytes have two meanings
                continue
            lines.append(_field(record, field, place + offset, place + offset + length))
        if bit == mrc.RETH:
            text = f"dma_length: {int(table.dma_length[row])} bytes"
            lines.append(Line(text, 1, place + 12, place + 16))
        place += size
    if opcode == MRC_ACK:
        lines.append(Line(f"AETH, {OURS}: 0x{int(table.aeth[row]):08x}", 0, place, place + 4))
    return lines


def _field(record: Any, name: str, begin: int, end: int) -> Line:
    value, column = int(record[name]), _MEANING[name]
    digits = _HEX.get(name)
    text = f"{name}: 0x{value:0{digits}x}" if digits else f"{name}: {value}"
    word = _WORDS.get(name, {}).get(value)
    told = f" [{column.source}]" if column.source else ""
    return Line(f"{text} {word or ''}".rstrip() + f"  {column.meaning}{told}", 1, begin, end)


def _yes(bit: int) -> str:
    return "yes" if bit else "no"

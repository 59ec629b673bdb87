"""What is on the screen, as files: captures with comments, tables, everything."""

from __future__ import annotations

import html
import io
import os
import struct
import tempfile
from pathlib import Path

import numpy as np

from .. import __version__
from ..analyzer.frames import Tap
from ..probes.pcapng_writer import interface_description, section_header
from .packets import Packets
from .session import Session

_ENHANCED_PACKET = 6
_COMMENT = 1


def save(path: Path, data: bytes) -> Path:
    """Write a whole file or none: under a temporary name first."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def packets_pcapng(packets: Packets, session: Session) -> bytes:
    """The packets as a pcapng; findings, marks and comments are packet comments.

    Comments on the flow stand in the section header. OSError when the capture is gone.
    """
    flow_comment = session.marks.flows.get(packets.key)
    about = [f"flow {session.wireshark_filter(packets.key)}"]
    if flow_comment is not None:
        about.append(f"marked: {flow_comment}" if flow_comment else "marked")
    taps = np.unique(packets.table.tap).tolist()
    parts = [section_header(f"rocescope {__version__}", os.uname().sysname, about)]
    parts += [interface_description(_tap(packets.taps[tap]), None) for tap in taps]
    for row in range(len(packets)):
        tap, number = int(packets.table.tap[row]), int(packets.table.frame_number[row])
        said = session.marks.packets.get((packets.taps[tap].name, number))
        comments = [text for text in (packets.notes[row], said) if text]
        parts.append(
            commented_packet(
                taps.index(tap),
                int(packets.table.time_ns[row]),
                packets.frame(row),
                int(packets.table.wire_bytes[row]),
                comments,
            )
        )
    return b"".join(parts)


def commented_packet(
    interface: int, time_ns: int, frame: bytes, wire_bytes: int, comments: list[str]
) -> bytes:
    """An enhanced packet block (draft-ietf-opsawg-pcapng 4.3) with opt_comment options."""
    options = b""
    for comment in comments:
        text = comment.encode()[:65_000]
        options += struct.pack("<HH", _COMMENT, len(text)) + text + bytes(-len(text) % 4)
    options = options + bytes(4) if options else b""
    head = struct.pack(
        "<IIIII", interface, time_ns >> 32, time_ns & 0xFFFFFFFF, len(frame), wire_bytes
    )
    body = head + frame + bytes(-len(frame) % 4) + options
    total = len(body) + 12
    return struct.pack("<II", _ENHANCED_PACKET, total) + body + struct.pack("<I", total)


def _tap(tap: Tap) -> Tap:
    return Tap(tap.name, tap.link_type, tap.snap_length, tap.speed_bits_per_second)


def analysis_file(session: Session, suffix: str) -> bytes:
    """Everything as `.json`, `.parquet`, `.csv` or `.arrow`."""
    from ..analyzer.report import encode

    analysis = session.analysis()
    return encode(analysis, suffix.removeprefix("."))


def html_page(session: Session, picture: str) -> bytes:
    """One page without scripts: the screen as it is, and the report of `rocescope analyze`."""
    from rich.console import Console

    from .terminal_report import print_report

    text = io.StringIO()
    print_report(session.analysis(), text, color="never")
    console = Console(file=io.StringIO(), record=True, width=110, highlight=False)
    console.print(text.getvalue(), markup=False)
    report = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    title = html.escape(session.name)
    style = "body{background:#10141a;color:#d7dde5;margin:2em}svg{max-width:100%}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}</style><h1>{title}</h1>{picture}{report}</html>\n"
    ).encode()


FORMATS: dict[str, str] = {
    ".pcapng": "the packets shown or those of the chosen flow, with comments",
    ".json": "everything, for programs",
    ".parquet": "one row per flow",
    ".csv": "one row per flow",
    ".svg": "this screen as a picture",
    ".html": "this screen and the report, for a browser",
}

"""Screen 7: the packets of one flow; Wireshark's dissection and the bytes of the selected one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Static
from textual.worker import get_current_worker

from ...analyzer.errors import RocescopeError
from ...analyzer.wire.bth import opcode_name
from ...analyzer.words import printable
from ...probes.rights import program_settings
from ...report import human
from ...report.hops import short_taps
from ..grid import Cell, Grid, GridColumn
from ..host import Newest
from ..session.diagnosing import Span
from ..session.dissect import OURS, Line, dissect, mrc_lines
from ..session.packets import Late, Packets, PacketScan, Point, Wanted
from ..session.snapshot import TRACED, FlowKey, Snapshot
from .base import RoceScreen, flow_name, own_bindings
from .prompts import TextPrompt

if TYPE_CHECKING:
    from ..session.placed import Placed

COLUMNS = (
    GridColumn("frame", "#", 9, True),
    GridColumn("time", "TIME s", 13, True),
    GridColumn("delta", "Δus", 8, True, 2),
    GridColumn("psn", "PSN", 8, True),
    GridColumn("hex", "HEX", 8),
    GridColumn("expect", "EXPECT", 8, True, 3),
    GridColumn("opcode", "OPCODE", 18, priority=1),
    GridColumn("sport", "SPORT", 5, True, 4),
    GridColumn("bytes", "BYTES", 5, True, 6),
    GridColumn("ecn", "ECN", 3, priority=7),
    GridColumn("tap", "TAP", 20, priority=8, ends=True),
    GridColumn("note", "NOTE", 24, grows=True, ends=True),
)
_FIELDS = (GridColumn("line", "DISSECTION (tshark)", 20, grows=True),)
NARROW = 110
"""Below this width the hex view has eight bytes per line, and notes are cut before columns go."""
RECORDING = """^n  starts a recording: eth2 eth3 > night.pcapng
rocescope live --record FILE  records from the start"""
_ECN = ("", "E1", "E0", "CE")
MARKED = "marked"
"""The comment of a packet that is only marked."""
_GLYPHS = {None: " ", MARKED: "*"}


class PacketsScreen(RoceScreen):
    """Table, dissection, bytes."""

    name_ = "packets"
    BINDINGS = own_bindings("packets")

    class Found(Message, bubble=False):
        """A scan has ended."""

        def __init__(self, packets: Packets | None, error: str = "") -> None:
            super().__init__()
            self.packets, self.error = packets, error

    class Dissected(Newest, bubble=False):
        """tshark has dissected a packet."""

        def __init__(self, frame_number: int, lines: list[Line]) -> None:
            super().__init__()
            self.frame_number, self.lines = frame_number, lines

    def __init__(self) -> None:
        super().__init__()
        self.packets: Packets | None = None
        self._wanted: tuple[FlowKey | None, object, object, object, str] | None = None
        self._late: tuple[Late, str] | None = None
        self._span: tuple[Span, str] | None = None
        """Only packets of this time, and its name."""
        self._scan: PacketScan | None = None
        self._error = ""
        self._odd_only = False
        self._lines: list[Line] = []
        self._frame = b""
        self._marked = (0, 0)
        """First byte and end of the bytes of the selected line."""
        self._shown: tuple[bytes, int, int, int] | None = None
        self._around: Point | None = None
        self._explained: Placed | None = None

    def body(self) -> ComposeResult:
        grid = Grid(COLUMNS, id="packets")
        grid.empty = "reading"
        yield grid
        yield Static(id="why")
        with Horizontal(id="panes"):
            yield Grid(_FIELDS, id="fields")
            with VerticalScroll(id="bytes"):
                yield Static(id="hex")

    def draw(self, snapshot: Snapshot) -> str:
        self.set_class(self.size.width < NARROW, "narrow")
        self._show_bytes()
        shown = self.view
        key = shown.session.selected
        window = shown.packet_window()
        late, span = shown.take_late(), shown.take_span()
        if (
            late is not None
            or span is not None
            or (self._wanted is not None and key != self._wanted[0])
        ):
            self._late, self._span = late, span
        chosen = self._late, self._span
        wanted = (key, self._odd_only, chosen, window, shown.session.packet_filter)
        moved = shown.wanted_packet is not None
        if key is not None and (wanted != self._wanted or moved) and shown.session.paths:
            self._wanted = wanted
            self._start(key, shown.take_packet())
        grid = self.query_one("#packets", Grid)
        if not shown.session.paths:
            grid.empty = RECORDING
            grid.show(0, lambda row: ())
            return "Packets are read from files: this session is not recorded."
        if key is None:
            grid.empty = self.what_next(snapshot)
            grid.show(0, lambda row: ())
            return self.no_flow(snapshot)
        if self.packets is None:
            progress = self._scan.progress if self._scan else 0.0
            grid.empty = self._error or f"reading, {progress * 100:.0f} %"
            grid.show(0, lambda row: ())
            return self._error or f"{flow_name(key)}: searching its packets."
        packets = self.packets
        marks = shown.session.marks.packets
        grid.empty = "no packet of this flow in the time window" if window else "no packet"
        start = self.start_ns(snapshot)
        grid.set_columns(fitted_columns(packets, start, self.size.width))
        grid.show(
            len(packets),
            lambda row: packet_cells(packets, row, start, snapshot.judged.last_seen),
            lambda row: _GLYPHS.get(marks.get(_place(packets, row)), ";"),
        )
        if shown.placed() is not self._explained and (row := self._row()) is not None:
            self._explain(packets, row)
        return f"{flow_name(key)}: {self._sentence_of(packets, snapshot)}."

    def _sentence_of(self, packets: Packets, snapshot: Snapshot) -> str:
        """The number of packets that are not in order at their first tap, and of which packets;
        the losses after that tap."""
        odd, shown = int(packets.is_odd().sum()), human.counted(len(packets), "packet")
        more = "; more not shown" if packets.more else ""
        if only := self._late or self._span:
            return f"{shown} of {only[1]} (l shows all){more}"
        if self._odd_only:
            return f"only the {shown} that are not in order (l shows all){more}"
        is_, of = "is" if odd == 1 else "are", "the " if packets.more else ""
        those = " shown" if packets.more else ""
        at = " at the first tap" if len(snapshot.source.tap_names) > 1 else ""
        flow = snapshot.find(packets.key)
        lost = 0 if flow is None else snapshot.judged.lost.get(flow, 0)
        text = f"{odd:,} of {of}{shown}{those} {is_} not in order{at}{more}"
        return f"{text}; {human.count(lost)} of the flow lost between taps (3)" if lost else text

    def _start(self, key: FlowKey, around: Point | None) -> None:
        if self._scan is not None:
            self._scan.stop()
        session = self.view.session
        self._scan = PacketScan(
            session.paths, key, self.wanted(), session.packet_options(), around=around
        )
        self._around = around
        self.packets, self._error = None, ""
        self._read(self._scan)

    def wanted(self) -> Wanted:
        """Which packets of the flow are shown."""
        late = self._late[0] if self._late else None
        span = self._span[0] if self._span else self.view.packet_window()
        return Wanted(self._odd_only, late, span)

    @work(thread=True, exclusive=True, group="scan", exit_on_error=False)
    def _read(self, scan: PacketScan) -> None:
        worker = get_current_worker()
        try:
            result = self.Found(scan.run())
        except (RocescopeError, OSError) as error:
            result = self.Found(None, str(error))
        if not worker.is_cancelled:
            self.post_message(result)

    def on_packets_screen_found(self, message: Found) -> None:
        self.packets, self._error = message.packets, message.error
        self.redraw()
        grid = self.query_one("#packets", Grid)
        row = 0
        if self.packets is not None and self._around is not None:
            row = self.packets.row_of(self._around)
        elif self.packets is not None and self.packets.is_odd().any():
            row = int(np.argmax(self.packets.is_odd()))
        grid.put_cursor(row)
        grid.focus()
        self._choose(row)

    @on(Grid.Moved, "#packets")
    def _moved(self, event: Grid.Moved) -> None:
        self._choose(event.row)

    def _choose(self, row: int) -> None:
        packets = self.packets
        if packets is None:
            return
        if row >= len(packets):
            self._show_nothing()
            return
        self._explain(packets, row)
        try:
            frame = packets.frame(row)
        except OSError as error:
            self._frame = b""
            self._shown = (b"", 0, 0, self._per_line())
            self._show_hex(Text(f"cannot read the capture: {error}", "red"))
            return
        self._frame, self._marked = frame, (0, 0)
        self._show_bytes()
        self._dissect(
            frame,
            int(packets.table.wire_bytes[row]),
            packets.link_type(row),
            int(packets.table.time_ns[row]),
            int(packets.table.frame_number[row]),
            mrc_lines(packets, row),
        )

    def _show_nothing(self) -> None:
        """No packet: no path, dissection and bytes of another one either."""
        self.workers.cancel_group(self, "dissect")
        self._frame, self._marked, self._lines = b"", (0, 0), []
        self.query_one("#why", Static).update("")
        self.query_one("#fields", Grid).show(0, self._field_cells)
        self._show_bytes()

    def _explain(self, packets: Packets, row: int) -> None:
        """Show the taps and SRv6 segments of the packet, and the links that a replay predicts."""
        table = packets.table
        port, label = int(table.udp_sport[row]), int(table.flow_label[row])
        placed = self._explained = self.view.placed()
        text = f"source port {port}" + (f", flow label 0x{label:05x}" if label else "")
        known = self._known_path(packets, row)
        if known or placed is None:
            text += f"  {known or 'path: unknown; a replay (9) predicts it'}"
        lines = wrap(text, max(20, self.size.width - 4), break_on_hyphens=False)
        if placed is not None:
            chosen = placed.why(packets.key, (label << 16) | port)
            by = TRACED if placed.text == TRACED else f"predicted by {placed.text}"
            lines += [f"{by}: {chosen[0]}", *chosen[1:3]]
        shown = Text("\n".join([f" {lines[0]}", *(f"   {line}" for line in lines[1:])]))
        shown.no_wrap, shown.overflow = True, "ellipsis"
        self.query_one("#why", Static).update(shown)

    def _known_path(self, packets: Packets, row: int) -> str:
        """The taps that saw the packet in order, and its SRv6 segments; empty for one tap alone."""
        known = []
        names = self.view.snapshot.source.tap_names
        if len(names) > 1:
            short = short_taps(names)
            known.append(
                "seen at " + " > ".join(short.get(tap, printable(tap)) for tap in packets.way(row))
            )
            if self._odd_only or self._late:
                known.append("l shows its other taps")
        if number := int(packets.table.path_evidence[row]):
            known.append(f"segments {packets.segments.name(number)}")
        return "; ".join(known)

    def action_wireshark(self) -> None:
        """Open Wireshark at this packet, or copy the tshark command that shows it."""
        row, packets = self._row(), self.packets
        if row is None or packets is None:
            return
        place = packets.file_of(row)
        if place is None:
            self.notify("The capture file of this packet is unknown", severity="warning")
            return
        command = viewer(*place)
        if command[0] == "wireshark":
            self._open_viewer(command)
            return
        self.host.copy(shlex.join(command))
        if _on_a_desktop():
            self.notify("Wireshark is not installed: install the package wireshark")

    @work(thread=True, group="viewer", exit_on_error=False)
    def _open_viewer(self, command: list[str]) -> None:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **program_settings(),
        )

    @work(thread=True, exclusive=True, group="dissect", exit_on_error=False)
    def _dissect(
        self, frame: bytes, wire: int, link: int, time_ns: int, number: int, known: list[Line]
    ) -> None:
        """known: headers that Wireshark does not dissect; they come first."""
        worker = get_current_worker()
        lines = known + dissect(frame, wire, link, time_ns)
        if not worker.is_cancelled:
            self.post_message(self.Dissected(number, lines))

    def on_packets_screen_dissected(self, message: Dissected) -> None:
        self._lines = message.lines
        grid = self.query_one("#fields", Grid)
        grid.show(len(self._lines), self._field_cells)
        starts = [i for i, line in enumerate(self._lines) if line.depth == 0]
        if not starts or OURS in self._lines[0].text:
            starts = [0]
        grid.put_cursor(starts[-1], at_top=True)  # Wireshark puts the RDMA headers last

    def _field_cells(self, row: int) -> Sequence[Cell]:
        line = self._lines[row]
        if line.depth == 0:
            return ((f"▾ {line.text}", "accent"),)
        return (f"    {line.text}",)

    @on(Grid.Moved, "#fields")
    def _field_moved(self, event: Grid.Moved) -> None:
        line = self._lines[event.row]
        self._marked = line.begin, line.end
        self._show_bytes()

    def _show_bytes(self) -> None:
        """The bytes of the packet, as many per line as fit."""
        shown = self._frame, *self._marked, self._per_line()
        if shown != self._shown:
            self._shown = shown
            self._show_hex(hex_dump(*shown))

    def _show_hex(self, text: Text) -> None:
        """Show the bytes, unless the screen closes at this moment."""
        for pane in self.query("#hex").results(Static):
            pane.update(text)

    def _per_line(self) -> int:
        return 8 if self.size.width < NARROW else 16

    def _next_odd(self, step: int) -> None:
        if self.packets is None:
            return
        grid = self.query_one("#packets", Grid)
        rows = np.flatnonzero(self.packets.is_odd())
        beyond = rows[rows > grid.cursor] if step > 0 else rows[rows < grid.cursor][::-1]
        if len(beyond):
            grid.cursor = int(beyond[0])
        else:
            self.notify("No further packet that is not in order")

    def action_next_late(self) -> None:
        self._next_odd(1)

    def action_previous_late(self) -> None:
        self._next_odd(-1)

    def action_same_psn(self) -> None:
        """Go to the next packet with the PSN of this one; after the last to the first."""
        row, packets = self._row(), self.packets
        if row is None or packets is None:
            return
        rows = packets.with_psn_of(row)
        if len(rows) > 1:
            at = int(np.searchsorted(rows, row, "right")) % len(rows)
            self.query_one("#packets", Grid).cursor = int(rows[at])
        elif len(rows):
            self.notify("No other packet of this list has this PSN")
        else:
            self.notify("This packet counts no PSNs")

    def action_odd_only(self) -> None:
        if self._late is not None or self._span is not None:
            self._late = self._span = None
        else:
            self._odd_only = not self._odd_only
        self.redraw()

    def action_mark(self) -> None:
        self._keep_comment(MARKED)

    def action_comment(self) -> None:
        row = self._row()
        if row is not None and self.packets is not None:
            said = self.view.session.marks.packets.get(_place(self.packets, row))
            before = "" if said in (None, MARKED) else said
            self.app.push_screen(TextPrompt("comment on this packet", before), self._keep_comment)

    def _keep_comment(self, text: str | None) -> None:
        row = self._row()
        if row is None or self.packets is None or text is None:
            return
        marks, place = self.view.session.marks.packets, _place(self.packets, row)
        if not text or marks.get(place) == text:
            marks.pop(place, None)
        else:
            marks[place] = text
        self.redraw()

    def _row(self) -> int | None:
        if self.packets is None or not len(self.packets):
            return None
        return min(self.query_one("#packets", Grid).cursor, len(self.packets) - 1)


def _place(packets: Packets, row: int) -> tuple[str, int]:
    table = packets.table
    return packets.taps[int(table.tap[row])].name, int(table.frame_number[row])


def fitted_columns(packets: Packets, start_ns: int, width: int) -> list[GridColumn]:
    """The columns: numbers, times and opcodes as wide as needed, notes in the rest."""
    if not len(packets):
        return list(COLUMNS)
    frame = f"{int(packets.table.frame_number.max()):,}"
    time = f"{(int(packets.table.time_ns.max()) - start_ns) / 1e9:.9f}"
    opcodes = (opcode_name(code) for code in np.unique(packets.table.opcode).tolist())
    wide = {
        "frame": max(5, len(frame)),
        "time": max(11, len(time)),
        "psn": max(3, len(str(int(packets.table.psn.max())))),
        "note": 24 if width < NARROW else 34,
        "opcode": min(18, max(6, *map(len, opcodes))),
    }
    return [c._replace(width=wide.get(c.key, c.width)) for c in COLUMNS]


def packet_cells(
    packets: Packets,
    row: int,
    start_ns: int,
    last_seen: AbstractSet[tuple[str, int]] = frozenset(),
) -> Sequence[Cell]:
    """One row, in the order of COLUMNS. last_seen: packets that no later tap saw."""
    table = packets.table
    time = int(table.time_ns[row])
    delta = time - int(table.time_ns[row - 1]) if row else 0
    due = int(packets.expected[row])
    psn = int(table.psn[row])
    note = packets.notes[row]
    is_copy = note.startswith("copy")
    if _place(packets, row) in last_seen:
        tap = short_taps(each.name for each in packets.taps.items)[_place(packets, row)[0]]
        note = f"never seen after {tap}" + (f"; {note}" if note and not is_copy else "")
        is_copy = False
    style = "warn" if note and not is_copy else ""
    return (
        f"{int(table.frame_number[row]):,}",
        f"{(time - start_ns) / 1e9:.9f}",
        f"{delta / 1e3:.{2 if abs(delta) < 10**8 else 0}f}",
        (str(psn), style),
        (f"0x{psn:06x}", "dim"),
        str(due) if due >= 0 else "",
        opcode_name(int(table.opcode[row])),
        str(int(table.udp_sport[row])),
        str(int(table.wire_bytes[row])),
        _ECN[int(table.traffic_class[row]) & 3],
        packets.taps[int(table.tap[row])].name,
        (note, style),
    )


def viewer(path: str, frame_number: int) -> list[str]:
    """The command that shows one packet: Wireshark on a desktop, else tshark."""
    if _on_a_desktop() and shutil.which("wireshark"):
        return ["wireshark", "-r", path, "-g", str(frame_number)]
    return ["tshark", "-r", path, "-Y", f"frame.number == {frame_number}", "-V"]


def _on_a_desktop() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def hex_dump(frame: bytes, begin: int, end: int, per_line: int) -> Text:
    """A hex dump; the bytes from `begin` to `end` are marked."""
    text = Text(no_wrap=True)
    if not frame:
        return text
    for at in range(0, len(frame), per_line):
        text.append(f"{at:04x} ", "dim")
        for i in range(at, min(at + per_line, len(frame))):
            marked = begin <= i < end
            left = "[" if marked and i == begin else "]" if i == end and begin < end else " "
            text.append(left, "bold")
            text.append(f"{frame[i]:02x}", "bold reverse" if marked else "")
        text.append("\n")
    text.append(f"{human.counted(len(frame), 'byte')} captured", "dim")
    return text

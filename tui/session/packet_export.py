"""Packets of flows as a pcapng file, with findings and the user's comments as comments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from ...analyzer.capture.pcapng_writer import interface_description, packet_block, section_header
from ...analyzer.errors import RocescopeError
from ...analyzer.wire.taps import Tap
from ...version import VERSION
from .packets import Chunk, FlowPass, Wanted, link_type, notes_of
from .session import Session
from .snapshot import FlowKey


class PacketExport(FlowPass):
    """Writes all packets of some flows while the captures are searched."""

    def __init__(self, session: Session, keys: Sequence[FlowKey], wanted: Wanted) -> None:
        super().__init__(session.paths, keys, wanted, session.packet_options())
        self.packets = 0
        """Written so far."""
        self._session, self._keys = session, keys
        self._interfaces: dict[tuple[int, int], int] = {}
        """Interface numbers so far, by tap and link type."""

    def write(self, file: BinaryIO) -> None:
        """Write findings, marks and comments as packet comments; comments on flows in the header.

        RocescopeError as when opening captures and after `stop`; OSError if a capture cannot be
        read or `file` cannot be written.
        """
        file.write(section_header(f"rocescope {VERSION}", os.uname().sysname, self._about()))
        with self:
            for chunk in self.chunks():
                file.writelines(self._blocks(chunk))
        if self.stopped:
            raise RocescopeError("stopped before all packets were found; nothing saved")

    def _about(self) -> list[str]:
        lines = []
        for key in self._keys:
            lines.append(f"flow {self._session.wireshark_filter(key)}")
            said = self._session.marks.flows.get(key)
            if said is not None:
                lines.append(f"marked: {said}" if said else "marked")
        return lines

    def _blocks(self, chunk: Chunk) -> Iterator[bytes]:
        table, taps = chunk.table, self.registry.taps
        for row, note in enumerate(notes_of(chunk, taps)):
            number, link = int(table.tap[row]), link_type(taps, table, row)
            tap = taps[number]
            interface = self._interfaces.get((number, link))
            if interface is None:
                interface = self._interfaces[number, link] = len(self._interfaces)
                yield interface_description(
                    Tap(tap.name, link, tap.snap_length, tap.speed_bits_per_second, tap.filter)
                )
            said = self._session.marks.packets.get((tap.name, int(table.frame_number[row])))
            yield packet_block(
                interface,
                int(table.time_ns[row]),
                self.frames.of(table, row),
                int(table.wire_bytes[row]),
                [text for text in (note, said) if text],
            )
            self.packets += 1
        self.frames.forget(table, chunk.verdict >= 0)

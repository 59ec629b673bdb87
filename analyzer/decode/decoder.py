"""Decodes frames into packet tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.kernel import Int
from ..capture.rings import ConcatenatedCapture
from ..capture.source import Capture
from ..errors import UsageError
from ..wire.bth import ROCE_UDP_PORT
from ..wire.frames import FrameBatch
from ..wire.packets import I64, PacketTable
from ..wire.registry import Registry
from ..wire.taps import MANY_TAPS
from .control import CmMessage, cm_messages
from .counters import DecodeCounters
from .mrc import MRC_UDP_PORT, FlowLabelOf, FlowLabels, mrc_rows, number_paths
from .rows import ANY_ROCE, ONLY_MRC, ColumnPool, decode_rows, table_of
from .sessions import MAX_SESSIONS
from .sflow import note_samples
from .tunnel_patterns import WITH_OUTER_IPV6, WITH_RATE, WITH_VLAN
from .unwrapping import Unwrapper, room_for, rows_of

if TYPE_CHECKING:
    from .mirrors import Mirrors


class Decoder:
    """Decodes batches of frames in sequence, from one thread at a time.

    udp_ports: UDP destination ports that carry RoCE; MRC_UDP_PORT, unless it is among them, counts
    only for packets that look like MRC. trimmed_dscps: DSCPs that mark trimmed MRC packets.
    flow_label: whether MRC packets without a flow label use that of the outer IPv6 header.
    check_icrc: verify the ICRC of complete packets (fills `icrc_state`). link_bits_per_second: link
    rate for the pause times of taps that do not state their rate. mirrors: restores mirrored
    packets.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        udp_ports: Sequence[int] = (ROCE_UDP_PORT,),
        trimmed_dscps: Sequence[int] = (),
        flow_label: FlowLabelOf = "auto",
        check_icrc: bool = False,
        link_bits_per_second: int | None = None,
        mirrors: Mirrors | None = None,
    ) -> None:
        self.registry = registry
        self._roce_ports = np.zeros(65536, np.uint8)
        self._roce_ports[MRC_UDP_PORT] = ONLY_MRC
        for port in udp_ports:
            if not 0 < port < 65536:
                raise UsageError(f"{port} is not a UDP port, give a number from 1 to 65535")
            self._roce_ports[port] = ANY_ROCE
        self._trimmed_dscp = np.zeros(64, np.uint8)
        for dscp in trimmed_dscps:
            if not 0 <= dscp < 64:
                raise UsageError(f"{dscp} is not a DSCP, give a number from 0 to 63")
            self._trimmed_dscp[dscp] = 1
        self.flow_labels = FlowLabels(flow_label)
        self._check_icrc = check_icrc
        self._default_rate = link_bits_per_second or 0
        self._pool = ColumnPool()
        self._unwrapper = Unwrapper(registry.taps, self._roce_ports)
        self._encapsulated = False
        self.mirrors = mirrors
        self._cm: list[CmMessage] = []
        self.counters = DecodeCounters()

    def decode(self, frames: FrameBatch) -> PacketTable:
        """The RoCE packets of a batch, one row each, in its order.

        The columns are views of a buffer that is reused after the table and all views of its
        columns are gone: keep the table as long as needed, also in another thread, but take no raw
        pointers to it.
        """
        if len(frames) and int(frames.tap.max()) >= len(self.registry.taps):
            raise ValueError("a frame names a tap that is not registered")
        data = frames.data.view()
        data.flags.writeable = False  # one type for every source, hence one compiled kernel
        frames = replace(frames, data=data)
        general_services = self.counters.general_services_packets()
        mrc_packets = self.counters.mrc_packets()
        tables, done = [], 0
        # Batches resemble each other: after one with mirrors, skip the search for the first.
        if not self._encapsulated or not len(frames):
            table, done = self._rows(frames, look_inside=True)
            if len(table) or done == len(frames):
                tables.append(self._restored(frames, None, table))
            del table  # without rows its memory is free for the rows of inner frames
        if done < len(frames):
            tables += self._unwrapped(frames, done)
        tables = [table for table in tables if len(table)] or tables[:1]
        table = tables[0] if len(tables) == 1 else PacketTable.concatenate(tables)
        if self.counters.general_services_packets() > general_services:
            self._cm += cm_messages(table, frames.data, frames.base_offset)
        if self.counters.mrc_packets() > mrc_packets:
            mrc = mrc_rows(table, frames.data, frames.base_offset, self._trimmed_dscp)
            if self.flow_labels.decide(table, mrc):
                mrc = mrc_rows(table, frames.data, frames.base_offset, self._trimmed_dscp)
            table = replace(table, mrc=mrc)
        return table

    def _unwrapped(self, frames: FrameBatch, first: int) -> list[PacketTable]:
        """The rows of the frames from `first`, including frames inside mirrors and tunnels."""
        tables = []
        encapsulated = self.counters.encapsulated()
        mrc_packets = self.counters.mrc_packets()
        for batch, inner, used in self._unwrapper.batches(frames, first, self.counters):
            table, _ = self._rows(batch, look_inside=False)
            if len(table) < len(inner.offset):  # rows refer to their outer frame
                inner = rows_of(inner, table.frame_number)
            np.add(inner.source, frames.first_frame_number, out=table.frame_number)
            if used & WITH_VLAN:
                np.bitwise_or(table.vlan, inner.vlan, out=table.vlan)
            if used & WITH_OUTER_IPV6 and len(table):
                number_paths(
                    self.registry.segments,
                    frames.data,
                    inner.outer_ipv6,
                    inner.offset,
                    inner.captured,
                    table.path_evidence,
                )
                if self.counters.mrc_packets() > mrc_packets:
                    self.flow_labels.see(table, frames.data, inner.outer_ipv6)
            if used & WITH_RATE:
                note_samples(table, inner.rate, self.registry.taps)
            tables.append(self._restored(frames, inner.stamp, table))
        self._encapsulated = self.counters.encapsulated() > encapsulated
        return tables

    def _restored(self, frames: FrameBatch, stamp: I64 | None, table: PacketTable) -> PacketTable:
        if self.mirrors is None:
            return table
        stamps = np.full(len(table), -1, np.int64) if stamp is None else stamp
        return self.mirrors.restored(frames, stamps, table)

    def _rows(self, frames: FrameBatch, look_inside: bool) -> tuple[PacketTable, int]:
        """The rows of a batch, and the frame at which they end because it may be encapsulated."""
        rates = [
            tap.speed_bits_per_second or self._default_rate for tap in self.registry.taps.items
        ]
        self.counters.set_rates(np.array(rates, np.int64))
        columns = self._pool.take(len(frames))
        done: Int = 0
        rows: Int = 0
        wrapped: Int
        while True:
            done, rows, wrapped = decode_rows(
                frames.data,
                frames.columns,
                done,
                rows,
                frames.first_frame_number,
                frames.base_offset,
                self._roce_ports,
                self._check_icrc,
                look_inside,
                columns,
                self.registry.endpoints.arrays,
                self.counters.arrays,
            )
            if wrapped or done == len(frames):
                return table_of(columns, int(rows)), int(done)
            self.registry.endpoints.grow()

    def warm_up(self, nothing: FrameBatch) -> None:
        """Compile or load all machine code before the first frame; `nothing` is an empty batch."""
        data = nothing.data.view()
        data.flags.writeable = False
        self.decode(nothing)
        self._unwrapper.unwrap(replace(nothing, data=data), 0, room_for(1), 0, self.counters)

    def warnings(self, name: str) -> list[str]:
        """Warnings about the mirrors in the capture `name`."""
        lines = [] if self.mirrors is None else self.mirrors.warnings(name)
        if self._unwrapper.sessions.overflowed:
            lines.append(
                f"{name}: more than {MAX_SESSIONS} mirror sessions, or more than {MANY_TAPS} taps"
                " in all: further sessions count as one tap"
            )
        return lines

    def take_cm_messages(self) -> list[CmMessage]:
        """Connection management messages of the batches since the last call, in order."""
        messages, self._cm = self._cm, []
        return messages


# One capture of an analysis: its frames as packet tables.


@dataclass(slots=True)
class Source:
    """One capture with its decoder."""

    capture: Capture | ConcatenatedCapture
    decoder: Decoder
    first_time_ns: int | None = None
    last_time_ns: int | None = None
    stopped: bool = False
    """Set to end reading."""

    def tables(self, keep: Callable[[PacketTable], PacketTable]) -> Iterator[PacketTable]:
        """The packet tables of this capture, filtered."""
        tables = self._decoded(keep)
        return tables if self.decoder.mirrors is None else self.decoder.mirrors.ordered(tables)

    def _decoded(self, keep: Callable[[PacketTable], PacketTable]) -> Iterator[PacketTable]:
        for frames in self.capture.batches():
            if len(frames):
                low, high = int(frames.time_ns.min()), int(frames.time_ns.max())
                first, last = self.first_time_ns, self.last_time_ns
                self.first_time_ns = low if first is None else min(low, first)
                self.last_time_ns = high if last is None else max(high, last)
            yield keep(self.decoder.decode(frames))
            if self.stopped:
                return

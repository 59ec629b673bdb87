"""From frames to the packet table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..endpoints import Endpoints
from ..errors import UsageError
from ..frames import FrameBatch, Taps
from ..packets import PacketTable
from .cm import CmMessage, cm_messages
from .columns import ColumnPool, table_of
from .counters import DecodeCounters
from .rows import decode_rows

ROCE_UDP_PORT = 4791


class Decoder:
    """Decodes batches of frames, one after the other, from one thread at a time.

    udp_ports: UDP destination ports that carry RoCE. check_icrc: verify the
    ICRC of packets that are captured in full (fills `icrc_state`).
    link_bits_per_second: rate for the pause times of taps that do not state theirs.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        taps: Taps,
        *,
        udp_ports: Sequence[int] = (ROCE_UDP_PORT,),
        check_icrc: bool = False,
        link_bits_per_second: int | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._taps = taps
        self._roce_ports = np.zeros(65536, np.uint8)
        for port in udp_ports:
            if not 0 < port < 65536:
                raise UsageError(f"{port} is not a UDP port, give a number from 1 to 65535")
            self._roce_ports[port] = 1
        self._check_icrc = check_icrc
        self._default_rate = link_bits_per_second or 0
        self._pool = ColumnPool()
        self._cm: list[CmMessage] = []
        self.counters = DecodeCounters()

    def decode(self, frames: FrameBatch) -> PacketTable:
        """The RoCE packets of a batch, one row each, in its order.

        The columns are views of a buffer that is used again once the table and
        all views of its columns are gone: keep the table as long as you like,
        also in another thread, but take no raw pointers from it.
        """
        rates = [tap.speed_bits_per_second or self._default_rate for tap in self._taps.items]
        if len(frames) and int(frames.tap.max()) >= len(rates):
            raise ValueError("a frame names a tap that is not registered")
        self.counters.set_rates(np.array(rates, np.int64))
        data = frames.data.view()
        data.flags.writeable = False  # one type, hence one compiled kernel, for every source
        columns = self._pool.take(len(frames))
        done = rows = 0
        general_services = self.counters.general_services_packets()
        while True:
            done, rows = decode_rows(
                data,
                frames.offset,
                frames.captured,
                frames.wire,
                frames.time_ns,
                frames.tap,
                frames.link_type,
                done,
                rows,
                frames.first_frame_number,
                frames.base_offset,
                self._roce_ports,
                self._check_icrc,
                columns,
                self._endpoints.arrays,
                self.counters.arrays,
            )
            if done == len(frames):
                break
            self._endpoints.grow()
        table = table_of(columns, rows)
        if self.counters.general_services_packets() > general_services:
            self._cm += cm_messages(table, frames.data, frames.base_offset)
        return table

    def take_cm_messages(self) -> list[CmMessage]:
        """Connection management messages of the batches since the last call, in their order."""
        messages, self._cm = self._cm, []
        return messages

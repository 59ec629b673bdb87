"""What the hosts wanted to send, as units that a fabric places.

A unit is what always takes one path under a hash: a one-way flow, or one entropy value
(UDP source port and flow label) of a flow that sprays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...kernels.kernel import Array, Bools, Bytes, Int32s, Ints
from ..hashing.keys import PacketKeys

ON_ACKED, ON_RECEIVED = 0, 1
"""At which end a message waits for the one before it: at the sender, or at the receiver."""


class Windows(NamedTuple):
    """Bytes of units in equal time windows; only the windows in which a unit sent."""

    width_ns: int
    start_ns: int
    """Where window 0 begins."""
    unit: Int32s
    """Sorted; the windows of each unit ascend."""
    window: Int32s
    wire_bytes: Ints


class PacketTimes(NamedTuple):
    """The packets of messages, one message after another."""

    unit: Int32s
    time_ns: Ints
    """Since the Unix epoch."""
    wire_bytes: Int32s


class SentMessages(NamedTuple):
    """What flows sent, message by message, without retransmissions."""

    flow: Int32s
    """As in `Traffic.flow`. Messages are sorted by flow and `responses`, then as they began."""
    responses: Bools
    """The data of a READ, which a queue pair sends beside its own requests."""
    packets: Ints
    wire_bytes: Ints
    begun_ns: Ints
    """Time of the first packet since the Unix epoch."""
    ended_ns: Ints
    after: Int32s
    """Message that must be done first, -1 for none."""
    on: Bytes
    """At which end, as in `engine.model.Workload`."""
    times: PacketTimes | None = None
    """None when there are too many packets."""
    notes: tuple[str, ...] = ()
    """What could and could not be told of waits."""
    left_out: tuple[str, ...] = ()
    """Packets that are not part of a message."""


@dataclass(frozen=True)
class Traffic:
    """Equally long columns, one row per unit."""

    keys: PacketKeys
    src_host: Int32s
    """Host of the fabric; -1 when the address belongs to none."""
    dst_host: Int32s
    flow: Int32s
    """Index of the one-way flow, from 0; several units of one flow when it sprays."""
    packets: Ints
    wire_bytes: Ints
    first_ns: Ints
    """Time of the first packet since the Unix epoch."""
    last_ns: Ints
    windows: Windows | None = None
    unmapped: tuple[str, ...] = ()
    """Addresses that belong to no host of the fabric."""
    warnings: tuple[str, ...] = ()
    """Parts of the captures that could not be read."""
    messages: SentMessages | None = None
    """If they were asked for."""

    def __len__(self) -> int:
        return len(self.flow)

    @property
    def flows(self) -> int:
        """Number of one-way flows."""
        return int(self.flow.max(initial=-1)) + 1

    def take(self, rows: Array) -> Traffic:
        """The units an index or boolean array picks; windows follow, flows keep their numbers."""
        rows = np.arange(len(self))[rows]
        windows = self.windows
        if windows is not None:
            new = np.full(len(self), -1, np.int32)
            new[rows] = np.arange(len(rows))
            unit = new[windows.unit]
            order = np.lexsort((windows.window, unit))
            order = order[unit[order] >= 0]
            windows = windows._replace(
                unit=unit[order], window=windows.window[order], wire_bytes=windows.wire_bytes[order]
            )
        return Traffic(
            self.keys.take(rows),
            self.src_host[rows],
            self.dst_host[rows],
            self.flow[rows],
            self.packets[rows],
            self.wire_bytes[rows],
            self.first_ns[rows],
            self.last_ns[rows],
            windows,
            self.unmapped,
            self.warnings,
            None if self.messages is None else _of_units(self.messages, rows, self.flow),
        )


def _of_units(messages: SentMessages, rows: Array, flow: Int32s) -> SentMessages:
    """The messages of flows that keep a unit; nothing waits for one that is gone. Packets of units
    that are gone are the first kept unit's of their flow."""
    kept = np.isin(messages.flow, flow[rows])
    place = np.full(len(kept) + 1, -1, np.int32)  # the last: of no message, -1
    place[:-1][kept] = np.arange(int(kept.sum()), dtype=np.int32)
    times = messages.times
    if times is not None:
        first = np.full(int(flow.max(initial=-1)) + 1, -1, np.int32)
        first[flow[rows][::-1]] = np.arange(len(rows), dtype=np.int32)[::-1]
        new = first[flow]
        new[rows] = np.arange(len(rows), dtype=np.int32)
        of_kept = np.repeat(kept, messages.packets)
        times = PacketTimes(
            new[times.unit[of_kept]], times.time_ns[of_kept], times.wire_bytes[of_kept]
        )
    return messages._replace(
        flow=messages.flow[kept],
        responses=messages.responses[kept],
        packets=messages.packets[kept],
        wire_bytes=messages.wire_bytes[kept],
        begun_ns=messages.begun_ns[kept],
        ended_ns=messages.ended_ns[kept],
        after=place[messages.after[kept]],
        on=messages.on[kept],
        times=times,
    )

"""The offered traffic of hosts, as units that a fabric places.

All packets of a unit have the same path under a hash: a one-way flow, or one entropy value
(UDP source port and flow label) of a flow that sprays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.kernel import Array, Bools, Bytes, Int32s, Ints
from ...kernels.named import NamedTuple
from ..hashing.keys import PacketKeys
from ..results.base import HostMapping
from .linked import NO_LINKS, Links, Told

if TYPE_CHECKING:
    from ...analyzer.results.flow import Owner

ON_ACKED, ON_RECEIVED = 0, 1
"""The end at which the predecessor of a message must be complete: its sender or its receiver."""


class Windows(NamedTuple):
    """Bytes of units in equal time windows; only windows with bytes of the unit."""

    width_ns: int
    start_ns: int
    """Begin of window 0."""
    unit: Int32s
    """Sorted by unit, then by window."""
    window: Int32s
    wire_bytes: Ints


class Seen(NamedTuple):
    """Packets of units at taps, copies at other taps included; one row per unit and tap."""

    taps: tuple[str, ...]
    unit: Int32s
    tap: Int32s
    packets: Ints
    wire_bytes: Ints


class PacketTimes(NamedTuple):
    """The packets of messages, sorted by message."""

    unit: Int32s
    time_ns: Ints
    """Since the Unix epoch."""
    wire_bytes: Int32s


class Besides(NamedTuple):
    """Further predecessors, in equally long columns: message `message` waits for `after`."""

    message: Int32s
    after: Int32s
    on: Bytes


NONE_BESIDES = Besides(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8))


class SentMessages(NamedTuple):
    """The messages of flows, without retransmissions."""

    flow: Int32s
    """As in `Traffic.flow`. Messages are sorted by flow and `responses`, then by begin."""
    responses: Bools
    """Data of a READ, which a queue pair sends in addition to its own requests."""
    packets: Ints
    payload_bytes: Ints
    wire_bytes: Ints
    begun_ns: Ints
    """Time of the first packet since the Unix epoch."""
    ended_ns: Ints
    after: Int32s
    """The predecessor, which must be complete first; -1 for none."""
    on: Bytes
    """ON_ACKED or ON_RECEIVED."""
    times: PacketTimes | None = None
    """None if there are too many packets."""
    notes: tuple[str, ...] = ()
    """Known and unknown dependencies, in words."""
    left_out: tuple[str, ...] = ()
    """Packets that are not part of a message."""
    links: Links = NO_LINKS
    """Messages that wait for arrivals from other queue pairs; they have no other predecessor."""
    besides: Besides = NONE_BESIDES
    evidence: Told = Told()
    """Of `links`."""


@dataclass(frozen=True)
class Traffic:
    """Equally long columns, one row per unit."""

    keys: PacketKeys
    src_host: Int32s
    """Host of the fabric; -1 if the address belongs to no host."""
    dst_host: Int32s
    flow: Int32s
    """Index of the one-way flow, from 0; a flow that sprays has several units."""
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
    """None if they were not requested."""
    seen: Seen | None = None
    """None with one tap, and for patterns."""
    mapping: HostMapping | None = None
    """The hosts of the addresses of a capture; None for patterns."""
    owners: Mapping[int, Owner] = field(default_factory=dict)
    """By flow, from logs of the job."""
    has_data: Bools | None = None
    """bool[units]: not only ACKs and CNPs; None: all units have data."""

    dscp: Bytes | None = None
    """uint8[units]: DSCP of the first packet with data, else of the first packet; None: unknown."""

    def __len__(self) -> int:
        return len(self.flow)

    @property
    def flows(self) -> int:
        """Number of one-way flows."""
        return int(self.flow.max(initial=-1)) + 1

    def counted(self) -> Ints:
        """int64[units]: 1 for the units that a FIM of flows counts: those with data, or all if none
        has."""
        every = np.ones(len(self), np.int64)
        if self.has_data is None or not self.has_data.any():
            return every
        return self.has_data.astype(np.int64)

    def take(self, rows: Array) -> Traffic:
        """The selected units (indices or a mask) with their windows; flows keep their numbers."""
        rows = np.arange(len(self))[rows]
        new = np.full(len(self), -1, np.int32)
        new[rows] = np.arange(len(rows))
        windows, seen = self.windows, self.seen
        if windows is not None:
            unit = new[windows.unit]
            order = np.lexsort((windows.window, unit))
            order = order[unit[order] >= 0]
            windows = windows._replace(
                unit=unit[order], window=windows.window[order], wire_bytes=windows.wire_bytes[order]
            )
        if seen is not None:
            kept = new[seen.unit] >= 0
            seen = Seen(
                seen.taps,
                new[seen.unit[kept]],
                seen.tap[kept],
                seen.packets[kept],
                seen.wire_bytes[kept],
            )
        messages = self.messages and _of_units(self.messages, rows, self.flow)
        columns = ("src_host", "dst_host", "flow", "packets", "wire_bytes", "first_ns", "last_ns")
        taken: dict[str, Any] = {name: getattr(self, name)[rows] for name in columns}
        return replace(
            self,
            keys=self.keys.take(rows),
            windows=windows,
            messages=messages,
            seen=seen,
            has_data=None if self.has_data is None else self.has_data[rows],
            dscp=None if self.dscp is None else self.dscp[rows],
            **taken,
        )


def _of_units(messages: SentMessages, rows: Array, flow: Int32s) -> SentMessages:
    """The messages of flows with a remaining unit, without dependencies on removed messages.

    Packets of removed units count for the first remaining unit of their flow.
    """
    kept = np.isin(messages.flow, flow[rows])
    place = np.full(len(kept) + 1, -1, np.int32)  # the last item stands for no message
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
    columns = (
        "flow", "responses", "packets", "payload_bytes", "wire_bytes", "begun_ns", "ended_ns", "on"
    )  # fmt: skip
    taken: dict[str, Any] = {name: getattr(messages, name)[kept] for name in columns}
    links = messages.links
    both = kept[links.message] & kept[links.after]
    links = Links(place[links.message[both]], place[links.after[both]], links.gap_ns[both])
    after = place[messages.after[kept]]
    return messages._replace(after=after, times=times, links=links, **taken)

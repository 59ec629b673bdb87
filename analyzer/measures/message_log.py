"""A record of every completed message, in bounded memory: what training jobs are recognised by."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...kernels.kernel import Array, Int32s, Ints, Records
from ..statistics.per_flow import Kept

MESSAGE: Final = np.dtype(
    [
        ("begun_ns", np.int64),  # first packet
        ("ended_ns", np.int64),  # last packet, retransmitted ones included
        ("bytes", np.int64),  # payload
        ("flow", np.int32),
        ("messages", np.uint32),  # 1; more: neighbours of the same flow that were joined
        ("may_grant", np.uint8),  # 1: of the form of a clear-to-send of NCCL, see `grants.py`
    ],
    align=True,
)
"""A SEND or WRITE at the first tap that sees its packets."""

MOST_MESSAGES: Final = 1 << 19
"""Records kept, 40 bytes each: 21 MB. Beyond that, neighbours with the shortest gap are joined."""


class GrantNames(NamedTuple):
    """What all grants of a flow say alike; -1: they differ, or do not say it."""

    rank: int
    """Rank that shall send: that of the destination."""
    slot_bytes: int


class MessageLog:
    """Completed SENDs and WRITEs of all flows, in the order of completion."""

    def __init__(self, most: int = MOST_MESSAGES) -> None:
        self._most = most
        self._parts: list[Records] = []
        self._count = 0
        self.grants: dict[int, GrantNames] = {}
        """By flow of the grants."""
        self.joined_ns = 0
        """Messages of a flow that follow each other within this time may be one record."""

    def add(self, messages: Records) -> None:
        """Take in MESSAGE records; they are copied."""
        if not len(messages):
            return
        self._parts.append(messages.copy())
        self._count += len(messages)
        if self._count > self._most:
            self._shorten()

    def add_grants(self, flows: Int32s, grants: Records) -> None:
        """Take in GRANT_ROW records; flows: int32[grants]."""
        if not len(grants):
            return
        order = np.argsort(flows, kind="stable")
        numbers, first = np.unique(flows[order], return_index=True)
        ranks = _all_alike(grants["rank"][order], first)
        slots = _all_alike(grants["slot_bytes"][order], first)
        for flow, rank, slot in zip(numbers.tolist(), ranks, slots, strict=True):
            self._name(flow, GrantNames(rank, slot))

    def _name(self, flow: int, names: GrantNames) -> None:
        known = self.grants.setdefault(flow, names)
        if known != names:
            self.grants[flow] = GrantNames(
                *(ours if ours == theirs else -1 for ours, theirs in zip(known, names, strict=True))
            )

    def messages(self) -> Records:
        """MESSAGE records by flow, then by their first packet."""
        messages = np.concatenate([np.zeros(0, MESSAGE), *self._parts])
        self._parts = [messages]
        return messages[np.lexsort((messages["begun_ns"], messages["flow"]))]

    def _shorten(self) -> None:
        """Join neighbours until half as many records are left."""
        messages = self.messages()
        gaps = messages["begun_ns"][1:] - messages["ended_ns"][:-1]
        same = messages["flow"][1:] == messages["flow"][:-1]
        same &= messages["may_grant"][1:] == messages["may_grant"][:-1]
        wanted = len(messages) - self._most // 2
        if np.count_nonzero(same) > wanted:
            limit = int(np.partition(gaps[same], wanted)[wanted])
            same &= gaps <= limit
            self.joined_ns = max(self.joined_ns, limit)
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        joined = messages[first]
        joined["ended_ns"] = np.maximum.reduceat(messages["ended_ns"], first)
        for name in ("bytes", "messages"):
            joined[name] = np.add.reduceat(messages[name], first)
        self._parts, self._count = [joined], len(joined)

    def keep(self, kept: Kept) -> None:
        """Only the messages of these flows stay."""
        parts = [part[kept.holds(part["flow"])] for part in self._parts]
        for part in parts:
            part["flow"] = kept.number[part["flow"]]
        self._parts, self._count = parts, sum(map(len, parts))
        self.grants = {
            int(kept.number[flow]): names
            for flow, names in self.grants.items()
            if kept.number[flow] >= 0
        }

    def merge(self, other: MessageLog, flow_map: Int32s) -> None:
        """Take in the messages of another log; its flow i is our flow `flow_map[i]`."""
        self.joined_ns = max(self.joined_ns, other.joined_ns)
        for part in other._parts:
            renumbered = part.copy()
            renumbered["flow"] = flow_map[part["flow"]]
            self.add(renumbered)
        for flow, names in other.grants.items():
            self._name(int(flow_map[flow]), names)


def _all_alike(values: Array, first: Ints) -> list[int]:
    """The value of each group of rows that begins at `first`; -1 where they differ."""
    least, most = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    alike: list[int] = np.where(least == most, least, -1).tolist()
    return alike

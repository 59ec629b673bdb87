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
        ("bytes", np.uint32),  # payload
        ("flow", np.int32),
        ("may_grant", np.uint8),  # 1: of the form of a grant of NCCL, see `decode/grants.py`
    ],
    align=True,
)
"""A SEND or WRITE at the first tap that sees its packets."""

MOST_MESSAGES: Final = 1 << 20
"""Records kept, 32 bytes each, once grants are seen."""
MOST_WITHOUT_GRANTS: Final = 1 << 15


class GrantNames(NamedTuple):
    """What all grants of a flow say alike; -1: they differ, or do not say it."""

    rank: int
    """Rank that shall send: that of the destination."""
    slot_bytes: int


class MessageLog:
    """Completed SENDs and WRITEs of all flows, in the order of completion."""

    def __init__(
        self,
        most: int = MOST_MESSAGES,
        most_without_grants: int = MOST_WITHOUT_GRANTS,
        newest: bool = False,
    ) -> None:
        """newest: beyond the limit, the oldest half leaves; else later messages are left out."""
        self._most, self._most_without_grants, self._newest = most, most_without_grants, newest
        self._parts: list[Records] = []
        self._count = 0
        self.grants: dict[int, GrantNames] = {}
        """By flow of the grants."""
        self.left_out = 0
        """Messages beyond the limit."""

    def add(self, messages: Records) -> None:
        """Take in MESSAGE records; they are copied."""
        most = self._most if self.grants else self._most_without_grants
        if self._newest:
            while self._parts and self._count + len(messages) > most:
                self.left_out += len(gone := self._parts.pop(0))
                self._count -= len(gone)
            messages, more = messages[-most:], max(0, len(messages) - most)
        else:
            room = max(0, most - self._count)
            messages, more = messages[:room], max(0, len(messages) - room)
        self.left_out += more
        if len(messages):
            self._parts.append(messages.copy())
            self._count += len(messages)

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
        return messages[np.lexsort((messages["begun_ns"], messages["flow"]))]

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
        self.left_out += other.left_out
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

"""Drops duplicates of packets that were mirrored twice to one tap.

For mirrors with indistinguishable sessions, for example both directions of a switch in one GRE
tunnel. A packet equals another by its addresses, ports, identification, opcode, queue pair and PSN,
within a time that must be shorter than any retransmission.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bools, Int, UInt64s, inlined, subkernel
from ...wire.packets import I64, PacketTable, TableArrays
from ...wire.salt import salt

ENTRIES = 1 << 16
"""Most packets remembered; a newer packet replaces one with the same low bits."""


@inlined
def _mixed(h: np.uint64, value: np.uint64) -> np.uint64:
    h = (h ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return np.uint64(h ^ (h >> np.uint64(29)))


@subkernel
def keep_first(
    table: TableArrays,
    within_ns: Int,
    salt: np.uint64,
    keys: UInt64s,
    times: I64,
    keep: Bools,
) -> None:
    """Mark rows that do not repeat a packet of at most `within_ns` before.

    keys, times: uint64 and int64[ENTRIES], recent packets, updated.
    """
    for i in range(len(table.src)):
        h = salt
        h = _mixed(h, np.uint64(table.src[i]) << np.uint64(32) | np.uint64(table.dst[i]))
        h = _mixed(h, np.uint64(table.dest_qp[i]) << np.uint64(32) | np.uint64(table.psn[i]))
        ports = np.uint64(table.udp_sport[i]) << np.uint64(32) | np.uint64(
            table.ip_id[i]
        ) << np.uint64(8)
        h = _mixed(h, ports | np.uint64(table.opcode[i]))
        slot = h & np.uint64(ENTRIES - 1)
        distance = table.time_ns[i] - times[slot]
        keep[i] = keys[slot] != h or distance > within_ns or distance < -within_ns
        if keep[i]:
            keys[slot] = h
            times[slot] = table.time_ns[i]


class Duplicates:
    """Drops repetitions from the tables of one capture."""

    def __init__(self, within_ns: int) -> None:
        self.within_ns = within_ns
        self.dropped = 0
        self._salt = salt(1)[0] | np.uint64(1)
        self._keys = np.zeros(ENTRIES, np.uint64)
        self._times = np.full(ENTRIES, -(1 << 62), np.int64)

    def without(self, table: PacketTable) -> PacketTable:
        """The table without repeated packets."""
        keep = np.ones(len(table), np.bool_)
        keep_first(
            table.arrays,
            self.within_ns,
            self._salt,
            self._keys,
            self._times,
            keep,
        )
        dropped = len(keep) - int(keep.sum())
        self.dropped += dropped
        return table.take(keep) if dropped else table

"""Drops duplicates of packets that were mirrored twice to one tap.

For mirrors with indistinguishable sessions, for example both directions of a switch in one GRE
tunnel. A packet equals another by its addresses, ports, identification, opcode, queue pair and PSN,
within a time that must be shorter than any retransmission.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bools, Int, UInt64s, inlined, kernel
from ...wire.packets import I64, U8, U16, U32, PacketTable
from ...wire.salt import salt

ENTRIES = 1 << 16
"""Most packets remembered; a newer packet replaces one with the same low bits."""


@inlined
def _mixed(h: np.uint64, value: np.uint64) -> np.uint64:
    h = (h ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return np.uint64(h ^ (h >> np.uint64(29)))


@kernel
def keep_first(
    src: U32,
    dst: U32,
    sport: U16,
    ip_id: U16,
    opcode: U8,
    dest_qp: U32,
    psn: U32,
    time_ns: I64,
    within_ns: Int,
    salt: np.uint64,
    keys: UInt64s,
    times: I64,
    keep: Bools,
) -> None:
    """Mark rows that do not repeat a packet of at most `within_ns` before.

    keys, times: uint64 and int64[ENTRIES], recent packets, updated.
    """
    for i in range(len(src)):
        h = salt
        h = _mixed(h, np.uint64(src[i]) << np.uint64(32) | np.uint64(dst[i]))
        h = _mixed(h, np.uint64(dest_qp[i]) << np.uint64(32) | np.uint64(psn[i]))
        ports = np.uint64(sport[i]) << np.uint64(32) | np.uint64(ip_id[i]) << np.uint64(8)
        h = _mixed(h, ports | np.uint64(opcode[i]))
        slot = h & np.uint64(ENTRIES - 1)
        distance = time_ns[i] - times[slot]
        keep[i] = keys[slot] != h or distance > within_ns or distance < -within_ns
        if keep[i]:
            keys[slot] = h
            times[slot] = time_ns[i]


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
            table.src,
            table.dst,
            table.udp_sport,
            table.ip_id,
            table.opcode,
            table.dest_qp,
            table.psn,
            table.time_ns,
            self.within_ns,
            self._salt,
            self._keys,
            self._times,
            keep,
        )
        dropped = len(keep) - int(keep.sum())
        self.dropped += dropped
        return table.take(keep) if dropped else table

"""The answers of MRC, told to the tracker and the measures in the words of RC.

A SACK acknowledges by the PSN in its SETH; what its BTH.PSN holds is not settled
(docs/mrc.md). Behind this the cumulative PSN is the PSN of the packet, as that of an ACK is,
so that pairing, message completion and loss work for both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ..decode.mrc import NETH, SETH
from ..packets import PacketTable

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def acknowledging(table: PacketTable) -> PacketTable:
    """The table with the PSN that each SACK and NACK is about in its PSN column.

    Many SACKs repeat a PSN, so their `aeth`, which they do not have, holds 24 bits of a
    fingerprint: by it copies of one SACK at several taps are told from different SACKs.
    Its syndrome bits are 0, a positive acknowledgement. Tables without MRC are handed through.
    """
    mrc = table.mrc
    if mrc is None:
        return table
    told = mrc[mrc["present"] & (SETH | NETH) != 0]
    if not len(told):
        return table
    mixed = told["entropy"].astype(np.uint64) * _MIX
    for name in ("sack_bitmap", "psn_offset", "timestamp", "rcvd_bytes", "probe_id", "ev"):
        mixed = (mixed ^ told[name].astype(np.int64).view(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    psn, aeth = table.psn.copy(), table.aeth.copy()
    psn[told["row"]] = told["psn"]
    aeth[told["row"]] = (mixed >> np.uint64(40)).astype(np.uint32)
    return replace(table, psn=psn, aeth=aeth)

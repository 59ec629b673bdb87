"""The answers of MRC, told to the tracker and the measures in the words of RC.

A SACK acknowledges by the PSN in its SETH; what its BTH.PSN holds is not settled
(docs/mrc.md). Behind this the cumulative PSN is the PSN of the packet, as that of an ACK is,
so that pairing, message completion and loss work for both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ..decode.multipath.mrc import EETH, ERTH, NETH, PETH, SETH
from ..wire.packets import PacketTable

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_TOLD: Final = (
    "sack_bitmap", "psn_offset", "timestamp", "rcvd_bytes", "probe_id", "port_mask", "ev",
)  # fmt: skip
"""What is told in one packet and not in the next, as far as taps on its way see the same."""


def acknowledging(table: PacketTable) -> PacketTable:
    """The table with the PSN that each SACK and NACK is about in its PSN column.

    SACKs, NACKs, probes and endpoint messages repeat PSNs, so their `aeth`, which they do not
    have, holds 24 bits of a fingerprint: by it copies of one at several taps are told from
    different ones. Its syndrome bits are 0, a positive acknowledgement. Tables without MRC are
    handed through.
    """
    mrc = table.mrc
    if mrc is None:
        return table
    told = mrc[mrc["present"] & (SETH | NETH | PETH | ERTH | EETH) != 0]
    if not len(told):
        return table
    mixed = told["entropy"].astype(np.uint64) * _MIX
    for name in _TOLD:
        mixed = (mixed ^ told[name].astype(np.int64).view(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    psn, aeth = table.psn.copy(), table.aeth.copy()
    answers = told[told["present"] & (SETH | NETH) != 0]
    psn[answers["row"]] = answers["psn"]
    aeth[told["row"]] = (mixed >> np.uint64(40)).astype(np.uint32)
    return replace(table, psn=psn, aeth=aeth)

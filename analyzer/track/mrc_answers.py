"""The answers of MRC as the tracker and the measures take them: like ACKs of RC.

A SACK acknowledges by the PSN in its SETH; what its BTH.PSN holds is not settled
(docs/mrc.md). The derived columns say which PSN an answer is about and tell answers apart, so
that pairing, message completion and loss work as for RC.
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


def with_answers(table: PacketTable) -> PacketTable:
    """The table with its derived columns; tables without answers of MRC are handed through.

    SACKs, NACKs, probes and endpoint messages repeat PSNs: their fingerprint tells copies of
    one at several taps from different ones.
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
    answered_psn, fingerprint = table.psn.copy(), np.zeros(len(table), np.uint32)
    answers = told[told["present"] & (SETH | NETH) != 0]
    answered_psn[answers["row"]] = answers["psn"]
    fingerprint[told["row"]] = (mixed >> np.uint64(40)).astype(np.uint32)
    return replace(table, answered_psn=answered_psn, fingerprint=fingerprint)

"""MRC responses in the form of RC ACKs, for the tracker and the measures.

A SACK acknowledges the PSN in its SETH; the meaning of its BTH.PSN is unsettled (docs/mrc.md). The
derived columns hold the PSN that a response refers to and distinguish responses, so that pairing,
message completion and loss work as for RC.
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
"""Fields that differ between responses and are equal at all taps."""


def with_answers(table: PacketTable) -> PacketTable:
    """The table with its derived columns; unchanged without MRC responses.

    SACKs, NACKs, probes and endpoint messages repeat PSNs: their fingerprint distinguishes copies
    at several taps from different packets.
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

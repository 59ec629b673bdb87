"""MRC in SRv6: detects whether the inner or outer header has the entropy value's flow label.

Readers of MRC 1.0 differ. With an inner label of 0 the outer one may apply: a SACK with the entropy
value of its packet decides.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...wire.opcodes import MRC, OPCODE_CLASS, REQUEST, TRANSPORT_OF
from ...wire.packets import I64, U8, PacketTable
from .mrc import SETH

FlowLabelOf: TypeAlias = Literal["auto", "inner", "outer"]

_MAX_PACKETS = 1 << 16
"""Packets and SACKs of a batch that are compared."""
_MAX_BATCHES = 16
"""Batches without a SACK that matches a packet, until the inner label is chosen."""
_DECIDED_BY = 3
"""The outer label needs this multiple of the matches without it."""


class FlowLabels:
    """Sets the flow label of the outer IPv6 header on MRC packets without one, if it applies."""

    def __init__(self, wanted: FlowLabelOf = "auto") -> None:
        self.outer = None if wanted == "auto" else wanted == "outer"
        """Whether the outer label applies; None while unknown."""
        self._batches = 0
        self._frame: list[I64] = []
        self._label: list[NDArray[np.uint32]] = []

    def see(self, table: PacketTable, data: U8, outer_ipv6: I64) -> None:
        """Apply or ignore the outer labels of a table's packets.

        outer_ipv6: position of the complete outer header in `data` for each row; -1 for none.
        """
        if self.outer is False:
            return
        rows = np.flatnonzero(
            (outer_ipv6 >= 0) & (table.flow_label == 0) & (TRANSPORT_OF[table.opcode] == MRC)
        )
        word = data[outer_ipv6[rows, None] + np.arange(1, 4)].astype(np.uint32)
        label = (word[:, 0] & 15) << 16 | word[:, 1] << 8 | word[:, 2]
        if self.outer:
            table.flow_label[rows] = label
        elif label.any():
            self._frame.append(table.frame_number[rows])
            self._label.append(label)

    def decide(self, table: PacketTable, mrc: NDArray[Any] | None) -> bool:
        """Whether the outer labels of this batch, which are now in the table, apply.

        mrc: its MRC_ROW records, with the entropy values by inner label.
        """
        frames, labels, self._frame, self._label = self._frame, self._label, [], []
        if self.outer is not None or not frames or mrc is None:
            return False
        matched = _matched(table, mrc, np.concatenate(frames), np.concatenate(labels))
        if matched is None:
            self._batches += 1
            if self._batches == _MAX_BATCHES:
                self.outer = False
            return False
        rows, label, self.outer = matched
        if self.outer:
            table.flow_label[rows] = label
        return self.outer


def _matched(
    table: PacketTable, mrc: NDArray[Any], frames: I64, labels: NDArray[np.uint32]
) -> tuple[I64, NDArray[np.uint32], bool] | None:
    """Rows without an inner label, their outer label, and whether SACKs hold it; None: no match."""
    order = np.argsort(frames, kind="stable")
    frames, labels = frames[order], labels[order]
    at = np.minimum(np.searchsorted(frames, table.frame_number[mrc["row"]]), len(frames) - 1)
    known = frames[at] == table.frame_number[mrc["row"]]
    rows, label = mrc["row"][known], labels[at[known]]
    sent = np.flatnonzero(OPCODE_CLASS[table.opcode[rows]] & REQUEST)[:_MAX_PACKETS]
    packet = rows[sent]
    values = dict(
        zip(
            zip(
                table.src[packet].tolist(),
                table.dst[packet].tolist(),
                table.psn[packet].tolist(),
                strict=True,
            ),
            zip(table.udp_sport[packet].tolist(), (label[sent] & 0xFFFF).tolist(), strict=True),
            strict=True,
        )
    )
    sacks = mrc[(mrc["present"] & SETH != 0) & (mrc["probe_response"] == 0)][:_MAX_PACKETS]
    row = sacks["row"]
    about = (sacks["psn"].astype(np.int64) + sacks["psn_offset"]) & 0xFFFFFF
    asked = zip(table.dst[row].tolist(), table.src[row].tolist(), about.tolist(), strict=True)
    outer = inner = 0
    for key, entropy in zip(asked, sacks["entropy"].tolist(), strict=True):
        port, mine = values.get(key, (0, 0))
        if not port or not mine:
            continue
        outer += entropy in (mine << 16 | port, port << 16 | mine)
        inner += entropy in (port, port << 16)
    if not outer and not inner:
        return None
    return rows, label, outer >= _DECIDED_BY * inner

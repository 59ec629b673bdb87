"""Ranks of packets: those of their flows, as a pass over the whole capture found them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from ...kernels.kernel import Ints
from ..results.flow import Owner
from ..wire.packets import PacketTable
from ..wire.registry import Registry

FlowName: TypeAlias = tuple[str, str, int]
"""Source address, destination address and destination queue pair."""

_QP_BITS = 24


class Ranks:
    """The ranks and the communicator of the packets of known flows; -1 where not known."""

    def __init__(self, owners: Mapping[FlowName, Owner]) -> None:
        self.owners = owners
        self.comms = sorted({owner.comm for owner in owners.values() if owner.comm is not None})
        """Communicators by their numbers in `columns`."""
        self._codes = {name: code for code, name in enumerate(self.comms)}

    def __bool__(self) -> bool:
        """Whether any rank is known."""
        return any(owner.ranks != (None, None) for owner in self.owners.values())

    def code(self, comm: str) -> int:
        """The number of a communicator in `columns`; -2 for one that no flow has."""
        return self._codes.get(comm, -2)

    def columns(self, table: PacketTable, registry: Registry) -> dict[str, Ints]:
        """int64[len(table)] each: `sender`, `receiver` and `comm`, for the packets of a batch."""
        hosts = len(registry.endpoints) + 1
        pair, pairs = np.unique(table.src.astype(np.int64) * hosts + table.dst, return_inverse=True)
        flow, flows = np.unique(pairs << _QP_BITS | table.dest_qp, return_inverse=True)
        ends = pair[flow >> _QP_BITS]
        text = registry.endpoints.text
        columns = self._of(
            (text(int(end // hosts)), text(int(end % hosts)), int(qp))
            for end, qp in zip(ends, flow & ((1 << _QP_BITS) - 1), strict=True)
        )
        return {name: column[flows] for name, column in columns.items()}

    def _of(self, names: Iterable[FlowName]) -> dict[str, Ints]:
        rows = [rank_numbers(self.owners.get(name), self._codes) for name in names]
        columns = np.array(rows, np.int64).reshape(-1, 3)
        return dict(zip(("sender", "receiver", "comm"), columns.T, strict=True))


def rank_numbers(owner: Owner | None, codes: Mapping[str, int]) -> tuple[int, int, int]:
    """Sending rank, receiving rank and number of the communicator; -1 where not known."""
    if owner is None:
        return -1, -1, -1
    sender, receiver = owner.ranks
    comm = -1 if owner.comm is None else codes.get(owner.comm, -1)
    return -1 if sender is None else sender, -1 if receiver is None else receiver, comm

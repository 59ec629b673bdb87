"""Information on queue pairs as comments of a capture file."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..sysfs import gids
from .queue_pairs import QueuePair
from .watch import OwnerWatch

_CONNECTED = ("RC", "UC", "XRC_INI", "XRC_TGT")
_UPDATE_EVERY_S = 1.0
_MOST_ADDRESSES = 16


def owner_comment(pair: QueuePair) -> str:
    """One line about a queue pair: its number and address, its peer's, its process and rank.

    For example "owner: QP 0x000011 at 10.0.0.2 (mlx5_0) to QP 0x000022 at 10.0.0.1:
    pid 4711 python, rank 3". If only its device is known, all addresses of the device.
    """
    text = f"owner: QP 0x{pair.local_qp:06x}"
    here = [pair.local_gid] if pair.local_gid else gids(pair.device) if pair.device else []
    if here:
        text += f" at {' or '.join(here[:_MOST_ADDRESSES])}"
    if pair.device:
        text += f" ({pair.device})"
    if pair.remote_qp is not None:
        text += f" to QP 0x{pair.remote_qp:06x}"
        if pair.remote_gid:
            text += f" at {pair.remote_gid}"
    text += f": pid {pair.pid} {pair.command}"
    if pair.rank.rank is not None:
        text += f", rank {pair.rank.rank}"
    return text


class OwnerComments:
    """Comments on queue pairs, each given once; an error ends the comments, not the capture."""

    def __init__(self, watch: OwnerWatch) -> None:
        self._watch: OwnerWatch | None = watch
        self.ended: list[str] = []
        """Why owners are unknown from a point on."""
        self._told: set[str] = set()
        self._updated = float("-inf")

    def new(self, at_once: bool = False) -> list[str]:
        """New comments since the last call; updates at most once per second."""
        if self._watch is None:
            return []
        now = time.monotonic()
        try:
            if not at_once and now - self._updated < _UPDATE_EVERY_S:
                self._watch.listen()
                return []
            self._updated = now
            self._watch.update(wait=at_once)
            return self._untold(self._watch.queue_pairs)
        except Exception as error:
            self._watch = None
            self.ended = [f"owners of queue pairs are unknown from here on: {error}"]
            return self.ended

    def _untold(self, pairs: Iterable[QueuePair]) -> list[str]:
        found = []
        for pair in pairs:
            if pair.remote_qp is None and pair.type in _CONNECTED:
                continue  # no packet passes before it is connected
            comment = owner_comment(pair)
            if comment not in self._told:
                self._told.add(comment)
                found.append(comment)
        return found

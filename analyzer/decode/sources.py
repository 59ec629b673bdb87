"""One capture of an analysis: its frames as packet tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..capture.concat import ConcatenatedCapture
from ..capture.source import Capture
from ..wire.packets import PacketTable
from .decoder import Decoder


@dataclass(slots=True)
class Source:
    """One capture with its decoder."""

    capture: Capture | ConcatenatedCapture
    decoder: Decoder
    first_time_ns: int | None = None
    last_time_ns: int | None = None
    stopped: bool = False
    """Set to end reading."""

    def tables(self, keep: Callable[[PacketTable], PacketTable]) -> Iterator[PacketTable]:
        """The packet tables of this capture, filtered."""
        tables = self._decoded(keep)
        return tables if self.decoder.mirrors is None else self.decoder.mirrors.ordered(tables)

    def _decoded(self, keep: Callable[[PacketTable], PacketTable]) -> Iterator[PacketTable]:
        for frames in self.capture.batches():
            if len(frames):
                low, high = int(frames.time_ns.min()), int(frames.time_ns.max())
                first, last = self.first_time_ns, self.last_time_ns
                self.first_time_ns = low if first is None else min(low, first)
                self.last_time_ns = high if last is None else max(high, last)
            yield keep(self.decoder.decode(frames))
            if self.stopped:
                return

"""Live probes as the packets of a session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ..analyzer.conclude import conclude
from ..analyzer.decode.srv6 import SegmentLists
from ..analyzer.endpoints import Endpoints
from ..analyzer.errors import UnreadableInput
from ..analyzer.filtering import compile_filter
from ..analyzer.frames import Taps
from ..analyzer.measuring import Measuring
from ..analyzer.results import Analysis
from ..probes.live import LiveOptions, LiveSource
from ..probes.live_analysis import capture_summary, warm_up
from .feeds import Feed
from .session import Session
from .snapshot import SourceState

WINDOW_NS = 10_000_000
POLL_S = 0.02
"""The rings hold far more than arrives in this time; fewer, larger batches cost less."""


def open_live(
    interfaces: Sequence[str],
    options: LiveOptions | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Session:
    """A session on interfaces of this host; probes are attached when it starts."""
    chosen = options or LiveOptions()

    def make(keep: str | None) -> Feed:
        return LiveFeed(interfaces, chosen, keep)

    return Session(make, ",".join(interfaces), "live", (), clock)


class LiveFeed:
    """Probes on interfaces; a packet filter is applied behind them."""

    kind = "live"

    def __init__(self, interfaces: Sequence[str], options: LiveOptions, keep: str | None) -> None:
        self.lock = threading.Lock()
        self.endpoints, self.taps = Endpoints(), Taps()
        warm_up(WINDOW_NS)
        self.measuring = Measuring(WINDOW_NS, many_taps=True)
        self._name = ",".join(interfaces)
        self._keep = compile_filter(keep) if keep else None
        self._packets = 0
        self._stack = ExitStack()
        self._source = self._stack.enter_context(
            LiveSource(interfaces, options, endpoints=self.endpoints, taps=self.taps)
        )

    @property
    def segments(self) -> SegmentLists:
        """The SRv6 segment lists seen so far."""
        return self._source.decoder.segments

    def read(self) -> None:
        """Take in what the probes see until `stop`."""
        for table in self._source.tables(POLL_S):
            if self._keep is not None and len(table):
                table = table.take(self._keep.mask(table, self.endpoints, self.taps))
            cm = self._source.decoder.take_cm_messages()
            if len(table) or cm:
                with self.lock:
                    self.measuring.update(table, cm)
                self._packets += len(table)

    def stop(self) -> None:
        """Detach the probes; what is in the rings is still taken in."""
        self._source.stop()

    def state(self) -> SourceState:
        """Counters of the probes so far."""
        loss = self._source.loss()
        gone = [interface.label for interface in self._source.gone()]
        return SourceState(
            name=self._name,
            kind=self.kind,
            error=f"{', '.join(gone)} has disappeared" if gone else "",
            frames=loss.seen,
            packets=self._packets,
            dropped=loss.ring_full,
            undecodable=sum(self._source.decoder.counters.undecodable().values()),
            tap_names=tuple(tap.name for tap in self.taps.items),
        )

    def analysis(self) -> Analysis:
        """What the probes saw, as the result of an analysis."""
        if not self._packets:
            raise UnreadableInput(f"{self._name}: no RoCE packet has come yet")
        self._source.state_losses()
        return conclude(
            self.measuring,
            self.endpoints,
            self.taps,
            [capture_summary(self._source, self.measuring)],
            path_by="entropy",
            complete=False,
            filtered=self._keep is not None or self._source.options.filter is not None,
            segments=self._source.decoder.segments,
        )

    def close(self) -> None:
        """Take the probes away."""
        self._stack.close()

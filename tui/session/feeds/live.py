"""Live probes as the packets of a session."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ....analyzer.decode.headers.cm import CmMessage
from ....analyzer.errors import UnreadableInput
from ....analyzer.logs.following import FollowedLogs
from ....analyzer.measures.messages.times import MessageTimes
from ....analyzer.measures.series import DEFAULT_WINDOW_NS
from ....analyzer.pipeline.options import AnalyzeOptions
from ....analyzer.pipeline.owners import merged
from ....analyzer.pipeline.threads import Prefetched, give_back_freed
from ....analyzer.results.analysis import Analysis
from ....analyzer.results.flow import Owner
from ....analyzer.statistics.keeping import Kept
from ....analyzer.wire.packets import PacketTable
from ....analyzer.words import printable
from ....probes.hooks.attach import gone_text
from ....probes.live_analysis import LivePipeline, warm_up
from ....probes.live_probes import LiveProbes
from ....probes.rights.priority import lower_own, raise_own
from ..snapshots.snapshot import SourceState
from .feeds import ended_words, measure_for_screens

EXPECTED_FLOWS = 16_384
"""Flows with preallocated room, so that a burst of new flows costs no reallocation."""
MOST_FLOWS = 50_000
"""Flows at once: packets of further ones are counted and not analysed. With fewer, arrays of a
session stay below 1 GB."""
MOST_ENDS = 1 << 18
"""First and last packets of messages kept for the arrival order of ranks."""
LOGS_EVERY_S, SHARE_OF_TIME = 2.0, 20
"""Minimum interval between joins with logs, in seconds and in multiples of a join's duration."""
POLL_S = 0.02
"""Poll interval. The rings hold far more than this time; fewer, larger batches cost less."""
AHEAD_PACKETS = 1 << 20
"""Packets that may wait to be measured (100 MB), in addition to the rings. So no packet is lost
while arrays grow for thousands of flows, columns are copied for the screens, or other processes
use the processor."""


class LiveFeed:
    """Packets of the probes from now on; a packet filter is applied after the probes."""

    kind = "live"

    def __init__(
        self,
        probes: LiveProbes,
        options: AnalyzeOptions,
        logs: FollowedLogs | None = None,
    ) -> None:
        """logs: of the job whose queue pairs are watched."""
        warm_up(DEFAULT_WINDOW_NS)
        self.pipeline = pipeline = LivePipeline(probes.source, options, logs)
        measuring = pipeline.measuring
        measuring.most_flows = MOST_FLOWS
        measure_for_screens(measuring)
        measuring.tracker.expect(EXPECTED_FLOWS)
        self.owners: dict[int, Owner] = {}
        """By flow index: the process that owns its queue pair, of this host or from logs."""
        self._logged: dict[int, Owner] = {}
        self._logs_due = 0.0
        if pipeline.logs is not None:
            measuring.message_times = MessageTimes(MOST_ENDS, newest=True)
        self._ahead: Prefetched[tuple[PacketTable, list[CmMessage]]] | None = None
        probes.begin()
        give_back_freed()
        self._probes, self._source = probes, probes.source
        names = ",".join(interface.label for interface in self._source.interfaces)
        self._name = printable(names)
        self._source.resume()

    def read(self) -> None:
        """Read packets of the probes until `stop`."""
        raise_own()
        with self._probes.reading():
            self._read()

    def _read(self) -> None:
        self._ahead = Prefetched(
            self._tables, lambda: None, AHEAD_PACKETS, lambda taken: len(taken[0])
        )
        pipeline = self.pipeline
        for table, cm in self._ahead:
            lower_own()  # only the thread that empties the rings, started by now, has priority
            if len(table) or cm:
                with pipeline.lock:
                    pipeline.take(table, cm)
                    if len(table):
                        pipeline.end_idle_in_turn(self._end_idle)
            with pipeline.lock:
                found = self._probes.owners(pipeline.measuring.tracker)
            if found is not None:
                pipeline.probed = found
                self.owners = merged(found, self._logged)
            if pipeline.logs is not None:
                self._join_logs(pipeline.logs)

    def _join_logs(self, logs: FollowedLogs) -> None:
        """Owners with what the logs show by now; at most a 20th of the time."""
        began = time.monotonic()
        if began < self._logs_due:
            return
        logs.update()
        with self.pipeline.lock:
            self._logged = self.pipeline.joined().owners
            self.owners = merged(self.pipeline.probed, self._logged)
        took = time.monotonic() - began
        self._logs_due = time.monotonic() + max(LOGS_EVERY_S, SHARE_OF_TIME * took)

    def _end_idle(self) -> None:
        pipeline = self.pipeline
        known = len(pipeline.measuring.renumbered or [])
        if pipeline.end_idle():
            give_back_freed()
            for kept in (pipeline.measuring.renumbered or [])[known:]:
                self.owners = _renumbered(self.owners, kept)
                pipeline.probed = _renumbered(pipeline.probed, kept)
                self._logged = _renumbered(self._logged, kept)

    def _tables(self) -> Iterator[tuple[PacketTable, list[CmMessage]]]:
        """Packet tables, from a thread that only empties the rings and decodes."""
        for table in self._source.tables(POLL_S):
            yield self.pipeline.kept(table), self._source.decoder.take_cm_messages()

    def stop(self) -> None:
        """End reading; the probes stay until the session is closed."""
        self._source.pause()

    def backlog(self) -> float:
        """Used share of the buffer of packets that wait to be measured."""
        return self._ahead.backlog if self._ahead is not None else 0.0

    def state(self) -> SourceState:
        """Counters of the probes so far."""
        loss = self._source.loss()
        gone = [interface.label for interface in self._source.gone()]
        return SourceState(
            name=self._name,
            kind=self.kind,
            error=gone_text(gone),
            frames=loss.seen,
            packets=self.pipeline.packets,
            dropped=loss.ring_full,
            warnings=(*self._probes.warnings(), *ended_words(self.pipeline.measuring.ended)),
            undecodable=sum(self._source.decoder.counters.undecodable().values()),
            tap_names=tuple(self.pipeline.registry.tap_names),
        )

    def analysis(self) -> Analysis:
        """The packets of the probes as the result of an analysis."""
        if not self.pipeline.packets:
            raise UnreadableInput(f"{self._name}: no RoCE packet yet")
        self._source.state_losses()
        return self.pipeline.conclude(complete=False)

    def close(self) -> None:
        """Does nothing: the session closes the probes."""


def _renumbered(owners: dict[int, Owner], kept: Kept) -> dict[int, Owner]:
    return {
        int(kept.number[flow]): owner for flow, owner in owners.items() if kept.number[flow] >= 0
    }

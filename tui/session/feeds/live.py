"""Live probes as the packets of a session."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ....analyzer.analysis.conclude import conclude
from ....analyzer.analysis.fair_lock import FairLock
from ....analyzer.analysis.heap import give_back_freed
from ....analyzer.analysis.owners import merged
from ....analyzer.analysis.prefetch import Prefetched
from ....analyzer.decode.headers.cm import CmMessage
from ....analyzer.errors import UnreadableInput
from ....analyzer.filtering.compiler import Filter
from ....analyzer.logs.following import FollowedLogs
from ....analyzer.logs.join import Join, Joined
from ....analyzer.measures.ending import IDLE_AFTER_NS, Turns, end_idle
from ....analyzer.measures.measuring import Measuring
from ....analyzer.measures.messages import MessageTimes
from ....analyzer.measures.series import DEFAULT_WINDOW_NS
from ....analyzer.results.analysis import Analysis
from ....analyzer.results.flow import Owner
from ....analyzer.statistics.per_flow import Kept
from ....analyzer.wire.packets import PacketTable
from ....analyzer.words import printable
from ....probes.hooks.attach import gone_text
from ....probes.live_analysis import capture_summary, warm_up
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
        keep: str | None,
        idle_ns: int = IDLE_AFTER_NS,
        logs: FollowedLogs | None = None,
    ) -> None:
        """idle_ns: flows without a packet for this time are ended, see `measures.ending`.

        logs: of the job whose queue pairs are watched.
        """
        self.lock = FairLock()
        self.registry = probes.registry
        warm_up(DEFAULT_WINDOW_NS)
        self.measuring = Measuring(DEFAULT_WINDOW_NS, many_taps=True)
        self.measuring.most_flows = MOST_FLOWS
        self.measuring.address_beyond = self.registry.endpoints.beyond
        self._idle_ns, self._turns = idle_ns, Turns()
        measure_for_screens(self.measuring)
        self.measuring.tracker.expect(EXPECTED_FLOWS)
        self.owners: dict[int, Owner] = {}
        """By flow index: the process that owns its queue pair, of this host or from logs."""
        self._probed: dict[int, Owner] = {}
        self._logged: dict[int, Owner] = {}
        self._logs, self._logs_due = logs, 0.0
        if logs is not None:
            self.measuring.message_times = MessageTimes(MOST_ENDS, newest=True)
        self._keep = Filter(keep) if keep else None
        self.measuring.filtered = bool(keep or probes.source.options.filter)
        self._packets = 0
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
        for table, cm in self._ahead:
            lower_own()  # only the thread that empties the rings, started by now, has priority
            if len(table) or cm:
                with self.lock:
                    self.measuring.update(table, cm)
                    self._packets += len(table)
                    if len(table):
                        self._end_idle()
            with self.lock:
                found = self._probes.owners(self.measuring.tracker)
            if found is not None:
                self._probed = found
                self.owners = merged(found, self._logged)
            if self._logs is not None:
                self._join_logs(self._logs)

    def _join_logs(self, logs: FollowedLogs) -> None:
        """Owners with what the logs show by now; at most a 20th of the time."""
        began = time.monotonic()
        if began < self._logs_due:
            return
        logs.update()
        with self.lock:
            joined = Join(logs.job, self.measuring.tracker, self.registry.endpoints).result()
            self._logged = joined.owners
            self.owners = merged(self._probed, self._logged)
        took = time.monotonic() - began
        self._logs_due = time.monotonic() + max(LOGS_EVERY_S, SHARE_OF_TIME * took)

    def _end_idle(self) -> None:
        measuring = self.measuring
        if not self._turns.is_due(len(measuring.tracker), time.monotonic()):
            return
        began = time.thread_time()
        readers, taps = measuring.renumbered or [], self.registry.tap_names
        known = len(readers)
        if end_idle(measuring, self._idle_ns, taps):
            give_back_freed()
            for kept in (measuring.renumbered or [])[known:]:
                self.owners = _renumbered(self.owners, kept)
                self._probed = _renumbered(self._probed, kept)
                self._logged = _renumbered(self._logged, kept)
        spent_s = time.thread_time() - began
        self._turns.taken(len(measuring.tracker), spent_s, time.monotonic())

    def _tables(self) -> Iterator[tuple[PacketTable, list[CmMessage]]]:
        """Packet tables, from a thread that only empties the rings and decodes."""
        for table in self._source.tables(POLL_S):
            if self._keep is not None and len(table):
                table = table.take(self._keep.mask(table, self.registry))
            yield table, self._source.decoder.take_cm_messages()

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
            packets=self._packets,
            dropped=loss.ring_full,
            warnings=(*self._probes.warnings(), *ended_words(self.measuring.ended)),
            undecodable=sum(self._source.decoder.counters.undecodable().values()),
            tap_names=tuple(self.registry.tap_names),
        )

    def analysis(self) -> Analysis:
        """The packets of the probes as the result of an analysis."""
        if not self._packets:
            raise UnreadableInput(f"{self._name}: no RoCE packet yet")
        self._source.state_losses()
        joined = Joined()
        if self._logs is not None:
            joined = Join(self._logs.job, self.measuring.tracker, self.registry.endpoints).result()
            joined.notes += self._logs.notes()
        return conclude(
            self.measuring,
            self.registry,
            [capture_summary(self._source, self.measuring)],
            path_by="entropy",
            complete=False,
            now_ns=time.time_ns(),
            filtered=self.measuring.filtered,
            owners=merged(self._probed, joined.owners),
            job_events=joined.events,
            job_notes=joined.notes,
        )

    def close(self) -> None:
        """Does nothing: the session closes the probes."""


def _renumbered(owners: dict[int, Owner], kept: Kept) -> dict[int, Owner]:
    return {
        int(kept.number[flow]): owner for flow, owner in owners.items() if kept.number[flow] >= 0
    }

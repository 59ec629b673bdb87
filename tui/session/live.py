"""Sessions on interfaces of this host, with or without a recording.

A recorded session reads the pcapng file that the probes write. Then the buffer between probes and
screens is the file, not memory: slow screens lose no packet, and packets, time windows and replays
work as on a capture.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...analyzer.decode.control import CmMessage
from ...analyzer.errors import RocescopeError, UnreadableInput
from ...analyzer.jobs.job import FollowedLogs
from ...analyzer.measures.ending import IDLE_AFTER_NS
from ...analyzer.measures.messages import MessageTimes
from ...analyzer.measures.series import DEFAULT_WINDOW_NS
from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.pipeline.owners import merge_owners
from ...analyzer.pipeline.threads import Prefetched, give_back_freed, give_back_large_arrays
from ...analyzer.results.analysis import Analysis
from ...analyzer.results.flow import Owner
from ...analyzer.statistics.per_flow import Kept
from ...analyzer.wire.packets import PacketTable
from ...analyzer.words import printable
from ...probes.capture_files import CaptureFiles
from ...probes.hooks.attach import gone_text
from ...probes.live import LiveOptions, LiveProbes, LiveSource
from ...probes.live_analysis import LivePipeline, warm_up
from ...probes.owners.watch import OwnerComments, watch_owners
from ...probes.rights import allow, become_unprivileged, lower_own, raise_own
from .feeds import CaptureFeed, Feed, ended_words, measure_for_screens
from .session import Session
from .snapshot import SourceState

EXPECTED_FLOWS = 16_384
"""Flows with preallocated room, so that a burst of new flows costs no reallocation."""
MOST_FLOWS = 50_000
"""Flows at once: packets of further ones are counted and not analysed. With fewer, arrays of a
session stay below 1 GB."""
MOST_ENDS = 1 << 18
"""First and last packets of messages kept for the arrival order of ranks."""
LOGS_EVERY_S, SHARE_OF_TIME = 2.0, 20
"""Minimum interval between joins with logs, in seconds and in multiples of a join's duration."""
AHEAD_PACKETS = 1 << 20
"""Packets that may wait to be measured (100 MB), in addition to the rings. So no packet is lost
while arrays grow for thousands of flows, columns are copied for the screens, or other processes
use the processor."""
_LOOK_S = 0.05
"""Interval at which a recording is written, and its end looked for."""


def open_live(
    interfaces: Sequence[str],
    options: LiveOptions | None = None,
    clock: Callable[[], float] = time.monotonic,
    attach_now: bool = False,
    idle_ns: int = IDLE_AFTER_NS,
    job_logs: tuple[str, ...] = (),
) -> Session:
    """A session on interfaces of this host; its start attaches the probes.

    idle_ns: flows without a packet for this time are ended, see `measures.ending`. job_logs:
    patterns of the logs of a job, which may appear and grow later.

    attach_now: attach the probes here, then give up the privileges of this thread and of the
    threads it starts later: removed probes cannot be attached again. This thread draws the
    screens, so its priority is raised first.
    """
    give_back_large_arrays()
    chosen = options or LiveOptions()
    probes = LiveProbes(interfaces, chosen)
    logs = FollowedLogs(job_logs) if job_logs else None

    def make(keep: str | None) -> Feed:
        nonlocal probes
        if probes.ended and not attach_now:
            probes = LiveProbes(interfaces, chosen)
        feed = LiveFeed(probes, AnalyzeOptions(filter=keep, idle_ns=idle_ns), logs)
        session.on_close(probes.end)
        return feed

    session = Session(make, ",".join(interfaces), "live", (), clock)
    session.options = AnalyzeOptions(udp_ports=chosen.udp_ports, job_logs=job_logs)
    session.on_close(probes.end)
    if attach_now:
        warm_up(DEFAULT_WINDOW_NS)
        raise_own()
        probes.begin(drop=True)
        session.start()  # rings fill from now on: a thread empties them while screens are made
    return session


def open_recorded(
    interfaces: Sequence[str],
    options: LiveOptions | None,
    path: Path,
    clock: Callable[[], float] = time.monotonic,
    attach_now: bool = False,
    idle_ns: int = IDLE_AFTER_NS,
    job_logs: tuple[str, ...] = (),
) -> Session:
    """A session on interfaces of this host that is recorded in a pcapng file.

    attach_now, idle_ns, job_logs: as for `open_live`.
    """
    chosen = options or LiveOptions()
    recording = Recording(interfaces, chosen, path)
    reading = AnalyzeOptions(udp_ports=chosen.udp_ports, idle_ns=idle_ns, job_logs=job_logs)
    if attach_now:
        warm_up(DEFAULT_WINDOW_NS)
        raise_own()
        recording.begin(drop=True)

    def make(keep: str | None) -> Feed:
        return RecordedFeed(recording, replace(reading, filter=keep))

    session = Session(make, ",".join(interfaces), "live", (str(path),), clock)
    session.options = reading
    session.on_close(recording.stop)
    return session


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
                self.owners = merge_owners(found, self._logged)
            if pipeline.logs is not None:
                self._join_logs(pipeline.logs)

    def _join_logs(self, logs: FollowedLogs) -> None:
        """Owners with what the logs show by now; at most a 20th of the time."""
        began = time.monotonic()
        if began < self._logs_due:
            return
        logs.update()
        with self.pipeline.lock:
            self._logged = self.pipeline.join_logs().owners
            self.owners = merge_owners(self.pipeline.probed, self._logged)
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
        for table in self._source.tables():
            yield self.pipeline.filter_packets(table), self._source.decoder.take_cm_messages()

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


class Recording:
    """Probes and the file that they write, in a thread; outlives the feeds that read the file."""

    def __init__(self, interfaces: Sequence[str], options: LiveOptions, path: Path) -> None:
        self.path = path
        self.error = ""
        self._source = LiveSource(interfaces, options, to_blocks=True)
        self._owners: OwnerComments | None = None
        self._stack = ExitStack()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether packets are still written."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Whether the file is complete."""
        return self._thread is not None and not self._thread.is_alive()

    def begin(self, drop: bool = False) -> None:
        """Attach the probes and start to write; later calls do nothing. Errors as `LiveSource`.

        drop: become an unprivileged user once the file is open.
        """
        if self._thread is not None:
            return
        try:
            self._source.check()
            # Before the probes: it takes a second, and the rings would overflow.
            watch = watch_owners(self._source.interfaces, self._stack, [])
            allow()
            self._stack.enter_context(self._source)
        except BaseException:
            self._stack.close()
            raise
        self._owners = OwnerComments(watch) if watch is not None else None
        known = self._owners.new() if self._owners is not None else []
        files = CaptureFiles(
            self.path, self._source.head(), self._source.loss_by_tap, comments=known
        )
        if drop:  # before a thread starts: it would keep privileges
            become_unprivileged(self._source.privileges())
        self._thread = threading.Thread(
            target=self._write, args=(files,), name="rocescope-recording", daemon=True
        )
        self._thread.start()

    def _write(self, files: CaptureFiles) -> None:
        raise_own()
        try:
            for blocks in self._source.blocks(_LOOK_S):
                files.write(blocks)
                self._tell_owners(files)
        except (RocescopeError, OSError) as error:
            self.error = str(error)
        finally:
            self._source.finish()
            self._tell_owners(files, at_once=True)
            files.close()

    def _tell_owners(self, files: CaptureFiles, at_once: bool = False) -> None:
        if self._owners is not None:
            files.comment(self._owners.new(at_once))

    def state(self, seen: SourceState) -> SourceState:
        """The state of the probes, in addition to the counts of the file."""
        loss = self._source.loss()
        gone = [interface.label for interface in self._source.gone()]
        ended = self._owners.ended if self._owners is not None else []
        return replace(
            seen,
            name=",".join(interface.label for interface in self._source.interfaces),
            kind="live",
            error=self.error or gone_text(gone),
            dropped=loss.ring_full,
            warnings=(*seen.warnings, *self._source.others.lines(), *ended),
            recording=self.path.name if self.running else "",
        )

    def stop(self) -> None:
        """Detach the probes and complete the file."""
        self._source.stop()
        if self._thread is not None:
            self._thread.join()
        self._stack.close()


class RecordedFeed(CaptureFeed):
    """Reads the file of a recording, to the end of the recording."""

    kind = "live"

    def __init__(self, recording: Recording, options: AnalyzeOptions) -> None:
        recording.begin()
        follow = not recording.ended
        super().__init__([str(recording.path)], replace(options, follow=follow))
        self._recording, self._follows = recording, follow

    def read(self) -> None:
        """Read every packet that was or will be written, until `stop`."""
        if self._follows:
            threading.Thread(target=self._end, name="rocescope-end", daemon=True).start()
        super().read()

    def _end(self) -> None:
        while self._recording.running:
            time.sleep(_LOOK_S)
        self.end_following()

    def state(self) -> SourceState:
        """Counts of the file, and losses of the probes."""
        return self._recording.state(super().state())

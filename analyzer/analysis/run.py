"""A running analysis of captures: reads, decodes, tracks and measures."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ...kernels.kernel import compiling
from ..capture.concat import ConcatenatedCapture, concatenated
from ..capture.ring import check_twice, ring
from ..capture.source import Capture, open_capture
from ..decode.decoder import Decoder
from ..decode.headers.cm import CmMessage
from ..decode.merge import MergeCounts, merge_tables
from ..decode.mirrors.restore import Mirrors
from ..decode.sources import Source
from ..errors import UsageError, too_many_flows
from ..filtering.ranks import FlowName, Ranks
from ..logs.files import named
from ..logs.following import FollowedLogs
from ..logs.job import Job
from ..logs.join import Join, Joined
from ..measures.ending import end_idle, make_room
from ..measures.hops.measure import Prepared
from ..measures.measuring import Measuring
from ..measures.messages import MessageTimes
from ..results.analysis import Analysis
from ..results.flow import Flow, Owner
from ..summary.gaps import gaps_of
from ..summary.mirror_checks import checks_of
from ..summary.sampling import sampled_taps
from ..summary.summarize import Summary
from ..summary.trust import capture_summary, check_read
from ..track.batch import TrackedBatch
from ..wire.endpoints import MOST_ADDRESSES, Endpoints
from ..wire.packets import PacketTable
from ..wire.registry import Registry
from ..wire.segments import SegmentLists
from ..wire.taps import Taps
from .ahead import compiled_ahead
from .conclude import conclude
from .fair_lock import FairLock
from .followed import Followed
from .heap import give_back_freed, give_back_large_arrays
from .options import AnalyzeOptions
from .owners import merged, owners_in
from .prefetch import Prefetched
from .progress import Progress
from .shared import Shared

if TYPE_CHECKING:
    from ...kernels.kernel import Ints
    from ..filtering.compiler import Filter

EndedFlows = Callable[[Iterator[Flow]], None]
"""Takes the records of flows that leave memory. Their ids, and those of their connections, begin at
`AnalyzeOptions.max_flows`: the flows of the result have smaller ones."""
Decoded = tuple[PacketTable, list[CmMessage]]
BATCH_FRAMES = 1 << 15
"""Large enough for a small share of Python time; larger batches only touch more fresh memory."""

_PROGRESS_EVERY_S = 0.1
_COMPILING_AFTER_S = 1.0
_STAYING = 4
"""Of the most flows in memory one part in N stays when others have to leave."""


@contextmanager
def open_run(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
    job: Job | None = None,
) -> Iterator[Run]:
    """Open captures for an analysis that other threads observe; errors as `analyze`.

    job: logs of the job that are read already, in place of those of `options`.
    """
    packet_filter = None
    if options.filter:
        from ..filtering.compiler import (
            Filter,  # the grammar's library takes a while to load
        )

        packet_filter = Filter(options.filter)
    if options.follow and len(paths) > 1:
        raise UsageError("--follow takes one file: analyse the others without --follow")
    most = None
    if options.idle_ns is not None:
        most = MOST_ADDRESSES
        give_back_large_arrays()
    registry = Registry(Endpoints(most=most), segments=SegmentLists(options.usid))
    with open_sources(paths, options, registry) as sources, compiled_ahead():
        yield Run(paths, sources, registry, packet_filter, options, progress, job)


@contextmanager
def open_sources(
    paths: Sequence[str], options: AnalyzeOptions, registry: Registry
) -> Iterator[list[Source]]:
    """The captures, each with a decoder for these options; errors as `analyze`."""
    with ExitStack() as stack:
        sources = []
        for capture in _open(paths, registry.taps, options):
            stack.enter_context(capture)
            decoder = Decoder(
                registry,
                udp_ports=options.udp_ports,
                trimmed_dscps=options.trimmed_dscps,
                flow_label=options.flow_label,
                check_icrc=options.icrc,
                link_bits_per_second=options.link_rate_bits_per_second,
                mirrors=Mirrors(options.mirror, registry.taps) if options.mirror else None,
            )
            sources.append(Source(capture, decoder))
        yield sources


def groups_of(paths: Sequence[str], options: AnalyzeOptions) -> list[list[str]]:
    """The captures that files are: of several files each with --concat and of rings."""
    if options.concat:
        return [list(paths)]
    if options.rings is None:
        return [[path] for path in paths]
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(options.tap_names[path], []).append(path)
    return list(found.values())


def _open(
    paths: Sequence[str], taps: Taps, options: AnalyzeOptions
) -> Iterator[Capture | ConcatenatedCapture]:
    if options.concat:
        yield concatenated(paths, taps, batch_frames=BATCH_FRAMES)
        return
    if options.rings is not None:
        check_twice(paths)
        for group in groups_of(paths, options):
            name = options.tap_names[group[0]]
            yield ring(group, name, taps, batch_frames=BATCH_FRAMES)
        return
    for path in paths:
        yield open_capture(
            path,
            taps,
            batch_frames=BATCH_FRAMES,
            follow=options.follow,
            tap_name=options.tap_names.get(path),
        )


def ranks_of(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
    job: Job | None = None,
    *,
    needed_by: str | None = None,
    begun: Callable[[Run], None] = lambda run: None,
) -> tuple[Ranks, list[str]]:
    """Read captures once: the ranks of their flows, and what the logs of the job leave open.

    job: logs that are read already. needed_by: the field of a filter: UsageError if no rank is
    known. begun: called with the run, which may be stopped.
    """
    whole = replace(options, filter=None, conformance=None, icrc=False, ranks=None)
    with open_run(paths, whole, progress, job) as run:
        if needed_by is not None:
            run.check_two_passes(needed_by)
        begun(run)
        run.read()
        ranks, notes = run.learned()
        if run.ended_by is not None:
            notes.append(f"ranks: {run.ended_by}")
    if needed_by is not None and not ranks and not run.interrupted:
        why = notes[0] if notes else "--nccl-log 'logs/*' names the logs of the job"
        raise UsageError(f"filter: {needed_by}: no rank is known in this capture; {why}")
    return ranks, notes


class Run:
    """One running analysis.

    `read` runs in one thread. Other threads may read `measuring`, `registry` and `sources` while
    they hold `lock`, and may call `stop`.
    """

    def __init__(
        self,
        paths: Sequence[str],
        sources: list[Source],
        registry: Registry,
        packet_filter: Filter | None,
        options: AnalyzeOptions,
        progress: Callable[[Progress], None] | None,
        job: Job | None = None,
    ) -> None:
        self._paths = paths
        self.sources = sources
        self.registry = registry
        self.lock = FairLock()
        self._filter = packet_filter
        self._options = options
        self._tell = progress
        self._merge = MergeCounts()
        self._logs: FollowedLogs | None = None
        if job is None and options.job_logs and options.follow:
            self._logs = FollowedLogs(options.job_logs)
            job = self._logs.job
        elif job is None and options.job_logs:
            job = Job(named(options.job_logs))
        self._job = job
        self.ranks = options.ranks
        """Of the flows of the whole capture, if the filter needs them; after `read` began."""
        self._first_pass: Run | None = None
        self._notes: list[str] = []
        """Of the first pass."""
        many_taps = len(registry.taps) > 1 or any(s.capture.format != "pcap" for s in sources)
        conformance = options.conformance
        if conformance is not None:
            conformance = replace(conformance, interface_of=registry.taps.interface)
        if conformance is not None and conformance.same_port:
            conformance = replace(conformance, address_of=registry.endpoints.text)
        self.measuring = Measuring(options.window_ns, many_taps, conformance)
        if job is not None:
            self.measuring.message_times = MessageTimes(newest=options.follow)
        self.measuring.filtered = packet_filter is not None
        self.measuring.address_beyond = registry.endpoints.beyond
        self.measuring.tracker.see_taps(len(registry.taps))  # also before each has a packet
        self._began = time.monotonic()
        self._reader = threading.get_ident()
        """The thread of `read`."""
        self._told = 0.0
        self.packets = 0
        self.ended_by: str | None = None
        """Why `read` ended before the end of the captures, unless somebody stopped it."""
        self._batches = 0
        self._alone = False
        self._take_ended: EndedFlows | None = None
        self._followed: Followed | None = None
        """While packets are followed in another thread than they are tracked."""
        self._interrupted = threading.Event()
        self._finish: Callable[[], None] = lambda: None
        """Ends the reading thread, once there is one."""

    def read(self, alone: bool = False, ended: EndedFlows | None = None) -> bool:
        """Read, decode and track all packets; False when interrupted, or ended by a limit.

        alone: no other thread reads `measuring` meanwhile, so that packets of several taps are
        tracked in one thread and followed from tap to tap in another, and flows may get other
        numbers: those that are idle for longest leave when there are more than `max_flows`.
        ended: called with the flows that leave memory, in the thread that tracks.
        """
        self._alone, self._take_ended = alone, ended
        self._reader = threading.get_ident()
        if self.ranks is None and self._filter is not None and self._filter.of_job is not None:
            self._learn_ranks(self._filter.of_job)
        with _interrupts(self._interrupted, self._stop_reading):
            if alone and self.measuring.many_taps and self._options.idle_ns is None:
                self._read_and_follow()
            else:
                decoded = Prefetched(self._tables, self._report)
                self._ends_by(decoded.finish)
                for _ in self._tracked(decoded):
                    self._report()
        if self.measuring.departed is not None:
            self._make_room()  # the listed flows need more memory for their results
        self._report(last=True)
        return not self._interrupted.is_set() and self.ended_by is None

    def _tracked(self, decoded: Iterable[Decoded]) -> Iterator[TrackedBatch | None]:
        """Take in all packets; yields each batch as tracked, None for an empty one."""
        for table, cm in decoded:
            with self.lock:
                self.measuring.date_taps(self.registry.taps)
                batch = self.measuring.update(table, cm)
                self.packets += len(table)
                self._end_idle(table)
            self._batches += 1
            yield batch
            limit = self._options.max_flows
            if len(self.measuring.tracker) > limit:
                self._make_room()
            if len(self.measuring.tracker) > limit:
                self.ended_by = too_many_flows(limit, self.packets)
                self._stop_reading()
                return

    def _read_and_follow(self) -> None:
        """Share reading and tracking with other threads; following them stays in this one."""
        measuring = self.measuring
        measuring.follows = False
        self._followed = followed = Followed()

        def tracked(decoded: Iterator[Decoded]) -> Iterator[Prepared | None]:
            for batch in self._tracked(decoded):
                if batch is None:
                    yield None
                else:
                    followed.due()
                    yield measuring.hops.prepared(batch)

        shared = Shared(self._tables, tracked, self._report)
        self._ends_by(shared.finish)
        try:
            for batch in shared:
                if batch is not None:
                    measuring.hops.follow(batch)
                    followed.done()
                self._report()
        finally:
            followed.end()
            self._followed = None
        measuring.follows = True

    def _learn_ranks(self, field: str) -> None:
        """Ranks for the filter: a packet has those of its flow."""

        self.check_two_passes(field)

        def begun(first: Run) -> None:
            self._first_pass = first
            if self._interrupted.is_set():
                first.stop()

        self.ranks, self._notes = ranks_of(
            self._paths, self._options, self._tell, self._job, needed_by=field, begun=begun
        )
        if self._first_pass is not None and self._first_pass.interrupted:
            self._interrupted.set()
            self._stop_reading()
        self._first_pass = None

    def check_two_passes(self, field: str) -> None:
        """UsageError if a filter with a field of the job is not possible here."""
        if self._options.follow or any(s.capture.total_bytes is None for s in self.sources):
            raise UsageError(
                f"filter: {field} needs two passes over a capture: it cannot be combined with"
                " --follow, standard input or pipes"
            )
        if self._job is None and all(s.capture.format == "pcap" for s in self.sources):
            raise UsageError(f"filter: {field} needs the logs of the job: --nccl-log 'logs/*'")

    def learned(self) -> tuple[Ranks, list[str]]:
        """The ranks of all flows, and what the logs of the job leave open."""
        joined = self._joined()
        texts, flows = self.registry.endpoints.texts(), self.measuring.tracker.flows
        owners = merged(self._probed(), joined.owners)
        named = {_name(flows[number], texts): owner for number, owner in owners.items()}
        return Ranks(named), joined.notes

    def _end_idle(self, table: PacketTable) -> None:
        idle_ns = self._options.idle_ns
        if idle_ns is not None and len(table) and not sampled_taps(self.registry.taps):
            gaps = gaps_of(self.registry.taps)
            names = self.registry.tap_names
            end_idle(self.measuring, idle_ns, names, gaps=gaps, leaving=self._leaving())

    def _make_room(self) -> None:
        """End the flows that are idle for longest, where that is exact and possible."""
        if not self._alone or self._options.idle_ns is not None or self._job is not None:
            return
        if sampled_taps(self.registry.taps):
            return
        if self._followed is not None and not self._followed.wait():
            return
        if self.measuring.departed is None:
            give_back_large_arrays()
        most = self._options.max_flows // _STAYING
        gaps = gaps_of(self.registry.taps)
        make_room(self.measuring, most, self.registry.tap_names, gaps=gaps, leaving=self._leaving())
        give_back_freed()

    def _leaving(self) -> Callable[[Ints], None] | None:
        """Hands over the records of flows that are about to leave memory."""
        if (take := self._take_ended) is None:
            return None

        def leaving(gone: Ints) -> None:
            take(self._records(gone))

        return leaving

    def _records(self, gone: Ints) -> Iterator[Flow]:
        options, left = self._options, self.measuring.ended
        summary = Summary(
            self.measuring,
            self.registry,
            options.path_by,
            self.owners(),
            plane_by=options.plane_by,
            fabric=options.fabric,
        )
        connections: dict[int | None, int | None] = {None: None}
        for place, number in enumerate(gone.tolist()):
            flow = summary.flow(number)
            after = options.max_flows + left.connections + len(connections) - 1
            connection = connections.setdefault(flow.connection, after)
            id = options.max_flows + left.flows + place
            yield structs.replace(flow, id=id, connection=connection)

    def result(self, complete: bool) -> Analysis:
        """The results so far."""
        series = self.measuring.totals.series(self.registry.tap_names)
        captures = [
            capture_summary(source, self.registry.taps, series, self._options.icrc)
            for source in self.sources
        ]
        check_read(captures, complete)
        mirrors = [source.decoder.mirrors for source in self.sources]
        asked = self._options.mirror
        joined = self._joined()
        return conclude(
            self.measuring,
            self.registry,
            captures,
            path_by=self._options.path_by,
            complete=complete,
            ended_by=self.ended_by,
            filtered=self.measuring.filtered,
            rows_kept=self._take_ended is not None,
            merge=self._merge,
            owners=self._with_first_pass(merged(self._probed(), joined.owners)),
            job_events=joined.events,
            job_notes=joined.notes if self.ranks is None else self._notes,
            plane_by=self._options.plane_by,
            outer_labels=any(source.decoder.flow_labels.outer for source in self.sources),
            mirror=checks_of(
                [mirror for mirror in mirrors if mirror is not None],
                self.registry.endpoints.texts(),
                None if asked is None else asked.switch_counters,
            ),
            flow_order=self._options.flow_order,
            fabric=self._options.fabric,
            dscp_priority=self._options.dscp_priority,
        )

    def owners(self) -> dict[int, Owner]:
        """Processes by flow index, as comments of the captures and logs of the job name them now,
        for a running analysis."""
        return self._with_first_pass(merged(self._probed(), self._joined(in_passing=True).owners))

    def _with_first_pass(self, owners: dict[int, Owner]) -> dict[int, Owner]:
        """Owners as the whole capture tells them, where a filter hides the other direction."""
        if self.ranks is None:
            return owners
        texts = self.registry.endpoints.texts()
        for number, flow in enumerate(self.measuring.tracker.flows):
            known = self.ranks.owners.get(_name(flow, texts))
            if known is not None:
                owners[number] = known
        return owners

    def _probed(self) -> dict[int, Owner]:
        return owners_in(
            (line for source in self.sources for line in source.capture.owner_comments),
            self.measuring.tracker,
            self.registry.endpoints,
        )

    def _joined(self, in_passing: bool = False) -> Joined:
        """What the logs of the job say about the flows so far."""
        if self._job is None:
            return Joined()
        if self._logs is not None:
            self._logs.update()
        endpoints = self.registry.endpoints
        measuring = self.measuring
        cm = None if in_passing else measuring.cm
        joined = Join(self._job, measuring.tracker, endpoints, cm).result()
        if self._logs is not None:
            joined.notes += self._logs.notes()
        return joined

    def _tables(self) -> Iterator[Decoded]:
        tables = [source.tables(self._keep) for source in self.sources]
        if len(tables) == 1:
            for table in tables[0]:
                yield table, self._cm_messages()
            return
        due: list[CmMessage] = []
        read: list[CmMessage] = []
        """Since the rows that are merged but not passed on: they have nothing to do with these."""

        def apart() -> bool:
            due.extend(read)
            read[:] = self._cm_messages()
            return bool(read)

        for table in merge_tables(tables, self._merge, BATCH_FRAMES, apart):
            yield table, due.copy()
            due.clear()

    def _cm_messages(self) -> list[CmMessage]:
        return [m for source in self.sources for m in source.decoder.take_cm_messages()]

    def _keep(self, table: PacketTable) -> PacketTable:
        if self._filter is None:
            return table
        return table.take(self._filter.mask(table, self.registry, self.ranks))

    @property
    def interrupted(self) -> bool:
        """Whether `read` ended or will end before the end of the captures."""
        return self._interrupted.is_set()

    def stop(self) -> None:
        """End `read` after the batches already decoded; from any thread."""
        self._interrupted.set()
        if (first := self._first_pass) is not None:
            first.stop()
        self._stop_reading()

    def end_following(self) -> None:
        """End `read` at the present end of a followed file; from any thread."""
        for source in self.sources:
            source.capture.stop()

    def _ends_by(self, finish: Callable[[], None]) -> None:
        """How the threads that read are ended, which have not begun yet."""
        self._finish = finish
        if self._interrupted.is_set():
            finish()

    def _stop_reading(self) -> None:
        for source in self.sources:
            source.stopped = True
            source.capture.stop()
        self._finish()

    def _report(self, last: bool = False) -> None:
        now = time.monotonic()
        if threading.get_ident() != self._reader:
            return  # `_tell` draws
        if self._tell is None or (now - self._told < _PROGRESS_EVERY_S and not last):
            return
        self._told = now
        captures = [source.capture for source in self.sources]
        totals = [capture.total_bytes for capture in captures]
        read = sum(capture.bytes_read for capture in captures)
        current = next((c for c in captures if c.bytes_read < (c.total_bytes or 0)), captures[-1])
        self._tell(
            Progress(
                path=current.name,
                bytes_done=read,
                bytes_total=None
                if self._options.follow or None in totals
                else sum(t for t in totals if t is not None),
                frames=sum(capture.frames for capture in captures),
                packets=self.packets,
                compiling=not last
                and self._batches == 0
                and bool(compiling)
                and now - self._began > _COMPILING_AFTER_S,
            )
        )


def _name(flow: Any, texts: Sequence[str]) -> FlowName:
    return texts[flow["src"]], texts[flow["dst"]], int(flow["dest_qp"])


@contextmanager
def _interrupts(flag: threading.Event, stop: Callable[[], None]) -> Iterator[None]:
    """Turn the first SIGINT into a flag: no batch is partly counted. The second one raises."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()
        stop()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""Capture files through the pipeline: opened, decoded ahead, tracked and followed in threads."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from ...kernels.kernel import compiling
from ..capture.rings import ConcatenatedCapture, check_twice, concatenated, ring
from ..capture.source import Capture, open_capture
from ..decode.control import CmMessage
from ..decode.decoder import Decoder, Source
from ..decode.merge import merge_tables
from ..decode.mirrors import Mirrors
from ..errors import UsageError, too_many_flows
from ..filtering.compiler import Ranks
from ..jobs.job import Job
from ..jobs.join import Joined
from ..measures.ending import make_room
from ..measures.hops.measure import Prepared
from ..results.analysis import Analysis
from ..results.captures import CaptureSummary, MirrorChecks
from ..results.flow import Owner
from ..summary.trust import capture_summary, check_read, checks_of, gaps_of, sampled_taps
from ..track.batch import TrackedBatch
from ..wire.packets import PacketTable
from ..wire.registry import MOST_ADDRESSES, Endpoints, Registry, SegmentLists
from ..wire.taps import Taps
from .options import AnalyzeOptions, Progress
from .owners import read_owners
from .pipeline import EndedFlows, Pipeline
from .threads import Followed, Prefetched, Shared, give_back_freed, give_back_large_arrays

if TYPE_CHECKING:
    from ..filtering.compiler import Filter

Decoded = tuple[PacketTable, list[CmMessage]]
BATCH_FRAMES = 1 << 15
"""Large enough for a small share of Python time; larger batches only touch more fresh memory."""

_PROGRESS_EVERY_S = 0.1
_COMPILING_AFTER_S = 1.0
_STAYING = 4
"""Of the most flows in memory one part in N stays when others have to leave."""


def analyze(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
    ended: EndedFlows | None = None,
) -> Analysis:
    """Analyse capture files, "-" for standard input.

    Several files are several taps unless `options.concat`. SIGINT ends reading; the result then has
    `complete=False`, except with `follow`, which only SIGINT ends. More flows than
    `options.max_flows` end reading too, with `complete=False` and a warning. Raises UnreadableInput
    when nothing could be read, UsageError for invalid options.

    ended: takes the records of flows that leave memory; errors of it end the analysis.
    """
    with open_captures(paths, options, progress) as pipeline:
        complete = pipeline.read(alone=True, ended=ended)
        return pipeline.conclude(complete or (options.follow and pipeline.ended_by is None))


@contextmanager
def open_captures(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
    job: Job | None = None,
) -> Iterator[CapturePipeline]:
    """Open captures for an analysis that other threads observe; errors as `analyze`.

    job: logs of the job that are read already, in place of those of `options`.
    """
    packet_filter = None
    if options.filter:
        from ..filtering.compiler import Filter

        packet_filter = Filter(options.filter)
    if options.follow and len(paths) > 1:
        raise UsageError("--follow takes one file: analyse the others without --follow")
    most = None
    if options.idle_ns is not None:
        most = MOST_ADDRESSES
        give_back_large_arrays()
    registry = Registry(
        Endpoints(most=most), segments=SegmentLists(options.usid), ethers=options.ethers
    )
    with open_sources(paths, options, registry) as sources:
        yield CapturePipeline(paths, sources, registry, packet_filter, options, progress, job)


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


def group_files(paths: Sequence[str], options: AnalyzeOptions) -> list[list[str]]:
    """The captures that files are: of several files each with --concat and of rings."""
    if options.concat:
        return [list(paths)]
    if options.rings is None:
        return [[path] for path in paths]
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(options.tap_names[path], []).append(path)
    return list(groups.values())


def _open(
    paths: Sequence[str], taps: Taps, options: AnalyzeOptions
) -> Iterator[Capture | ConcatenatedCapture]:
    if options.concat:
        yield concatenated(paths, taps, batch_frames=BATCH_FRAMES)
        return
    if options.rings is not None:
        check_twice(paths)
        for group in group_files(paths, options):
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


def find_ranks(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
    job: Job | None = None,
    *,
    needed_by: str | None = None,
    begun: Callable[[CapturePipeline], None] = lambda pipeline: None,
) -> tuple[Ranks, list[str]]:
    """Read captures once: the ranks of their flows, and what the logs of the job leave open.

    job: logs that are read already. needed_by: the field of a filter: UsageError if no rank is
    known. begun: called with the pipeline, which may be stopped.
    """
    all_packets = replace(options, filter=None, conformance=None, icrc=False, ranks=None)
    with open_captures(paths, all_packets, progress, job) as pipeline:
        if needed_by is not None:
            pipeline.check_two_passes(needed_by)
        begun(pipeline)
        pipeline.read()
        ranks, notes = pipeline.learn_ranks()
        if pipeline.ended_by is not None:
            notes.append(f"ranks: {pipeline.ended_by}")
    if needed_by is not None and not ranks and not pipeline.interrupted:
        why = notes[0] if notes else "--nccl-log 'logs/*' names the logs of the job"
        raise UsageError(f"filter: {needed_by}: no rank is known in this capture; {why}")
    return ranks, notes


class CapturePipeline(Pipeline):
    """The pipeline of capture files.

    `read` runs in one thread; other threads may call `stop`.
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
        many_taps = len(registry.taps) > 1 or any(s.capture.format != "pcap" for s in sources)
        super().__init__(
            options, registry, many_taps=many_taps, packet_filter=packet_filter, job=job
        )
        self._paths = paths
        self.sources = sources
        self._tell = progress
        self._first_pass: CapturePipeline | None = None
        """While it finds the ranks that the filter needs."""
        self.measuring.tracker.see_taps(len(registry.taps))  # also before each has a packet
        self._began = time.monotonic()
        self._reader = threading.get_ident()
        """The thread of `read`."""
        self._reported_at = 0.0
        self._batches = 0
        self._alone = False
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
        self._alone, self.take_ended = alone, ended
        self._reader = threading.get_ident()
        field = None if self.packet_filter is None else self.packet_filter.of_job
        if self.ranks is None and field is not None:
            self._learn_ranks(field)
        with _interrupts(self._interrupted, self._stop_reading):
            if alone and self.measuring.many_taps and self.options.idle_ns is None:
                self._read_and_follow()
            else:
                decoded = Prefetched(self._tables, self._report, ahead=1)
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
                batch = self.take(table, cm)
                if self.options.idle_ns is not None and len(table):
                    if not sampled_taps(self.registry.taps):
                        self.end_idle()
            self._batches += 1
            yield batch
            limit = self.options.max_flows
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

        def begun(first: CapturePipeline) -> None:
            self._first_pass = first
            if self._interrupted.is_set():
                first.stop()

        self.ranks, self.rank_notes = find_ranks(
            self._paths, self.options, self._tell, self.job, needed_by=field, begun=begun
        )
        if self._first_pass is not None and self._first_pass.interrupted:
            self._interrupted.set()
            self._stop_reading()
        self._first_pass = None

    def check_two_passes(self, field: str) -> None:
        """UsageError if a filter with a field of the job is not possible here."""
        if self.options.follow or any(s.capture.total_bytes is None for s in self.sources):
            raise UsageError(
                f"filter: {field} needs two passes over a capture: it cannot be combined with"
                " --follow, standard input or pipes"
            )
        if self.job is None and all(s.capture.format == "pcap" for s in self.sources):
            raise UsageError(f"filter: {field} needs the logs of the job: --nccl-log 'logs/*'")

    def _make_room(self) -> None:
        """End the flows that are idle for longest, where that is exact and possible."""
        if not self._alone or self.options.idle_ns is not None or self.job is not None:
            return
        if sampled_taps(self.registry.taps):
            return
        if self._followed is not None and not self._followed.wait():
            return
        if self.measuring.departed is None:
            give_back_large_arrays()
        most = self.options.max_flows // _STAYING
        gaps, leaving = gaps_of(self.registry.taps), self.hand_over_records()
        make_room(self.measuring, most, self.registry.tap_names, gaps=gaps, leaving=leaving)
        give_back_freed()

    def summarize_captures(self, complete: bool) -> list[CaptureSummary]:
        """Counts and quality of the captures; UnreadableInput where nothing was read."""
        series = self.measuring.totals.series(self.registry.tap_names)
        captures = [
            capture_summary(source, self.registry.taps, series, self.options.icrc)
            for source in self.sources
        ]
        check_read(captures, complete)
        return captures

    def find_host_owners(self) -> dict[int, Owner]:
        """Processes by flow index, as comments of the captures name them."""
        return read_owners(
            (line for source in self.sources for line in source.capture.owner_comments),
            self.measuring.tracker,
            self.registry.endpoints,
        )

    def check_mirrors(self) -> MirrorChecks | None:
        """Integrity of mirrors that number their packets."""
        asked = self.options.mirror
        return checks_of(
            [s.decoder.mirrors for s in self.sources if s.decoder.mirrors is not None],
            self.registry.endpoints.texts(),
            None if asked is None else asked.switch_counters,
        )

    def uses_outer_labels(self) -> bool:
        """Whether entropy values use the flow label of the outer header."""
        return any(source.decoder.flow_labels.outer for source in self.sources)

    def join_logs(self, in_passing: bool = False) -> Joined:
        """What the logs of the job say by now about the flows so far."""
        if self.logs is not None:
            self.logs.update()
        return super().join_logs(in_passing)

    def _tables(self) -> Iterator[Decoded]:
        tables = [source.tables(self.filter_packets) for source in self.sources]
        if len(tables) == 1:
            for table in tables[0]:
                yield table, self.take_cm_messages()
            return
        due: list[CmMessage] = []
        read: list[CmMessage] = []
        """Since the rows that are merged but not passed on: they have nothing to do with these."""

        def apart() -> bool:
            due.extend(read)
            read[:] = self.take_cm_messages()
            return bool(read)

        for table in merge_tables(tables, self.merge_counts, BATCH_FRAMES, apart):
            yield table, due.copy()
            due.clear()

    def take_cm_messages(self) -> list[CmMessage]:
        """Messages of connection management that were decoded since the last call."""
        return [m for source in self.sources for m in source.decoder.take_cm_messages()]

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
        if self._tell is None or (now - self._reported_at < _PROGRESS_EVERY_S and not last):
            return
        self._reported_at = now
        captures = [source.capture for source in self.sources]
        totals = [capture.total_bytes for capture in captures]
        read = sum(capture.bytes_read for capture in captures)
        current = next((c for c in captures if c.bytes_read < (c.total_bytes or 0)), captures[-1])
        self._tell(
            Progress(
                path=current.name,
                bytes_done=read,
                bytes_total=None
                if self.options.follow or None in totals
                else sum(t for t in totals if t is not None),
                frames=sum(capture.frames for capture in captures),
                packets=self.packets,
                compiling=not last
                and self._batches == 0
                and bool(compiling)
                and now - self._began > _COMPILING_AFTER_S,
            )
        )


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

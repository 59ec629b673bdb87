"""Live analysis: results per interval, and an Analysis of everything at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import UNSET

from ..analyzer.jobs.job import FollowedLogs
from ..analyzer.jobs.join import Joined
from ..analyzer.measures.ending import IDLE_AFTER_NS, TRACKED_FACTS, Turns, end_idle, sum_tracked
from ..analyzer.measures.measuring import Measuring
from ..analyzer.pipeline.options import AnalyzeOptions
from ..analyzer.pipeline.pipeline import Pipeline
from ..analyzer.pipeline.threads import give_back_freed, give_back_large_arrays
from ..analyzer.results.analysis import Analysis, LiveInterval, RdmaPort
from ..analyzer.results.captures import CaptureSummary
from ..analyzer.results.diagnosis import Diagnosis
from ..analyzer.results.flow import Owner
from ..analyzer.summary.trust import tap_summary, ultra_ethernet
from ..analyzer.wire.packets import PacketTable
from ..analyzer.wire.registry import MOST_ADDRESSES, Endpoints, Registry
from ..kernels.kernel import Ints
from . import sysfs
from .hooks.attach import GONE
from .live import LiveOptions, LiveSource, Opened
from .owners.watch import OwnerWatch, watch_owners
from .rights import become_unprivileged
from .rings import Loss


class LivePipeline(Pipeline):
    """The pipeline of live probes: idle flows leave it, and owners come from this host."""

    def __init__(
        self, source: LiveSource, options: AnalyzeOptions, logs: FollowedLogs | None = None
    ) -> None:
        """logs: of the job, which other pipelines read too."""
        chosen = replace(
            options,
            follow=True,  # of the logs of the job
            idle_ns=IDLE_AFTER_NS if options.idle_ns is None else options.idle_ns,
            dscp_priority=None,
        )
        kept = None
        if options.filter:
            from ..analyzer.filtering.compiler import Filter  # loads a grammar

            kept = Filter(options.filter)
        super().__init__(chosen, source.registry, many_taps=True, packet_filter=kept, logs=logs)
        self.measuring.filtered = bool(options.filter or source.options.filter)
        self.source = source
        self.warnings: list[str] = []
        """Of the capture."""
        self.ports: list[RdmaPort] = []
        """Growth of the counters of this host's ports."""
        self.probed: dict[int, Owner] = {}
        """By flow index: the processes that probes of this host named last."""
        self._turns = Turns()

    def summarize_captures(self, complete: bool) -> list[CaptureSummary]:
        """Counts and losses of the probes."""
        return [capture_summary(self.source, self.measuring, self.warnings)]

    def find_host_owners(self) -> dict[int, Owner]:
        """Processes by flow index, as probes of this host named them last."""
        return self.probed

    def join_logs(self, in_passing: bool = True) -> Joined:
        """What the logs say, as far as they were read: the pairing is always that of the probes."""
        return super().join_logs(in_passing=True)

    def read_rdma_ports(self) -> Sequence[RdmaPort]:
        """Growth of the counters of this host's ports."""
        return self.ports

    def find_present_ns(self) -> int:
        """The present."""
        return time.time_ns()

    def end_idle_in_turn(self, end_idle: Callable[[], object]) -> None:
        """Call `end_idle` if it is time for a look at idle flows."""
        flows = self.measuring.tracker
        if not self._turns.is_due(len(flows), time.monotonic()):
            return
        spent_s = -time.thread_time()
        end_idle()
        spent_s += time.thread_time()
        self._turns.taken(len(flows), spent_s, time.monotonic())


class LiveAnalysis(Opened):
    """Live capture with the measures of its flows; a context manager.

    Entering it attaches the probes, including those for owners, and then gives up every
    privilege that is no longer needed: the process cannot open another one.
    """

    def __init__(
        self,
        interfaces: Sequence[str],
        live: LiveOptions,
        options: AnalyzeOptions | None = None,
        *,
        interval_ns: int = 1_000_000_000,
        count: int | None = None,
        drop_privileges: bool = True,
        rdma_devices: Path = sysfs.DEVICES,
    ) -> None:
        """options: those of files alone have no effect, and the filter is that of `live`.

        count: end after this many packets. drop_privileges: give up privileges permanently after
        probes are attached; not for library use.
        """
        registry = Registry(Endpoints(most=MOST_ADDRESSES))
        self.source = LiveSource(interfaces, live, registry=registry)
        self.pipeline = LivePipeline(self.source, options or AnalyzeOptions())
        self._renumbered = self.pipeline.measuring.renumbered = []
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self.ended_by: str | None = None
        """Reason if it ended without a request."""
        self._interval_ns, self._count = interval_ns, count
        self._drop_privileges = drop_privileges
        self._watch: OwnerWatch | None = None
        self._rdma_devices = rdma_devices
        super().__init__()
        self._intervals = 0
        self._busy_left = self._missing_left = 0
        """Flows that ended after packets in the present interval; PSNs that ended flows miss."""
        self._before = _Counted(self.pipeline.measuring, Loss())

    def _open(self) -> None:
        self.source.check()  # before work that may take a minute
        give_back_large_arrays()
        warm_up(self.pipeline.options.window_ns)
        # Before the probes: it takes a second, and the rings would overflow.
        self._watch = watch_owners(self.source.interfaces, self._stack, self.reasons)
        self._ports = sysfs.read_ports(self._rdma_devices)[0]
        self._stack.enter_context(self.source)
        if self._drop_privileges:
            become_unprivileged(self.source.privileges())

    def run(
        self, tell: Callable[[LiveInterval], None], check: Callable[[], None] = lambda: None
    ) -> None:
        """Measure until the source is stopped.

        tell: called with every interval; the last one is shorter, and omitted if it is empty.
        check: called after every poll.
        """
        began = time.monotonic_ns()
        due = began + self._interval_ns
        for table in self.source.tables():
            if not self._take(table):
                break
            if self._watch is not None:
                self._guarded(self._watch.listen)
            self.pipeline.end_idle_in_turn(self._end_idle)
            now = time.monotonic_ns()
            if now >= due:
                tell(self._interval(now - began))
                began = now
                due += -(-(now - due + 1) // self._interval_ns) * self._interval_ns
            check()
        self.source.finish()
        last = self._interval(time.monotonic_ns() - began)
        if last.interval == 1 or last.frames or last.packets:
            tell(last)

    def _take(self, table: PacketTable) -> bool:
        """Measure a batch; False if it was the last one."""
        pipeline, limit = self.pipeline, self._count
        if limit is not None:
            table = table.slice(0, min(len(table), limit - pipeline.packets))
        cm = self.source.decoder.take_cm_messages()
        if len(table) or cm:
            pipeline.take(table, cm)
        most = pipeline.options.max_flows
        if len(pipeline.measuring.tracker) > most:
            self._end_idle()
        if len(pipeline.measuring.tracker) > most:
            self.ended_by = (
                f"more than {most} flows at once: give a --filter to analyse a part, or a shorter"
                " --idle-after"
            )
            return False
        return limit is None or pipeline.packets < limit

    def _end_idle(self) -> None:
        """End idle flows; the counts of the present interval stay right."""
        measuring = self.pipeline.measuring
        before, missing = self._grown(), _missing(measuring)
        if not self.pipeline.end_idle():
            return
        self._missing_left += missing - _missing(measuring)
        for kept in self._renumbered:
            self._busy_left += int(np.count_nonzero(before[kept.number < 0]))
            counted = self._before.packets
            self._before.packets = counted[kept.of(len(counted))]
        self._renumbered.clear()
        give_back_freed()

    def _grown(self) -> Ints:
        """Packets of each flow since the last interval."""
        grown: Ints = self.pipeline.measuring.tracker.flows["packets"].copy()
        grown[: len(self._before.packets)] -= self._before.packets
        return grown

    def _interval(self, duration_ns: int) -> LiveInterval:
        if self._watch is not None:
            self._guarded(self._watch.update)
        self._intervals += 1
        busy = self._grown()
        measuring = self.pipeline.measuring
        now, before = _Counted(measuring, self.source.loss()), self._before
        self._before = now
        grown = {name: now.sums[name] - before.sums[name] for name in now.sums}
        busy_left, self._busy_left = self._busy_left, 0
        loss = now.loss - before.loss
        seconds = duration_ns / 1e9
        return LiveInterval(
            interval=self._intervals,
            end_time_ns=time.time_ns(),
            duration_ns=duration_ns,
            dropped_frames=loss.ring_full,
            dropped_frames_total=now.loss.ring_full,
            too_short_frames=loss.too_short,
            merged_frames=loss.merged,
            frames=loss.seen,
            packets_per_second=grown["packets"] / seconds,
            bits_per_second=grown["wire_bytes"] * 8 / seconds,
            flows=int(np.count_nonzero(busy)) + busy_left,
            flows_total=len(busy) + measuring.ended.flows,
            missing_packets_total=_missing(measuring) + self._missing_left,
            interfaces_gone=[interface.label for interface in self.source.gone()],
            **grown,
        )

    def diagnosis(self) -> Diagnosis:
        """The findings so far, while `run` runs: from its `tell`."""
        return self._concluded(complete=False).diagnosis

    def result(self) -> Analysis:
        """The whole result, after `run` has ended."""
        if self._watch is not None:
            watch = self._watch
            self._guarded(lambda: watch.update(wait=True))
        if self.pipeline.logs is not None:
            self.pipeline.logs.update()  # what they got since the start
        return self._concluded(complete=True)

    def _concluded(self, complete: bool) -> Analysis:
        pipeline = self.pipeline
        pipeline.probed = {}
        if self._watch is not None:
            watch, of = self._watch, (pipeline.measuring.tracker, pipeline.registry.endpoints)
            self._guarded(lambda: pipeline.probed.update(watch.owners(*of)))
        grown = sysfs.growth(self._ports, sysfs.read_ports(self._rdma_devices)[0])
        pipeline.ports = [
            RdmaPort(p.device, p.port, p.counters, p.hw_counters, p.restarted) for p in grown
        ]
        pipeline.warnings = self._warnings()
        return pipeline.conclude(complete)

    def _warnings(self) -> list[str]:
        loss = self.source.loss()
        lines = [f"{interface.label} {GONE}" for interface in self.source.gone()]
        lines += self.source.others.lines()
        if self.ended_by is not None:
            lines.append(f"ended early, {self.ended_by}")
        for number, what in (
            (loss.too_short, "frames were too short to read"),
            (loss.merged, "frames had been merged by the kernel (GRO or GSO): packets are missing"),
            (loss.ultra_ethernet, "packets of Ultra Ethernet were seen, and not captured"),
            (self.source.clock_steps, "steps of the wall clock: times jump there"),
            (
                0 if self._watch is None else self._watch.lost,
                "calls of libibverbs were missed: some owners may be unknown",
            ),
        ):
            if number:
                lines.append(f"{number} {what}")
        return lines

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run the owner probes; an error ends them, not the capture."""
        try:
            work()
        except Exception as error:
            self._watch = None
            self.reasons.append(f"{type(error).__name__}: {error}")


def capture_summary(
    source: LiveSource, measuring: Measuring, warnings: Sequence[str] = ()
) -> CaptureSummary:
    """Counts and losses of a live source."""
    counters, flows, registry = source.decoder.counters, measuring.tracker.flows, source.registry
    ended = measuring.ended
    first, last = ended.first_time_ns, ended.last_time_ns
    if len(flows):
        begun, until = int(flows["first_time"].min()), int(flows["last_time"].max())
        first = begun if first is None else min(first, begun)
        last = until if last is None else max(last, until)
    series = measuring.totals.series(registry.tap_names)
    return CaptureSummary(
        name=",".join(interface.label for interface in source.interfaces),
        format="live",
        compression=None,
        frames=counters.frames(),
        roce_packets=counters.roce_packets(),
        first_time_ns=first,
        last_time_ns=last,
        duration_ns=None if first is None or last is None else last - first,
        snapped_frames=source.snapped_frames,
        out_of_order_frames=0,
        undecodable_frames=counters.undecodable(),
        later_fragments=counters.later_fragments(),
        icrc=None,
        contents={name: n for name, n in counters.contents() if name != "RoCE"},
        taps=[tap_summary(counters, registry.taps, i, series) for i in range(len(registry.taps))],
        warnings=[*warnings, *source.decoder.warnings("the capture")],
        encapsulations=counters.tunnels() or UNSET,
        ultra_ethernet=ultra_ethernet(counters),
    )


class _Counted:
    """Totals of all flows at one time."""

    def __init__(self, measuring: Measuring, loss: Loss) -> None:
        tracker, ended = measuring.tracker, measuring.ended
        flows, streams = tracker.flows, tracker.state.streams[: 2 * len(tracker)]
        self.loss = loss
        self.packets: Ints = flows["packets"].copy()
        self.sums: dict[str, int] = {
            fact.name: sum_tracked(fact, flows, streams) + getattr(ended, fact.name)
            for fact in TRACKED_FACTS
            if fact.name in LiveInterval.__struct_fields__
        }


def _missing(measuring: Measuring) -> int:
    """PSNs that the present flows miss."""
    streams = measuring.tracker.state.streams[: 2 * len(measuring.tracker)]
    return int(streams["missing"].sum() + streams["missing_evicted"].sum())


_WARM_FLOWS = 1000


def warm_up(window_ns: int) -> None:
    """Compile or load the machine code before packets arrive: the rings would overflow.

    That of the result too: afterwards the process cannot store any.
    """
    measuring = Measuring(window_ns, many_taps=True)
    measuring.update(PacketTable.zeros(2))
    flows = PacketTable.zeros(_WARM_FLOWS)  # enough that tables grow, and windows widen
    flows.dest_qp[:] = np.arange(_WARM_FLOWS)
    flows.time_ns[:] = np.arange(_WARM_FLOWS) * window_ns
    measuring.update(flows)
    measuring.hops.settled()
    end_idle(measuring, 0, [""], most_kept=0, least_leaving=0)

"""Live analysis: results per interval, and an Analysis of everything at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import UNSET

from ..analyzer.analysis.conclude import MAX_FLOWS, conclude
from ..analyzer.analysis.heap import give_back_freed, give_back_large_arrays
from ..analyzer.analysis.owners import merged
from ..analyzer.logs.following import FollowedLogs
from ..analyzer.logs.join import Join, Joined
from ..analyzer.measures.ending import IDLE_AFTER_NS, Turns, end_idle
from ..analyzer.measures.measuring import Measuring
from ..analyzer.measures.messages import MessageTimes
from ..analyzer.measures.series import DEFAULT_WINDOW_NS
from ..analyzer.results.analysis import Analysis
from ..analyzer.results.captures import CaptureSummary
from ..analyzer.results.diagnosis import Diagnosis
from ..analyzer.results.flow import Owner
from ..analyzer.results.live import LiveInterval, RdmaPort
from ..analyzer.summary.options import FlowOrder, PathBy
from ..analyzer.summary.trust import tap_summary, ultra_ethernet
from ..analyzer.wire.endpoints import MOST_ADDRESSES, Endpoints
from ..analyzer.wire.packets import PacketTable
from ..analyzer.wire.registry import Registry
from ..kernels.kernel import Ints, Records
from . import sysfs
from .hooks.attach import GONE
from .live import LiveOptions, LiveSource
from .loss import Loss
from .opened import Opened
from .owners.watch import OwnerWatch
from .rights.dropping import become_unprivileged

POLL_S = 0.02
"""Poll interval. The rings hold far more than this time; fewer, larger batches cost less."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of the analysis."""

    path_by: PathBy = "entropy"
    window_ns: int = DEFAULT_WINDOW_NS
    interval_ns: int = 1_000_000_000
    count: int | None = None
    """End after this many packets."""
    idle_ns: int = IDLE_AFTER_NS
    """Flows without a packet for this time are ended: their sums stay, the worst stay listed."""
    max_flows: int = MAX_FLOWS
    """End at more flows at once: memory grows with them."""
    flow_order: FlowOrder | None = None
    """Order of the flows in the result; default: order of their first packets."""
    job_logs: tuple[str, ...] = ()
    """Patterns of the logs of a job, which may appear and grow."""
    drop_privileges: bool = True
    """Give up privileges permanently after probes are attached; not for library use."""


class LiveAnalysis(Opened):
    """Live capture with the measures of its flows; a context manager.

    Entering it attaches the probes, including those for owners, and then gives up every
    privilege that is no longer needed: the process cannot open another one.
    """

    def __init__(
        self,
        interfaces: Sequence[str],
        live: LiveOptions,
        options: MeasureOptions | None = None,
        rdma_devices: Path = sysfs.DEVICES,
    ) -> None:
        self.registry = Registry(Endpoints(most=MOST_ADDRESSES))
        self.source = LiveSource(interfaces, live, registry=self.registry)
        self.options = options or MeasureOptions()
        self.measuring = Measuring(self.options.window_ns, many_taps=True)
        self.measuring.filtered = live.filter is not None
        self.measuring.address_beyond = self.registry.endpoints.beyond
        self._logs = FollowedLogs(self.options.job_logs) if self.options.job_logs else None
        if self._logs is not None:
            self.measuring.message_times = MessageTimes(newest=True)
        self._renumbered = self.measuring.renumbered = []
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self.packets = 0
        self.ended_by: str | None = None
        """Reason if it ended without a request."""
        self._watch: OwnerWatch | None = None
        self._rdma_devices = rdma_devices
        super().__init__()
        self._intervals = 0
        self._busy_left = self._missing_left = 0
        """Flows that ended after packets in the present interval; PSNs that ended flows miss."""
        self._turns = Turns()
        self._before = _Counted(self.measuring, Loss())

    def _open(self) -> None:
        self.source.check()  # before work that may take a minute
        give_back_large_arrays()
        warm_up(self.options.window_ns)
        self._watch_owners()  # takes a second; the rings would overflow
        self._ports = sysfs.read_ports(self._rdma_devices)[0]
        self._stack.enter_context(self.source)
        if self.options.drop_privileges:
            become_unprivileged(self.source.privileges())

    def run(
        self, tell: Callable[[LiveInterval], None], check: Callable[[], None] = lambda: None
    ) -> None:
        """Measure until the source is stopped.

        tell: called with every interval; the last one is shorter, and omitted if it is empty.
        check: called after every poll.
        """
        began = time.monotonic_ns()
        due = began + self.options.interval_ns
        for table in self.source.tables(POLL_S):
            if not self._take(table):
                break
            if self._watch is not None:
                self._guarded(self._watch.listen)
            now = time.monotonic_ns()
            if self._turns.is_due(len(self.measuring.tracker), now / 1e9):
                spent_s = -time.thread_time()
                self._end_idle()
                spent_s += time.thread_time()
                self._turns.taken(len(self.measuring.tracker), spent_s, time.monotonic())
            if now >= due:
                tell(self._interval(now - began))
                began = now
                due += -(-(now - due + 1) // self.options.interval_ns) * self.options.interval_ns
            check()
        self.source.finish()
        last = self._interval(time.monotonic_ns() - began)
        if last.interval == 1 or last.frames or last.packets:
            tell(last)

    def _take(self, table: PacketTable) -> bool:
        """Measure a batch; False if it was the last one."""
        limit = self.options.count
        if limit is not None:
            table = table.slice(0, min(len(table), limit - self.packets))
        cm = self.source.decoder.take_cm_messages()
        if len(table) or cm:
            self.measuring.update(table, cm)
            self.packets += len(table)
        if len(self.measuring.tracker) > self.options.max_flows:
            self._end_idle()
        if len(self.measuring.tracker) > self.options.max_flows:
            self.ended_by = (
                f"more than {self.options.max_flows} flows at once: give a --filter to analyse a"
                " part, or a shorter --idle-after"
            )
            return False
        return limit is None or self.packets < limit

    def _end_idle(self) -> None:
        """End idle flows; the counts of the present interval stay right."""
        before, missing = self._grown(), _missing(self.measuring)
        if not end_idle(self.measuring, self.options.idle_ns, self.registry.tap_names):
            return
        self._missing_left += missing - _missing(self.measuring)
        for kept in self._renumbered:
            self._busy_left += int(np.count_nonzero(before[kept.number < 0]))
            counted = self._before.packets
            self._before.packets = counted[kept.of(len(counted))]
        self._renumbered.clear()
        give_back_freed()

    def _grown(self) -> Ints:
        """Packets of each flow since the last interval."""
        grown: Ints = self.measuring.tracker.flows["packets"].copy()
        grown[: len(self._before.packets)] -= self._before.packets
        return grown

    def _interval(self, duration_ns: int) -> LiveInterval:
        if self._watch is not None:
            self._guarded(self._watch.update)
        self._intervals += 1
        busy = self._grown()
        now, before = _Counted(self.measuring, self.source.loss()), self._before
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
            flows_total=len(busy) + self.measuring.ended.flows,
            missing_packets_total=_missing(self.measuring) + self._missing_left,
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
        return self._concluded(complete=True)

    def _concluded(self, complete: bool) -> Analysis:
        owners: dict[int, Owner] = {}
        if self._watch is not None:
            watch = self._watch
            self._guarded(
                lambda: owners.update(watch.owners(self.measuring.tracker, self.registry.endpoints))
            )
        joined = self._joined(complete)
        grown = sysfs.growth(self._ports, sysfs.read_ports(self._rdma_devices)[0])
        return conclude(
            self.measuring,
            self.registry,
            [capture_summary(self.source, self.measuring, self._warnings())],
            path_by=self.options.path_by,
            complete=complete,
            now_ns=None if complete else time.time_ns(),
            filtered=self.measuring.filtered,
            owners=merged(owners, joined.owners),
            job_events=joined.events,
            job_notes=joined.notes,
            rdma_ports=[
                RdmaPort(p.device, p.port, p.counters, p.hw_counters, p.restarted) for p in grown
            ],
            flow_order=self.options.flow_order,
        )

    def _joined(self, complete: bool) -> Joined:
        """What the logs show; what they got since the start is read at the end only."""
        if self._logs is None:
            return Joined()
        if complete:
            self._logs.update()
        tracker, endpoints = self.measuring.tracker, self.registry.endpoints
        joined = Join(self._logs.job, tracker, endpoints).result()
        joined.notes += self._logs.notes()
        return joined

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

    def _watch_owners(self) -> None:
        namespaces = {interface.namespace for interface in self.source.interfaces}

        def start() -> None:
            self._watch = self._stack.enter_context(OwnerWatch({None, *namespaces}))

        self._guarded(start)
        if self._watch is not None:
            self.reasons = self._watch.reasons + self.reasons

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
        again = _sum(streams, "recovered", "retransmitted")
        self.loss = loss
        self.packets: Ints = flows["packets"].copy()
        self.sums = {
            "packets": _sum(flows, "packets") + ended.packets,
            "wire_bytes": _sum(flows, "wire_bytes") + ended.wire_bytes,
            "reordered_packets": _sum(streams, "reordered") + ended.reordered_packets,
            "retransmitted_packets": again + ended.retransmitted_packets,
            "ecn_marked_packets": _sum(flows, "ecn_marked") + ended.ecn_marked_packets,
            "cnps": _sum(flows, "cnps") + ended.cnps,
            "naks": _sum(flows, "naks") + ended.naks,
            "rnr_naks": _sum(flows, "rnr_naks") + ended.rnr_naks,
        }


def _missing(measuring: Measuring) -> int:
    """PSNs that the present flows miss."""
    streams = measuring.tracker.state.streams[: 2 * len(measuring.tracker)]
    return _sum(streams, "missing", "missing_evicted")


def _sum(records: Records, *fields: str) -> int:
    return sum(int(records[field].sum()) for field in fields)


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

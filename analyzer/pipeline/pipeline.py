"""One analysis, whatever its packets come from: open, decode, filter, track, measure, follow,
diagnose, conclude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from ...version import VERSION
from ..decode.control import CmMessage
from ..decode.merge import MergeCounts
from ..diagnosis.case import Case
from ..diagnosis.diagnose import diagnose
from ..filtering.compiler import FlowName, Ranks
from ..jobs.beside import job_records
from ..jobs.job import FollowedLogs, Job
from ..jobs.join import Join, Joined
from ..jobs.lines import named
from ..jobs.records import Recorded
from ..jobs.training import Sources, TrainingJobs, training_jobs
from ..measures.ending import end_idle
from ..measures.measuring import Measuring
from ..measures.messages import MessageLog, MessageTimes
from ..results.analysis import Analysis, RdmaPort
from ..results.base import Event
from ..results.captures import CaptureSummary, MirrorChecks
from ..results.flow import Flow, Owner
from ..summary.conformance import conformance
from ..summary.ranks import ranks_of, with_ranks
from ..summary.summarize import Summary
from ..summary.trust import gaps_of, mirror_warnings, warnings_of
from ..track.batch import TrackedBatch
from ..wire.packets import PacketTable
from ..wire.registry import Registry
from .options import AnalyzeOptions
from .owners import merge_owners
from .threads import FairLock

if TYPE_CHECKING:
    from ...kernels.kernel import Ints
    from ..filtering.compiler import Filter

EndedFlows = Callable[[Iterator[Flow]], None]
"""Takes the records of flows that leave memory. Their ids, and those of their connections, begin at
`AnalyzeOptions.max_flows`: the flows of the result have smaller ones."""
MAX_EVENTS_REPORTED = 1000


class Pipeline:
    """The state of one analysis.

    Each source of packets has a subclass, which opens and decodes, hands every batch to `take`, and
    answers what only the source knows, by the methods of the first group. One thread feeds it.
    Other threads may read its state while they hold `lock`: a screen copies columns of `measuring`,
    asks `glance` for single records and `conclude` for the rest.
    """

    def __init__(
        self,
        options: AnalyzeOptions,
        registry: Registry,
        *,
        many_taps: bool,
        packet_filter: Filter | None = None,
        job: Job | None = None,
        logs: FollowedLogs | None = None,
    ) -> None:
        """job, logs: logs of the job that are read already, in place of those of `options`."""
        self.options = options
        self.registry = registry
        self.lock = FairLock()
        self.packet_filter = packet_filter
        self.packets = 0
        """Taken so far."""
        self.ended_by: str | None = None
        """Why reading ended before the end of the packets, unless somebody stopped it."""
        self.merge_counts = MergeCounts()
        self.take_ended: EndedFlows | None = None
        """Gets the records of flows that leave memory."""
        if job is None and logs is None and options.job_logs:
            if options.follow:
                logs = FollowedLogs(options.job_logs)
            else:
                job = Job(named(options.job_logs))
        self.recorded = _recorded(options)
        """Collectives that the job recorded itself; None: no folder is given."""
        self.logs = logs
        """Logs of the job that may grow."""
        self.job = job if logs is None else logs.job
        self.ranks = options.ranks
        """Of the flows of the whole capture, if the filter needs them."""
        self.rank_notes: list[str] = []
        """What stayed open when these ranks were found."""
        checked = options.conformance
        if checked is not None:
            checked = replace(checked, interface_of=registry.taps.interface)
            if checked.same_port:
                checked = replace(checked, address_of=registry.endpoints.text)
        self.measuring = Measuring(options.window_ns, many_taps, checked)
        self.measuring.filtered = options.filter is not None
        self.measuring.address_beyond = registry.endpoints.beyond
        self.measuring.messages.log = MessageLog(newest=options.follow)
        if self.job is not None:
            self.measuring.message_times = MessageTimes(newest=options.follow)

    # --- what the source of the packets knows ------------------------------------------------

    def summarize_captures(self, complete: bool) -> list[CaptureSummary]:
        """Counts and quality of the captures; UnreadableInput where nothing was read."""
        raise NotImplementedError

    def find_host_owners(self) -> dict[int, Owner]:
        """Processes by flow index, as the host that captured names them."""
        return {}

    def check_mirrors(self) -> MirrorChecks | None:
        """Integrity of a mirror that numbers its packets; its losses are the first warnings."""
        return None

    def uses_outer_labels(self) -> bool:
        """Whether entropy values use the flow label of the outer header."""
        return False

    def read_rdma_ports(self) -> Sequence[RdmaPort]:
        """Growth of the counters of this host's ports."""
        return ()

    def find_present_ns(self) -> int | None:
        """The present, while packets come; None where time ends with the capture."""
        return None

    # --- filter, track, measure, follow ------------------------------------------------------

    def filter_packets(self, table: PacketTable) -> PacketTable:
        """The packets that pass the filter."""
        if self.packet_filter is None or not len(table):
            return table
        return table.take(self.packet_filter.mask(table, self.registry, self.ranks))

    def take(self, table: PacketTable, cm: Sequence[CmMessage] = ()) -> TrackedBatch | None:
        """Track and measure one batch; returns it as tracked, None if no packet is left."""
        batch = self.measuring.update(table, cm)
        self.packets += len(table)
        return batch

    def end_idle(self) -> int:
        """End flows that are idle for `options.idle_ns`, if they are worth it; how many left."""
        idle_ns = self.options.idle_ns
        if idle_ns is None:
            return 0
        gaps, leaving = gaps_of(self.registry.taps), self.hand_over_records()
        names = self.registry.tap_names
        return end_idle(self.measuring, idle_ns, names, gaps=gaps, leaving=leaving)

    def hand_over_records(self) -> Callable[[Ints], None] | None:
        """Hands over the records of flows that are about to leave memory."""
        if (take := self.take_ended) is None:
            return None

        def leaving(gone: Ints) -> None:
            take(self._records(gone))

        return leaving

    def _records(self, gone: Ints) -> Iterator[Flow]:
        options, left = self.options, self.measuring.ended
        summary = Summary(
            self.measuring,
            self.registry,
            options.path_by,
            self.find_owners(),
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

    # --- owners and ranks --------------------------------------------------------------------

    def join_logs(self, in_passing: bool = False) -> Joined:
        """What the logs of the job say about the flows so far.

        in_passing: of a running analysis, whose inferred pairing stays unchanged.
        """
        if self.job is None:
            return Joined()
        measuring = self.measuring
        cm = None if in_passing else measuring.cm
        joined = Join(self.job, measuring.tracker, self.registry.endpoints, cm).result()
        if self.logs is not None:
            joined.notes += self.logs.notes()
        return joined

    def find_owners(self) -> dict[int, Owner]:
        """Processes by flow index as hosts and logs name them now, for a running analysis."""
        joined = self.join_logs(in_passing=True)
        return self._with_known_ranks(merge_owners(self.find_host_owners(), joined.owners))

    def learn_ranks(self) -> tuple[Ranks, list[str]]:
        """The ranks of all flows, and what the logs of the job leave open."""
        joined = self.join_logs()
        texts, flows = self.registry.endpoints.texts(), self.measuring.tracker.flows
        owners = merge_owners(self.find_host_owners(), joined.owners)
        ranks = {_name(flows[number], texts): owner for number, owner in owners.items()}
        return Ranks(ranks), joined.notes

    def _with_known_ranks(self, owners: dict[int, Owner]) -> dict[int, Owner]:
        """Owners as the whole capture tells them, where a filter hides the other direction."""
        if self.ranks is None:
            return owners
        texts = self.registry.endpoints.texts()
        for number, flow in enumerate(self.measuring.tracker.flows):
            known = self.ranks.owners.get(_name(flow, texts))
            if known is not None:
                owners[number] = known
        return owners

    def _training_jobs(
        self,
        owners: Mapping[int, Owner],
        flows: Sequence[Flow],
        captures: Sequence[CaptureSummary],
        now_ns: int | None,
    ) -> TrainingJobs:
        measuring, log = self.measuring, self.measuring.messages.log
        if log is None:
            return TrainingJobs([], [])
        ends = {tap.name: capture.last_time_ns for capture in captures for tap in capture.taps}
        unreliable = None
        if measuring.filtered or measuring.captured_in_part:
            unreliable = "a filter is set: messages may be missing"
        elif any(flow.sampling is not UNSET for flow in flows):
            unreliable = "the captures hold samples: messages are missing"
        sources = Sources(
            messages=log.messages(),
            flows=measuring.tracker.flows,
            addresses=self.registry.endpoints.texts(),
            grants=log.grants,
            owners=owners,
            open_ns=measuring.messages.open_ns(),
            lossy={
                flow.id
                for flow in flows
                if flow.retransmitted_packets
                or flow.recovered_packets
                or flow.missing_packets
                or flow.lost_between_taps
            },
            until_ns={
                flow.id: now_ns or max((ends.get(tap) or 0 for tap in flow.taps), default=0)
                for flow in flows
            },
            taps=len(self.registry.taps),
            ways={
                flow.id: [tap for tap, seen in flow.taps.items() if 2 * seen >= flow.packets]
                for flow in flows
            },
            marked={flow.id for flow in flows if flow.ecn_marked_packets},
            unreliable=unreliable,
        )
        return training_jobs(sources)

    # --- diagnose and conclude ---------------------------------------------------------------

    def glance(self) -> Summary:
        """Records of single flows and events while the analysis runs, with paths by entropy."""
        return Summary(
            self.measuring,
            self.registry,
            "entropy",
            in_passing=True,
            plane_by=self.options.plane_by,
        )

    def conclude(self, complete: bool) -> Analysis:
        """The Analysis of the packets so far; complete: none will come, and none was left out."""
        options, measuring, registry = self.options, self.measuring, self.registry
        joined = self.join_logs()
        owners = self._with_known_ranks(merge_owners(self.find_host_owners(), joined.owners))
        now_ns = None if complete else self.find_present_ns()
        summary = Summary(
            measuring,
            registry,
            options.path_by,
            owners,
            plane_by=options.plane_by,
            fabric=options.fabric,
            now_ns=now_ns,
        )
        captures = self.summarize_captures(complete)  # with the names that links have now
        flows = summary.flows()
        events, omitted = _with_job_events(*summary.events(MAX_EVENTS_REPORTED), joined.events)
        filtered = measuring.filtered or measuring.captured_in_part
        mirror = self.check_mirrors()
        warnings = [] if mirror is None else mirror_warnings(mirror)
        warnings += warnings_of(
            captures,
            flows,
            self.merge_counts,
            complete,
            filtered,
            measuring.packets_before_taps if measuring.many_taps else 0,
            self.ended_by,
            measuring.ended,
            rows_kept=self.take_ended is not None,
        )
        warnings += joined.notes if self.ranks is None else self.rank_notes
        mrc = None if summary.mrc is None else summary.mrc.whole(self.uses_outer_labels())
        imbalance = summary.imbalance()
        hops, losses, clocks = summary.hops()
        jobs = self._training_jobs(owners, flows, captures, now_ns)
        case = Case(
            measuring=measuring,
            registry=registry,
            captures=captures,
            flows=flows,
            connections=summary.connections,
            imbalance=imbalance,
            tap_hops=summary.tap_hops,
            hops=hops,
            capture_losses=losses,
            clocks=clocks,
            mrc=mrc,
            complete=complete,
            filtered=filtered or measuring.ended.in_part,
            dscp_priority=options.dscp_priority,
            failed_in_logs=joined.failed,
            training=jobs,
        )
        checks = measuring.conformance
        return Analysis(
            version=VERSION,
            complete=complete,
            captures=captures,
            diagnosis=diagnose(case),
            jobs=list(jobs.jobs),
            flows=flows if options.flow_order is None else options.flow_order(flows),
            connections=with_ranks(summary.connections, flows),
            imbalance=imbalance,
            hops=hops,
            capture_losses=losses,
            clocks=clocks,
            events=events,
            events_omitted=omitted,
            series=measuring.totals.series(registry.tap_names),
            warnings=warnings,
            ended=measuring.ended or UNSET,
            rdma_ports=list(self.read_rdma_ports()) or UNSET,
            conformance=UNSET
            if checks is None
            else conformance(checks, measuring.tracker, registry, mirror),
            mrc=UNSET if mrc is None else mrc,
            mirror_checks=UNSET if mirror is None else mirror,
            ranks=ranks_of(flows, measuring.message_times) or UNSET,
            job_records=UNSET if self.recorded is None else job_records(self.recorded, jobs.jobs),
            segment_lists=summary.segment_lists() or UNSET,
        )


def _recorded(options: AnalyzeOptions) -> Recorded | None:
    """What the job recorded; errors as the readers of the folders."""
    recorded = Recorded()
    if options.flight_recorder is not None:
        from ..jobs.flight_recorder import read_flight_recorder

        read_flight_recorder(Path(options.flight_recorder), recorded)
    if options.nccl_inspector is not None:
        from ..jobs.inspector import read_inspector

        read_inspector(Path(options.nccl_inspector), recorded)
    recorded.finish()
    return recorded if recorded.files else None


def _with_job_events(
    events: list[Event], omitted: int, logged: Sequence[Event]
) -> tuple[list[Event], int]:
    """The first events with those of the logs, and how many more there are."""
    if not logged:
        return events, omitted
    events = sorted((*events, *logged), key=lambda event: event.time_ns)
    omitted += max(0, len(events) - MAX_EVENTS_REPORTED)
    return events[:MAX_EVENTS_REPORTED], omitted


def _name(flow: Any, texts: Sequence[str]) -> FlowName:
    return texts[flow["src"]], texts[flow["dst"]], int(flow["dest_qp"])

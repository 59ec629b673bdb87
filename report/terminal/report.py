"""The report on a terminal: verdicts, and the most relevant rows of each table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from msgspec import UnsetType
from rich.table import Table
from rich.text import Text

from ...analyzer.results.analysis import (
    Analysis,
    CaptureLoss,
    Conformance,
    Hop,
    LiveInterval,
    Ranks,
    RdmaPort,
)
from ...analyzer.results.base import Imbalance
from ...analyzer.results.captures import Ended, TapSummary
from ...analyzer.results.flow import Flow
from ...analyzer.results.job_records import JobRecords
from ...analyzer.results.mrc import MrcPlanes
from ...analyzer.words import printable
from .. import human, verdicts
from .. import notes as words
from ..hops import short_taps, worst_first
from ..human import UNKNOWN, Glyphs, count, counted, duration, percent
from . import conformance, jobs, mrc, tables
from . import ranks as rank_tables
from .diagnosis import Line, in_few_rows, in_full
from .page import Page, numbers, texts
from .tables import (
    FlowTable,
    add_flow_columns,
    capture_table,
    event_table,
    flow_cells,
    imbalance_table,
    troubled_packets,
)

# The report's sentences on mirrors, tunnels and samples.

_TAPS = 4
"""Most taps named in the sentence; JSON has all of them."""


def mirrors(analysis: Analysis) -> list[str]:
    """Encapsulations of packets, estimates from samples, and checks of mirrors."""
    lines = []
    kinds: dict[str, int] = {}
    for capture in analysis.captures:
        if not isinstance(capture.encapsulations, UnsetType):
            for kind, frames in capture.encapsulations.items():
                kinds[kind] = kinds.get(kind, 0) + frames
    if kinds:
        counts = ", ".join(f"{kind} {human.count(n)}" for kind, n in kinds.items())
        lines.append(f"Encapsulated frames (mirrors and tunnels): {counts}. {_taps(analysis)}")
    for tap in _seen(analysis):
        if not isinstance(tap.sampling, UnsetType):
            sampling = tap.sampling
            lines.append(
                f"{tap.name}: estimated"
                f" {human.count(sampling.estimated_packets)} packets,"
                f" {human.size(sampling.estimated_wire_bytes)} (standard error"
                f" {sampling.error_percent:.1f} %)"
            )
    for capture in analysis.captures:
        uet = capture.ultra_ethernet
        if not isinstance(uet, UnsetType):
            types = ", ".join(f"{human.count(n)} {name}" for name, n in uet.by_type.items())
            psns = "" if uet.lowest_psn is None else f", PSN {uet.lowest_psn} to {uet.highest_psn}"
            values = human.counted(uet.entropy_values, "entropy value")
            lines.append(
                f"Ultra Ethernet, counted but not tracked: {types}; {human.size(uet.wire_bytes)},"
                f" {values}{psns}"
            )
    checks = analysis.mirror_checks
    if not isinstance(checks, UnsetType):
        events = ", ".join(f"{human.count(n)} {name}" for name, n in checks.injected.items())
        lines.append(
            f"Lumina mirror numbers: {human.count(checks.packets)} packets,"
            f" {checks.lost_packets} lost by the mirror; injected: {events or 'nothing'}"
        )
        if checks.switch is not None and checks.switch.agrees:
            lines[-1] += "; the switch counters agree"
    return lines


def _seen(analysis: Analysis) -> list[TapSummary]:
    taps = [tap for capture in analysis.captures for tap in capture.taps if tap.roce_packets]
    return sorted(taps, key=lambda tap: -tap.roce_packets)


def _taps(analysis: Analysis) -> str:
    taps = _seen(analysis)
    named = ", ".join(f"{tap.name} ({human.count(tap.roce_packets)})" for tap in taps[:_TAPS])
    more = f" and {len(taps) - _TAPS} more" if len(taps) > _TAPS else ""
    return f"Taps: {named}{more}."


# The report's section on hops: what happened between taps.


def between_taps(hops: Sequence[Hop], losses: Sequence[CaptureLoss]) -> str:
    """How many packets passed, and the hop with the most losses."""
    passed = sum(hop.passed_packets for hop in hops)
    text = f"{counted(len(hops), 'hop')}, {counted(passed, 'packet hop')}"
    short = _short(hops)
    lossy = [hop for hop in hops if hop.lost_packets]
    if lossy:
        worst = max(lossy, key=lambda hop: hop.lost_packets)
        text += f"; {count(worst.lost_packets)} of {count(worst.packets)} packets"
        text += f" ({percent(worst.lost_packets / worst.packets)}) were lost {where(worst, short)}"
        others = sum(hop.lost_packets for hop in lossy) - worst.lost_packets
        text += f", {count(others)} on other hops" if others else ""
    else:
        text += ", no packet lost between taps"
    for loss in losses:
        tap = short.get(loss.tap, printable(loss.tap))
        text += f"; the capture {tap} missed {counted(loss.packets, 'packet')}"
    return f"{text}."


def where(hop: Hop, short: dict[str, str]) -> str:
    """`in spine2, from leaf1-spine2 to leaf2-spine2`."""
    if hop.to_tap is None:
        text = f"after {short[hop.from_tap]}"
    else:
        text = f"from {short[hop.from_tap]} to {short[hop.to_tap]}"
        text = f"in {hop.device}, {text}" if hop.device else text
    return f"{text} (next tap by the fabric file)" if hop.expected_by == "fabric" else text


def _short(hops: Sequence[Hop]) -> dict[str, str]:
    return short_taps(tap for hop in hops for tap in (hop.from_tap, hop.to_tap) if tap is not None)


def hop_table(table: Table, hops: Sequence[Hop], glyphs: Glyphs, width: int) -> None:
    """One row per hop and direction, in this order. width: of the terminal."""
    trims = any(hop.trimmed_packets for hop in hops)
    titles = ["packets", "lost", "CE", "late", "dup", *["trim"] * trims, "delay p50", "p99"]
    texts(table, "from", "to")
    numbers(table, *titles)
    rows = [_figures(hop, glyphs, trims) for hop in hops]
    taken = sum(1 + max(map(len, cells)) for cells in zip(titles, *rows, strict=True))
    short = _short(hops)
    fitting = glyphs.shortened(short.values(), max(8, (width - taken - 1) // 2))
    for hop, row in zip(hops, rows, strict=True):
        table.add_row(
            Text(fitting[short[hop.from_tap]]),
            Text("?" if hop.to_tap is None else fitting[short[hop.to_tap]]),
            *(Text(cell, "red" if glyphs.bad in cell else "") for cell in row),
        )


def _figures(hop: Hop, glyphs: Glyphs, trims: bool) -> list[str]:
    mark = f"{glyphs.bad} " if hop.lost_packets else ""
    return [
        count(hop.packets),
        mark + count(hop.lost_packets),
        count(hop.ce_marked_packets),
        count(hop.reordered_packets),
        count(hop.duplicate_packets),
        *[count(hop.trimmed_packets)] * trims,
        "" if hop.delay_ns is None else duration(hop.delay_ns.p50),
        "" if hop.delay_ns is None else duration(hop.delay_ns.p99),
    ]


# Intervals of a live analysis as lines of a table.

_HEADING_EVERY = 20
_COLUMNS = (
    ("time", 8),
    ("packets/s", 9),
    ("rate", 10),
    ("flows", 5),
    ("late", 5),
    ("retrans", 7),
    ("missing", 7),
    ("CE", 6),
    ("CNP", 5),
    ("NAK", 5),
)


def interval_lines(interval: LiveInterval) -> list[str]:
    """The lines of an interval: losses of the capture first, headings at intervals."""
    lines = []
    if (interval.interval - 1) % _HEADING_EVERY == 0:
        lines.append(_line(*(name for name, _ in _COLUMNS)))
    if interval.dropped_frames:
        lost = human.counted(interval.dropped_frames, "packet")
        lines.append(
            f"the capture dropped {lost} ({human.count(interval.dropped_frames_total)} in total):"
            " use a larger --ring"
        )
    lines += [f"interface {name} disappeared" for name in interval.interfaces_gone]
    lines.append(
        _line(
            time.strftime("%H:%M:%S", time.localtime(interval.end_time_ns / 1e9)),
            human.count(round(interval.packets_per_second)),
            human.rate(interval.bits_per_second),
            *(
                human.count(value)
                for value in (
                    interval.flows,
                    interval.reordered_packets,
                    interval.retransmitted_packets,
                    interval.missing_packets_total,
                    interval.ecn_marked_packets,
                    interval.cnps,
                    interval.naks + interval.rnr_naks,
                )
            ),
        )
    )
    return lines


def _line(*cells: str) -> str:
    widths = (width for _, width in _COLUMNS)
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


# The report's sections on this host: processes of flows, counters of RDMA ports.


def owners(analysis: Analysis) -> str:
    """The number of flows with a known process; empty if there is none."""
    owners = [flow.owner for flow in analysis.flows if flow.owner is not None]
    if not owners:
        return ""
    processes = {(owner.host, owner.pid) for owner in owners if owner.pid is not None}
    verb = "belongs" if len(owners) == 1 else "belong"
    text = f"{human.count(len(owners))} of {human.counted(len(analysis.flows), 'flow')} {verb} to"
    text += (
        f" {human.counted(len(processes), 'process', 'processes')}" if processes else " perftest"
    )
    if all(owner.host is None and owner.pid is not None for owner in owners):
        return f"{text} of this host."
    between = sum(None not in owner.ranks for owner in owners)
    return f"{text}; logs name both ranks of {human.counted(between, 'flow')}."


def _owner_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    add_flow_columns(table)
    table.columns.pop()  # ranks have their own columns here
    owned = [(flow, flow.owner) for flow in flows if flow.owner is not None]
    logged = any(owner.host or owner.device or owner.comm for _, owner in owned)
    texts(table, "command")
    numbers(table, "PID", "rank")
    if logged:
        numbers(table, "peer rank")
        texts(table, "host", "device", "communicator")
        numbers(table, "channel?")
    texts(table, "end")
    for flow, owner in owned:
        cells = [*flow_cells(flow, glyphs, wide)[:-1], _known(owner.command)]
        cells += [_known(owner.pid), _known(owner.rank)]
        if logged:
            cells += [_known(owner.peer_rank), _known(owner.host), _known(owner.device)]
            cells += [_known(owner.comm), _known(owner.inferred_channel)]
        table.add_row(*cells, owner.end)


def _known(value: str | int | None) -> str:
    return "-" if value is None else printable(str(value))


OWNERS = FlowTable(
    lambda flow: flow.owner is not None,
    lambda flow: flow.wire_bytes,
    _owner_table,
    "end: the process owns the sending (source) or receiving (destination) queue pair;"
    " channel?: inferred from the order of log lines",
)


def rdma_ports(ports: Sequence[RdmaPort]) -> str:
    """The number of ports with counts, and unknown counters."""
    grown = sum(any(_counters(port).values()) for port in ports)
    text = (
        f"Counters grew on {grown} of {human.counted(len(ports), 'RDMA port')} during the capture."
    )
    for port in ports:
        if port.restarted:
            text += f" {port.device}/{port.port}: reset of {', '.join(port.restarted)}."
    return text


def port_table(table: Table, ports: Sequence[RdmaPort]) -> None:
    """One row per counter that grew."""
    texts(table, "port", "counter")
    numbers(table, "grew by")
    for port in ports:
        for name, grown in _counters(port).items():
            if grown:
                table.add_row(f"{port.device}/{port.port}", name, f"{grown:,}")


def _counters(port: RdmaPort) -> dict[str, int]:
    return port.counters | port.hw_counters


WIDE = 110
"""From this terminal width on the tables have their extra columns."""


class Report:
    """Prints one analysis on a page."""

    def __init__(
        self,
        analysis: Analysis,
        page: Page,
        top: int = 20,
        sorted: bool = False,
        brief: bool = False,
    ) -> None:
        self.page = page
        self.analysis = analysis
        self.top = top
        self.sorted = sorted
        self.brief = brief
        self.begin_ns = words.first_ns(analysis)
        self.glyphs, self.console = page.glyphs, page.console
        self.wide = page.console.width >= WIDE
        self.listed: set[int] = set()
        """Ids of the flows in the tables so far."""

    def print(self) -> None:
        """Print when it was captured and the diagnosis; unless `brief`, then the limits of trust
        and all tables."""
        captured = words.captured(self.analysis)
        if captured and len(captured) <= self.console.width:
            self.page.line(captured, "dim")
        complete = self._diagnosis()
        if self.brief:
            return
        jobs.print_jobs(self.page, self.analysis, self.top)
        self.page.gap()
        self.captures()
        self.tables()
        if self.analysis.flows:
            self._next()
        if not complete:
            self.page.section("Diagnosis in full")
            for line in in_full(self.analysis.diagnosis, self.begin_ns, self.glyphs):
                self._paragraph(line)

    def tables(self) -> None:
        """Print a section per kind of measurement."""
        analysis = self.analysis
        if not analysis.flows:
            some = any(capture.roce_packets for capture in analysis.captures)
            self.page.say(
                "No RoCE packet passes the filter." if some else "No RoCE flow was found."
            )
            self._job_records()
            self._rdma_ports()
            return
        self.page.section("Flows", verdicts.overview(analysis))
        self._table(tables.FLOWS)
        owned = owners(analysis)
        if owned:
            self.page.section("Owners", owned)
            self._table(OWNERS)
        if not isinstance(analysis.ranks, UnsetType):
            self._ranks(analysis.ranks)
        self._job_records()
        self.page.section("Spraying", verdicts.spraying(analysis))
        self._table(tables.SPRAYING)
        if verdicts.is_orderly(analysis):
            text = "No packet was reordered, lost, retransmitted or duplicated."
            text += verdicts.first_taps(analysis)
            judged = analysis.diagnosis
            checked = judged.complete and bool(judged.healthy)  # all packets, without a filter
            self.page.section("Reordering, loss and recovery", text, checked)
        else:
            self.page.section("Reordering", verdicts.reordering(analysis))
            self._table(tables.REORDERING)
            self.page.section("Loss and recovery", verdicts.loss(analysis))
            self._table(tables.LOSS)
        if analysis.hops:
            text = between_taps(analysis.hops, analysis.capture_losses)
            self.page.section("Between taps", text)
            worst = worst_first(sorted(analysis.hops, key=lambda hop: -hop.packets))
            shown, width = worst[: self.top], self.page.console.width
            self.page.draw(lambda table: hop_table(table, shown, self.glyphs, width))
            self.page.more(len(worst) - self.top, "hop")
        self._mrc()
        self.page.section("Congestion", verdicts.congestion(analysis))
        self._table(tables.CONGESTION)
        self._imbalance()
        self.page.section("Messages and latency", verdicts.latency(analysis))
        self._table(tables.LATENCY)
        self._events()
        self._conformance()
        self._rdma_ports()
        self._footnotes()

    def _diagnosis(self) -> bool:
        """The diagnosis in a few rows; whether they hold all of it."""
        shown, complete = in_few_rows(
            self.analysis.diagnosis,
            self.begin_ns,
            self.glyphs,
            lambda line: len(self._wrapped(line)),
            lambda complete: len(self._heading(complete).wrap(self.console, self.console.width)),
        )
        self.console.print(self._heading(complete))
        for line in shown:
            self._paragraph(line)
        return complete

    def _heading(self, complete: bool) -> Text:
        heading = Text("DIAGNOSIS", "bold")
        heading.append(f"  {words.heading(self.analysis.diagnosis)}", "not bold")
        if not complete:
            where = ": --format json" if self.brief else " at the end"
            heading.append(f"  (in full{where})", "dim")
        return heading

    def _paragraph(self, line: Line) -> None:
        self.page.say(line.text, line.style, len(line.mark) + 1, line.mark)

    def _wrapped(self, line: Line) -> Sequence[Text]:
        return self.page.wrapped(line.text, len(line.mark) + 1)

    def _table(self, kind: FlowTable) -> None:
        """The flows of the table, in descending order of weight."""
        flows = [flow for flow in self.analysis.flows if kind.fits(flow)]
        if not flows:
            return
        if not self.sorted:
            flows.sort(key=kind.weight, reverse=True)
        shown = flows[: self.top]
        self.listed |= {flow.id for flow in shown}
        self.page.draw(lambda table: kind.fill(table, shown, self.glyphs, self.wide), True)
        self.page.more(len(flows) - self.top, "flow")
        if kind.legend:
            self.page.say(kind.legend, "dim")

    def captures(self) -> None:
        """Print the contents of the captures, and the limits of trust."""
        analysis = self.analysis
        packets = sum(capture.roce_packets for capture in analysis.captures)
        captures = analysis.captures
        name = captures[0].name if len(captures) == 1 else f"{len(captures)} captures"
        text = f"{name}: {self._packets(packets)}"
        if analysis.flows:
            every: list[Flow | Ended] = [*analysis.flows, analysis.left]
            first = min(flow.first_time_ns for flow in every if flow.first_time_ns is not None)
            length = max(f.last_time_ns for f in every if f.last_time_ns is not None) - first
            text += f" in {human.duration(length)}"
            if length > 0:
                sent = sum(flow.wire_bytes for flow in every)
                text += f", {human.rate(sent * 8e9 / length)}"
        others = sum(capture.frames for capture in captures) - packets
        if others > 0:
            text += f"; {human.counted(others, 'other frame')}"
        self.page.say(text, "bold")
        warnings = analysis.warnings
        self.page.warn(warnings[: self.top])
        self.page.more(len(warnings) - self.top, "warning")
        if not warnings:
            self.page.say(f"{self.glyphs.good} {verdicts.trust(analysis)}", "green")
        for line in mirrors(analysis)[: self.top]:
            self.page.say(line)
        if ended := verdicts.ended(analysis):
            self.page.say(ended)
        for line in filter(None, (verdicts.snapped(analysis), verdicts.icrc(analysis))):
            self.page.say(line, "dim")
        if len(captures) > 1:
            self.page.draw(lambda table: capture_table(table, captures[: self.top], self.glyphs))
            self.page.more(len(captures) - self.top, "capture")

    def _packets(self, captured: int) -> str:
        """`1,000 RoCE packets`, without packets excluded by a filter, and the number of copies."""
        flows: list[Flow | Ended] = [*self.analysis.flows, self.analysis.left]
        copies = sum(flow.tap_copies for flow in flows)
        passed = sum(flow.packets for flow in flows) + copies
        passed += self.analysis.left.untracked_packets
        text = human.counted(captured, "RoCE packet")
        text = text if passed >= captured else f"{human.count(passed)} of {text}"
        return f"{text} ({human.count(copies)} already seen at another tap)" if copies else text

    def _mrc(self) -> None:
        summary = self.analysis.mrc
        if isinstance(summary, UnsetType):
            return
        self.page.section("MRC", mrc.mrc(self.analysis, summary))
        for line in mrc.outages(summary)[: self.top]:
            self.page.say(line, "red")
        self._table(mrc.MRC)
        if summary.planes is not None:
            self._planes(summary.planes)
        self._entropy_values()

    def _entropy_values(self) -> None:
        """MRC entropy values with the most losses, NACKs and skips, and the retired values."""
        troubled = mrc.troubled(self.analysis)
        shown = max(1, self.top // 2)
        if troubled:
            self.page.say("Entropy values with the most losses, NACKs and skips:")
            self.page.draw(lambda table: mrc.value_table(table, troubled[:shown]))
            self.page.more(len(troubled) - shown, "entropy value")
        retired = mrc.retired(self.analysis)
        if retired:
            self.page.say("Retired entropy values (causes are inferred; ?: possibly retired):")
            begin = words.first_ns(self.analysis)
            self.page.draw(lambda table: mrc.retired_table(table, retired[:shown], begin))
            self.page.say(
                "without: packets sent until the entropy value returned, or until the end",
                "dim",
            )
            self.page.more(len(retired) - shown, "entropy value")

    def _planes(self, planes: MrcPlanes) -> None:
        width = self.console.width
        self.page.draw(lambda table: mrc.plane_table(table, planes, self.glyphs, width))

    def _imbalance(self) -> None:
        records = sorted(self.analysis.imbalance, key=lambda r: r.max_over_mean, reverse=True)
        if not records:
            self.page.section("Imbalance", "No set of parallel paths was seen.")
            return
        self.page.section("Imbalance", verdicts.imbalance(records[0]))
        for number, record in enumerate(records[:3]):
            if number:
                self.page.say(verdicts.imbalance(record))
            if record.inferred:
                self.page.say("The paths are inferred, see --path-by.", "dim")
            self._shares(record)
            self.page.more(len(record.shares) - self.top, "path")
        self.page.more(len(records) - 3, "set of parallel paths", "sets of parallel paths")

    def _shares(self, record: Imbalance) -> None:
        width = self.console.width
        self.page.draw(lambda table: imbalance_table(table, record, self.top, self.glyphs, width))

    def _events(self) -> None:
        events = self.analysis.events
        if not events:
            return
        seen = len(events) + self.analysis.events_omitted
        shown = events[: min(self.top, 10)]
        text = human.counted(seen, "event")
        self.page.section(
            "Events", f"{text}; the first {len(shown)}:" if len(shown) < seen else f"{text}:"
        )
        self.page.draw(lambda table: event_table(table, shown, self.analysis, self.listed))

    def _conformance(self) -> None:
        result = self.analysis.conformance
        if isinstance(result, UnsetType):
            return
        self.page.section("Conformance", conformance.verdict(result), result.conformant)
        rules = [rule for rule in result.rules if rule.judged or rule.undecided]
        if rules:
            self.page.draw(lambda table: conformance.rule_table(table, rules, self.glyphs))
        for line in conformance.open_questions(rules):
            self.page.say(f"undecided: {line}", "dim")
        for line in filter(None, (conformance.idle_rules(result.rules), *result.notes)):
            self.page.say(line, "dim")
        for violation in result.violations[: self.top]:
            head, where = conformance.violation_lines(violation, self.glyphs)
            self.page.say(f"{self.glyphs.bad} {head}", "red")
            self.page.say(where, "dim", 2)
        left = len(result.violations) - min(self.top, len(result.violations))
        self.page.more(left + result.violations_omitted, "violation")
        if conformance.any_latency(result.latency):
            self.page.section("Recovery", "Latencies of loss recovery, measured at the taps:")
            self.page.draw(lambda table: conformance.latency_table(table, result.latency))
        for pacing in result.cnp:
            if pacing.ecn_marked_packets or pacing.cnps:
                self.page.section("CNPs", f"{pacing.tap}: {pacing.text}.")
                self.page.draw(partial(conformance.cnp_table, pacing=pacing))
        self._counters(result)

    def _counters(self, result: Conformance) -> None:
        checks = result.counters
        if not checks:
            return
        agree = sum(check.agrees is True for check in checks)
        known = sum(check.agrees is not None for check in checks)
        text = f"{checks[0].host}: {agree} of {known} counters agree with {checks[0].tap}."
        self.page.section("Host counters", text, agree == known)
        self.page.draw(lambda table: conformance.counter_table(table, checks, self.glyphs))
        for check in checks:
            if check.text:
                self.page.say(f"{check.counter}: {check.text}", "dim")

    def _rdma_ports(self) -> None:
        ports = self.analysis.rdma_ports
        if isinstance(ports, UnsetType):
            return
        self.page.section("RDMA ports", rdma_ports(ports))
        self.page.draw(lambda table: port_table(table, ports))

    def _ranks(self, ranks: Ranks) -> None:
        """Pairs of ranks, worst first, their matrix, and the arrival order."""
        self.page.section("Ranks", rank_tables.overview(ranks))
        worst = ranks.pairs[: self.top]
        self.page.draw(lambda table: rank_tables.rank_table(table, worst), drop=True)
        self.page.more(len(ranks.pairs) - self.top, "pair")
        self.page.say(rank_tables.PAIRS, "dim")
        matrix = rank_tables.Matrix.of(ranks, self.console.width)
        if matrix is not None:
            self.page.gap()
            self.page.draw(partial(matrix.fill, glyphs=self.glyphs))
            self.page.say(matrix.words, "dim")
        for timing in ranks.timing[: rank_tables.MOST_TIMED]:
            if timing.ranks:
                self.page.gap()
                self.page.draw(
                    partial(rank_tables.timing_table, timing=timing, most=self.top), drop=True
                )
                self.page.more(len(timing.ranks) - self.top, "rank")
                self.page.say(f"communicator {timing.comm}; {rank_tables.TIMING}", "dim")

    def _job_records(self) -> None:
        """Collectives as the job recorded them: troubles first."""
        records = self.analysis.job_records
        if not isinstance(records, JobRecords):
            return
        self.page.section("Recorded collectives", jobs.overview(records))
        troubles = jobs.troubles(records)
        for line in troubles[: self.top]:
            self.page.say(f"{self.glyphs.bad} {line}", "red")
        self.page.more(len(troubles) - self.top, "line")
        groups = records.groups[: self.top]
        self.page.draw(lambda table: jobs.group_table(table, groups))
        self.page.more(len(records.groups) - self.top, "group")
        remarks = jobs.remarks(records, [job.name for job in self.analysis.jobs])
        for line in remarks[: self.top]:
            self.page.say(line)
        self.page.more(len(remarks) - self.top, "line")
        self.page.say(jobs.GROUPS, "dim")

    def _footnotes(self) -> None:
        """Reasons for unknown values of flows with a PSN order, each reason once."""
        reasons: dict[str, list[int]] = {}
        for flow in verdicts.sequenced_flows(self.analysis):
            for note in flow.notes:
                reasons.setdefault(note, []).append(flow.id)
        if not (reasons or self.page.unknowns):
            return
        self.page.gap()
        if self.page.unknowns:
            self.page.say(f"{UNKNOWN}: not known from this capture", "dim")
        for note, ids in list(reasons.items())[: self.top]:
            listed = [id for id in ids if id in self.listed][:5]
            others = len(ids) - len(listed)
            named = [f"#{id}" for id in listed]
            named += [human.counted(others, "other flow" if listed else "flow")] * (others > 0)
            self.page.say(f"{', '.join(named)}: {note}", "dim")

    def _next(self) -> None:
        data = verdicts.data_flows(self.analysis)
        options = ["--format json"]
        goals = "all results as JSON"
        if len(data) > 1:
            worst = max(
                data, key=lambda f: (troubled_packets(f), f.reordered_packets or 0, f.wire_bytes)
            )
            chosen = f"src == {worst.src} and dst == {worst.dst}"
            chosen += f" and qp == {human.queue_pair(worst.dest_qp)}"
            which = "most affected" if troubled_packets(worst) else "largest"
            goals = f"only the {which} flow, or {goals}"
            options.insert(0, f"--filter '{chosen}'")
        self.page.gap()
        self.page.say(f"To get {goals}, add:", "dim")
        for option in options:
            self.page.line(f"  {option}", "dim")


# The report of `rocescope check`, and the conformance section of the report of `analyze`.


class CheckReport(Report):
    """Captures and their limits of trust, then the rules."""

    def print(self) -> None:
        """The whole section, the verdict first."""
        self.captures()
        self._conformance()
        result = self.analysis.conformance
        assert isinstance(result, Conformance)
        self._views(result)
        if self.page.unknowns:
            self.page.gap()
            self.page.say(f"{UNKNOWN}: not known from this capture", "dim")

    def _views(self, result: Conformance) -> None:
        views = sorted(result.views, key=lambda v: (v.violations, v.resent_packets), reverse=True)
        if not views:
            return
        text = (
            f"{human.counted(len(views), 'view')}, one per tap and direction of a connection;"
            " the position says where the tap is relative to the losses."
        )
        self.page.section("Taps", text)
        shown = views[: self.top]
        self.page.draw(lambda table: conformance.view_table(table, shown, self.glyphs))
        self.page.more(len(views) - self.top, "view")

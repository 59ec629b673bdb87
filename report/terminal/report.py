"""The report on a terminal: verdicts, and the most relevant rows of each table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import UnsetType
from rich.text import Text

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.conformance import Conformance
from ...analyzer.results.ended import Ended
from ...analyzer.results.flow import Flow
from ...analyzer.results.mrc import MrcPlanes
from ...analyzer.results.paths import Imbalance
from ...analyzer.results.ranks import Ranks
from ..words import diagnosis as words
from ..words import human, verdicts
from ..words.hops import worst_first
from ..words.human import UNKNOWN
from . import conformance_tables, tables
from . import hosts as host_tables
from . import mirrors as mirror_report
from . import mrc as mrc_report
from . import mrc_values as mrc_value_tables
from . import ranks as rank_tables
from .between_taps import between_taps, hop_table
from .diagnosis import Line, in_few_rows, in_full
from .page import Page
from .tables import (
    FlowTable,
    capture_table,
    event_table,
    imbalance_table,
    troubled_packets,
)

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
        self.glyphs, self.console = page.glyphs, page.console
        self.wide = page.console.width >= WIDE
        self.listed: set[int] = set()
        """Ids of the flows in the tables so far."""

    def print(self) -> None:
        """Print the diagnosis; unless `brief`, then the limits of trust and all tables."""
        complete = self._diagnosis()
        if self.brief:
            return
        self.page.gap()
        self.captures()
        self.tables()
        if self.analysis.flows:
            self._next()
        if not complete:
            self.page.section("Diagnosis in full")
            for line in in_full(self.analysis.diagnosis, self.glyphs):
                self._paragraph(line)

    def tables(self) -> None:
        """Print a section per kind of measurement."""
        analysis = self.analysis
        if not analysis.flows:
            some = any(capture.roce_packets for capture in analysis.captures)
            self.page.say(
                "No RoCE packet passes the filter." if some else "No RoCE flow was found."
            )
            self._rdma_ports()
            return
        self.page.section("Flows", verdicts.overview(analysis))
        self._table(tables.FLOWS)
        owned = host_tables.owners(analysis)
        if owned:
            self.page.section("Owners", owned)
            self._table(host_tables.OWNERS)
        if not isinstance(analysis.ranks, UnsetType):
            self._ranks(analysis.ranks)
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
        for line in mirror_report.mirrors(analysis)[: self.top]:
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
        self.page.section("MRC", mrc_report.mrc(self.analysis, summary))
        for line in mrc_report.outages(summary)[: self.top]:
            self.page.say(line, "red")
        self._table(mrc_report.MRC)
        if summary.planes is not None:
            self._planes(summary.planes)
        self._entropy_values()

    def _entropy_values(self) -> None:
        """MRC entropy values with the most losses, NACKs and skips, and the retired values."""
        troubled = mrc_value_tables.troubled(self.analysis)
        shown = max(1, self.top // 2)
        if troubled:
            self.page.say("Entropy values with the most losses, NACKs and skips:")
            self.page.draw(lambda table: mrc_value_tables.value_table(table, troubled[:shown]))
            self.page.more(len(troubled) - shown, "entropy value")
        retired = mrc_value_tables.retired(self.analysis)
        if retired:
            self.page.say("Retired entropy values (causes are inferred; ?: possibly retired):")
            begin = words.first_ns(self.analysis)
            self.page.draw(
                lambda table: mrc_value_tables.retired_table(table, retired[:shown], begin)
            )
            self.page.say(
                "without: packets sent until the entropy value returned, or until the end",
                "dim",
            )
            self.page.more(len(retired) - shown, "entropy value")

    def _planes(self, planes: MrcPlanes) -> None:
        width = self.console.width
        self.page.draw(lambda table: mrc_report.plane_table(table, planes, self.glyphs, width))

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
        self.page.section("Conformance", conformance_tables.verdict(result), result.conformant)
        rules = [rule for rule in result.rules if rule.judged or rule.undecided]
        if rules:
            self.page.draw(lambda table: conformance_tables.rule_table(table, rules, self.glyphs))
        for line in conformance_tables.open_questions(rules):
            self.page.say(f"undecided: {line}", "dim")
        for line in filter(None, (conformance_tables.idle_rules(result.rules), *result.notes)):
            self.page.say(line, "dim")
        for violation in result.violations[: self.top]:
            head, where = conformance_tables.violation_lines(violation, self.glyphs)
            self.page.say(f"{self.glyphs.bad} {head}", "red")
            self.page.say(where, "dim", 2)
        left = len(result.violations) - min(self.top, len(result.violations))
        self.page.more(left + result.violations_omitted, "violation")
        if conformance_tables.any_latency(result.latency):
            self.page.section("Recovery", "Latencies of loss recovery, measured at the taps:")
            self.page.draw(lambda table: conformance_tables.latency_table(table, result.latency))
        for pacing in result.cnp:
            if pacing.ecn_marked_packets or pacing.cnps:
                self.page.section("CNPs", f"{pacing.tap}: {pacing.text}.")
                self.page.draw(partial(conformance_tables.cnp_table, pacing=pacing))
        self._counters(result)

    def _counters(self, result: Conformance) -> None:
        checks = result.counters
        if not checks:
            return
        agree = sum(check.agrees is True for check in checks)
        known = sum(check.agrees is not None for check in checks)
        text = f"{checks[0].host}: {agree} of {known} counters agree with {checks[0].tap}."
        self.page.section("Host counters", text, agree == known)
        self.page.draw(lambda table: conformance_tables.counter_table(table, checks, self.glyphs))
        for check in checks:
            if check.text:
                self.page.say(f"{check.counter}: {check.text}", "dim")

    def _rdma_ports(self) -> None:
        ports = self.analysis.rdma_ports
        if isinstance(ports, UnsetType):
            return
        self.page.section("RDMA ports", host_tables.rdma_ports(ports))
        self.page.draw(lambda table: host_tables.port_table(table, ports))

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

"""Fabrics on a terminal: what was discovered, checked, and what changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from typing import TextIO

from rich.table import Table
from rich.text import Text

from ...discovery.discover import LOST
from ...discovery.folder import NO_ANSWER, UNEXPECTED, UNREADABLE
from ...discovery.follow import FollowEvent, FollowSummary, Move
from ...discovery.results import Discovery, Remark
from ...replay.flows.checks import BlastRadius, FabricReport, HostPaths, Layer, TableSize, Tier
from .. import human
from .page import ColorWhen, Page, folded, numbers, page_on, texts
from .ranks import ranks_text

_FINDINGS = (LOST, NO_ANSWER, UNREADABLE, UNEXPECTED)
"""Kinds of remarks that are faults of devices or of their answers."""
_MOST_REMARKS = 20
"""Of one kind."""
_MOST_ROWS = 1000


def fill_discovery(page: Page, result: Discovery) -> None:
    """What was found, what contradicts it, and what was not read."""
    title = (
        f"{result.source}: "
        f"{human.counted(result.switches, 'switch', 'switches')}, "
        f"{human.counted(result.hosts, 'host')}, {human.counted(len(result.links), 'link')}, "
        f"from the answers of {human.counted(len(result.devices), 'device')}"
    )
    page.line(title, "bold")
    for kind, remarks in _by_kind(result.remarks):
        bad = kind in _FINDINGS
        sign = page.glyphs.bad if bad else page.glyphs.warning
        for remark in remarks[:_MOST_REMARKS]:
            page.say(f"{sign} {_text(remark)}", "red" if bad else "yellow")
        page.left_out(len(remarks) - _MOST_REMARKS, f"remark: {kind}", f"remarks: {kind}")
    if result.switches_without_tables:
        names = ", ".join(result.switches_without_tables[:_MOST_REMARKS])
        left = len(result.switches_without_tables) - _MOST_REMARKS
        more = f" and {human.count(left)} more" if left > 0 else ""
        page.say(
            f"{page.glyphs.warning} Tables not read, shortest paths assumed: {names}{more}",
            "yellow",
        )
    if result.queue_pairs:
        known = sum(pair.inferred_peer is not None for pair in result.queue_pairs)
        hosts = len({pair.host for pair in result.queue_pairs})
        pairs = human.counted(len(result.queue_pairs), "queue pair")
        page.say(f"{pairs} on {human.counted(hosts, 'host')}; the peer of {known} is inferred")
    page.section("Devices")
    page.draw(lambda table: _devices(table, result))
    page.left_out(len(result.devices) - _MOST_ROWS, "device")
    page.section("Links")
    page.draw(lambda table: _links(table, result))
    page.left_out(len(result.links) - _MOST_ROWS, "link")


def _by_kind(remarks: list[Remark]) -> list[tuple[str, list[Remark]]]:
    """Remarks of one kind together, findings first, in the order of their appearance."""
    kinds: dict[str, list[Remark]] = {}
    for remark in sorted(remarks, key=lambda entry: entry.kind not in _FINDINGS):
        kinds.setdefault(remark.kind, []).append(remark)
    return list(kinds.items())


def _text(remark: Remark) -> str:
    device = f"{remark.device}: " if remark.device else ""
    return f"{remark.kind}: {device}{remark.text}"


def _devices(table: Table, result: Discovery) -> None:
    texts(table, "device", "kind", "dialect", "hash")
    folded(table, "not read")
    for row in result.devices[:_MOST_ROWS]:
        cells = (row.name, row.kind, row.dialect, row.hash or "-", ", ".join(row.not_read) or "-")
        table.add_row(*map(Text, cells))


def _links(table: Table, result: Discovery) -> None:
    texts(table, "link", "ports")
    folded(table, "evidence")
    for link in result.links[:_MOST_ROWS]:
        ports = " - ".join(port or "?" for port in link.ports)
        cells = (link.name.replace(">", "-"), ports, link.evidence)
        table.add_row(*map(Text, cells))


# Events of `trace --follow` on a terminal: a line for each, then the flows that moved.

_LOST = "switches that were lost"


class FollowPrinter:
    """Prints events as they come."""

    def __init__(self, stream: TextIO, top: int, color: ColorWhen) -> None:
        self._stream, self._top = stream, top
        self._page = page_on(stream, color)
        self._fim: float | None = None

    def event(self, event: FollowEvent) -> None:
        """One event; of the flows that moved the first `top`."""
        page, when = self._page, f"{event.time[11:23]} "
        names = ", ".join(event.devices[: self._top])
        if len(event.devices) > self._top:
            names += f" and {human.count(len(event.devices) - self._top)} more"
        if event.kind == "began":
            page.line(
                f"{when}following {human.counted(event.flows, 'flow')} over "
                f"{human.counted(len(event.devices), 'switch', 'switches')}, "
                f"{human.count(event.complete_flows)} with a known path; {_fim(event)}"
            )
        elif event.kind == "changed":
            was = "" if self._fim is None else f" (before {self._fim:.1f} %)"
            page.line(
                f"{when}{names} changed: {human.counted(event.moved_flows, 'flow')} moved, "
                f"{human.count(event.complete_flows)} of {human.count(event.flows)} with a known "
                f"path; {_fim(event)}{was}"
            )
            self._moves(event.moves)
        elif event.kind == "flows":
            page.line(
                f"{when}{human.counted(event.new_flows, 'new flow')}: "
                f"{human.count(event.complete_flows)} of {human.count(event.flows)} with a known "
                f"path; {_fim(event)}"
            )
            self._paths(event.moves)
        elif event.kind == "lost":
            page.line(f"{when}{page.glyphs.bad} {names} lost: {event.problem}", "red")
        elif event.kind == "back":
            page.line(f"{when}{names} back")
        for text in event.remarks[: self._top]:
            page.line(f"  {page.glyphs.warning} {text}", "yellow")
        page.left_out(len(event.remarks) - self._top, "remark")
        if event.kind == "began" and event.lost_devices:
            lost = ", ".join(event.lost_devices[: self._top])
            count = human.counted(len(event.lost_devices), "switch", "switches")
            page.line(f"  {page.glyphs.bad} lost: {count}: {lost}", "red")
        self._fim = event.fim_percent
        self._stream.flush()

    def _paths(self, moves: list[Move]) -> None:
        """The paths of new flows."""
        for move in moves[: self._top]:
            why = "" if move.ends_because is None else f" ({move.ends_because})"
            self._page.line(f"  {_flow(move)}: {' '.join(move.after) or 'no path'}{why}")
        if len(moves) > self._top:
            self._page.line(f"  and {human.counted(len(moves) - self._top, 'flow')} more")

    def _moves(self, moves: list[Move]) -> None:
        kinds = Counter(_step(move) for move in moves)
        for (before, after, why), flows in kinds.most_common(self._top):
            reason = f" ({why})" if why else ""
            self._page.line(f"  {human.counted(flows, 'flow')}: {before} to {after}{reason}")
        for move in moves[: self._top]:
            self._page.line(
                f"  {_flow(move)}: "
                f"{' '.join(move.before) or 'no path'} to {' '.join(move.after) or 'no path'}"
            )
        if len(moves) > self._top:
            self._page.line(f"  and {human.counted(len(moves) - self._top, 'flow')} more")

    def summary(self, event: FollowEvent, summary: FollowSummary) -> None:
        """The end."""
        page = self._page
        page.section("Followed")
        least, most = summary.fim_least_percent, summary.fim_most_percent
        fim = "" if least is None else f" FIM was {least:.1f} % to {most:.1f} %."
        page.say(
            f"{human.counted(summary.changes, 'change')} in "
            f"{human.duration(summary.seconds * 1e9)}, {human.counted(event.moved_flows, 'move')} "
            f"of flows, {human.counted(summary.readings, 'reading')} of switches.{fim}"
        )
        page.left_out(len(summary.ever_lost) - self._top, "switch that was lost", _LOST)
        for name, seconds in list(summary.ever_lost.items())[: self._top]:
            still = ", and is still lost" if name in event.lost_devices else ""
            without = human.duration(seconds * 1e9)
            page.say(f"{page.glyphs.bad} {name} was lost for {without}{still}", "red")
        never = [name for name in event.lost_devices if name not in summary.ever_lost]
        if never:
            names = ", ".join(never[: self._top])
            page.say(
                f"{page.glyphs.bad} no answer since the start: "
                f"{human.counted(len(never), 'switch', 'switches')}: {names}; their paths are "
                "those of the fabric file",
                "red",
            )


def _flow(move: Move) -> str:
    ranks = ranks_text(move.src_rank, move.dst_rank)
    of_ranks = f" ranks {ranks}" if ranks else ""
    flow = f"{move.src}>{move.dst} QP {human.queue_pair(move.dest_qp)}"
    return f"{flow} port {move.src_port}{of_ranks}"


def _fim(event: FollowEvent) -> str:
    return "FIM unknown" if event.fim_percent is None else f"FIM {event.fim_percent:.1f} %"


def _step(move: Move) -> tuple[str, str, str | None]:
    """The first links of a path that differ, and why it ends now if it does."""
    for before, after in zip_longest(move.before, move.after, fillvalue="no link"):
        if before != after:
            return before, after, move.ends_because
    return "the same links", "the same links", move.ends_because


# The result of a fabric check on a terminal: verdict, tiers, links and tables.


def fill_fabric(page: Page, report: FabricReport) -> None:
    """The verdict first, then tiers and links."""
    glyphs = page.glyphs
    ports = f" with {report.host_ports} ports each" if report.host_ports > 1 else ""
    page.say(
        f"{report.name}: {human.counted(report.hosts, 'host')}{ports}, "
        f"{human.counted(report.switches, 'switch', 'switches')}"
    )
    for problem in report.problems:
        page.say(f"{glyphs.bad} {problem}", "red")
    if report.is_sound:
        page.say(
            f"{glyphs.good} Every host reaches every other host over at most "
            f"{report.longest_path_links or 0} links; there are no loops."
        )
    if report.bisection_bits_per_second is not None:
        page.say(
            f"Bisection bandwidth: {human.rate(report.bisection_bits_per_second)}, "
            f"{human.percent(report.bisection_ratio)} of the host links of one half.",
            indent=2,
        )
    if not report.shortest_paths:
        routes = "Routes are fixed, not computed: a failed link only leaves its ECMP groups."
        page.say(routes, indent=2)
    page.section("Tiers")
    page.draw(lambda table: _tiers(table, report.tiers))
    page.section("Links")
    page.draw(lambda table: _layers(table, report.layers, glyphs.bad))
    page.gap()
    page.say("TABLES of the largest switch of each tier", "bold")
    page.draw(lambda table: _tables(table, report.tables))
    if report.paths is not None:
        pair = f"{report.paths.source} to {report.paths.destination}"
        page.gap()
        page.say(f"PATHS {pair}", "bold")
        page.say(_paths(report.paths))
    if report.blast_radii:
        radius = report.blast_radii[0]
        page.gap()
        page.say("BLAST RADIUS of each element failing alone", "bold")
        page.draw(lambda table: _radii(table, report.blast_radii))
        same = {(each.source, each.destination) for each in report.blast_radii}
        pair = (
            f"{radius.source} to {radius.destination}"
            if len(same) == 1
            else "a host below to a distant host"
        )
        page.say(
            "hosts: below the element; cut off: hosts without any path; capacity, uplinks: "
            f"largest share lost by one host, by one switch; paths left from {pair}.",
            "dim",
        )


def _tiers(table: Table, tiers: list[Tier]) -> None:
    texts(table, "tier")
    numbers(table, "switches", "down", "up", "oversubscription")
    for tier in tiers:
        table.add_row(
            tier.name,
            human.count(tier.switches),
            human.rate(tier.downlink_bits_per_second),
            human.rate(tier.uplink_bits_per_second) if tier.uplink_bits_per_second else "-",
            _ratio(tier),
        )


def _ratio(tier: Tier) -> str:
    if tier.oversubscription_min is None or tier.oversubscription_max is None:
        return "-"
    ratios = [tier.oversubscription_min, tier.oversubscription_max]
    return human.span([round(r, 2) for r in ratios], lambda r: f"{r:g}:1")


def _layers(table: Table, layers: list[Layer], mark: str) -> None:
    texts(table, "layer")
    numbers(table, "links", "down", "rate", "delay", "capacity", "choices")
    for layer in layers:
        table.add_row(
            layer.name,
            human.count(layer.links),
            Text(f"{mark} {layer.down:,}", "red") if layer.down else Text("0"),
            _range(layer.rate_min_bits_per_second, layer.rate_max_bits_per_second, human.rate),
            _range(layer.delay_min_ns, layer.delay_max_ns, human.duration),
            human.rate(layer.capacity_bits_per_second),
            human.span(list(layer.group_sizes), str) if layer.group_sizes else "-",
        )


def _tables(table: Table, sizes: list[TableSize]) -> None:
    texts(table, "tier")
    numbers(table, "ECMP routes", "groups", "members", "or static SRv6")
    for size in sizes:
        counts = (size.routes, size.groups, size.members, size.static_srv6)
        table.add_row(size.tier, *(f"{count:,}" for count in counts))


def _paths(result: HostPaths) -> str:
    if not result.paths:
        return "none: the hosts cannot reach each other"
    by_port = {port.paths for port in result.ports}
    ports = len(result.ports)
    over = f", {human.span(sorted(by_port), str)} by each of {ports} ports" if ports > 1 else ""
    switches = human.counted((result.longest_links or 1) - 1, "switch", "switches")
    return f"{result.paths:,} of equal cost{over}, through at most {switches}"


def _radii(table: Table, radii: list[BlastRadius]) -> None:
    folded(table, "element")
    numbers(table, "links", "hosts", "cut off", "capacity", "uplinks", "paths left")
    for radius in radii:
        table.add_row(
            radius.element,
            f"{radius.links:,}",
            f"{radius.hosts_below:,}",
            f"{radius.hosts_cut_off:,}",
            _lost(radius.host_capacity_percent),
            _lost(radius.uplink_capacity_percent),
            f"{radius.paths_after:,}/{radius.paths_before:,}",
        )


def _lost(percent: float) -> str:
    return f"{percent:.3g} %" if percent else "-"


def _range(low: float, high: float, show: Callable[[float], str]) -> str:
    """`400 Gb/s`, `50.0-400 Gb/s`, `500 ns-1.00 us`."""
    first, last = show(low), show(high)
    if first == last:
        return last
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first}-{last}"

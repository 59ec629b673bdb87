"""The result of a fabric check on a terminal: verdict, tiers, links and tables."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from ...replay.flows.checks.blast_radius import BlastRadius
from ...replay.flows.checks.fabric_check import FabricReport, Layer, Tier
from ...replay.flows.checks.path_counts import HostPaths
from ...replay.flows.checks.table_sizes import TableSize
from ..words import human
from .page import Page, folded, numbers, texts


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

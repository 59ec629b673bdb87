"""The result of `replay` on a terminal: the strategies, then the worst links of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TextIO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ...replay.results.base import EXACT, Chance, FabricSummary, TrafficSummary
from ...replay.results.replay import LayerLoad, ReplayResult, StrategyResult, SwitchHash
from ..words import human
from ..words.human import ASCII, UNICODE
from .report import console_for
from .tables import new_table

NONE = "-"
_MAPPED = 8
"""Addresses printed with their host."""
_HASHES = 8
"""Switches whose hash is printed, per origin."""
_SEEDS_FROM = {
    "fabric": "Seeds of the fabric",
    "option": "Seeds of the options",
    "default": "Hash or seed not known, seeds derived from 0",
}


class Page:
    """A console with the parts that all reports of the replay share."""

    def __init__(self, stream: TextIO, color: Literal["auto", "always", "never"]) -> None:
        self.console: Console = console_for(stream, color)
        self.glyphs = UNICODE if self.console.encoding.lower().startswith("utf") else ASCII

    def say(self, text: str, style: str = "", indent: int = 0) -> None:
        """A paragraph; the lines after the first are indented to match."""
        for line in Text(text).wrap(self.console, max(20, self.console.width - indent)):
            line.rstrip()
            self.console.print(Text(" " * indent + line.plain, style), soft_wrap=True)

    def section(self, title: str, text: str = "") -> None:
        """A heading with its sentence."""
        self.console.print()
        self.console.print(Text(title.upper(), "bold"))
        if text:
            self.say(text)

    def draw(self, fill: Callable[[Table], None]) -> None:
        """A table, with wide gaps between its columns if they fit."""
        table = new_table(2)
        fill(table)
        unlimited = self.console.options.update(max_width=10_000)
        if Measurement.get(self.console, unlimited, table).maximum > self.console.width:
            table.padding = (0, 1, 0, 0)
        self.console.print(table)

    def head(self, traffic: TrafficSummary, fabric: FabricSummary, warnings: list[str]) -> None:
        """The traffic, the fabric and the warnings."""
        several = f"{len(traffic.sources)} captures"
        name = traffic.sources[0] if len(traffic.sources) == 1 else several
        sprayed = f" ({human.count(traffic.units)} entropy values)"
        text = (
            f"{name}: {human.counted(traffic.flows, 'flow')}"
            f"{sprayed if traffic.units > traffic.flows else ''}, "
            f"{human.size(traffic.wire_bytes)}, {human.counted(traffic.hosts, 'host')}"
        )
        self.console.print(Text(text, "bold"), soft_wrap=True)
        down = f", {fabric.links_down} down" if fabric.links_down else ""
        self.say(
            f"on {fabric.spec}: {human.counted(fabric.switches, 'switch', 'switches')}, "
            f"{human.counted(fabric.hosts, 'host')}, "
            f"{human.count(fabric.links)} one-way links{down}"
        )
        mapping = traffic.mapping
        if mapping is not None and mapping.rule != EXACT:
            pairs = [f"{address} {host}" for address, host in mapping.hosts.items()]
            more = ", ..." * (len(pairs) > _MAPPED)
            self.say(f"mapping: {mapping.rule}; {', '.join(pairs[:_MAPPED])}{more}")
        for line in warnings:
            self.say(f"{self.glyphs.warning} {line}", "yellow")


def fim(value: float | None) -> str:
    """A FIM in percent, `-` without load."""
    return NONE if value is None else f"{value:.1f}"


def factor(value: float | None) -> str:
    """How many times the mean, `-` without load."""
    return NONE if value is None else f"{value:.2f}"


def chance_text(chance: Chance | None) -> str:
    """`24.2 (18 to 31)`: the mean, and the range of 90 % of random draws."""
    return NONE if chance is None else f"{chance.mean:.1f} ({chance.p05:.0f} to {chance.p95:.0f})"


def print_replay(
    result: ReplayResult,
    stream: TextIO,
    top: int = 5,
    color: Literal["auto", "always", "never"] = "auto",
) -> None:
    """Print the comparison, and the `top` worst links and flows of each strategy."""
    page = Page(stream, color)
    page.head(result.traffic, result.fabric, result.warnings)
    if not result.strategies:  # interrupted before the first was finished
        return
    if any(one.packets for one in result.strategies):
        from .replay_packets import print_packets, print_strategy

        print_packets(page, result)
    else:
        print_comparison(page, result)
    for one in result.strategies:
        if one.packets is None:
            print_flow_strategy(page, one, top)
        else:
            print_strategy(page, one)


def print_comparison(page: Page, result: ReplayResult) -> None:
    """Print the strategies of whole flows, one per row."""
    page.section("Strategies", verdict(result))
    page.draw(lambda table: _strategies(table, result.strategies))


def verdict(result: ReplayResult) -> str:
    """The strategy with the smallest overload of its fullest link, in one sentence."""
    known = [one for one in result.strategies if one.max_over_mean]
    if not known:
        return "No strategy had a choice of links for this traffic."
    best = min(known, key=lambda one: one.max_over_mean or 0)
    worst = max(known, key=lambda one: one.max_over_mean or 0)
    text = (
        f"{_title(best)} puts {factor(best.max_over_mean)} times the fair share of bytes on the "
        "fullest link between switches"
    )
    if factor(best.max_over_mean) == factor(worst.max_over_mean):
        return f"{text}{'; the other strategies do the same' if len(known) > 1 else ''}."
    return f"{text}; {_title(worst)} puts {factor(worst.max_over_mean)} times."


def _title(one: StrategyResult) -> str:
    """The name, with the parameters that distinguish strategies of that name."""
    shown = [f"{k}={v}" for k, v in one.parameters.items() if k in ("hash", "k", "by", "seed")]
    return f"{one.name} ({', '.join(shown)})" if shown else one.name


def _strategies(table: Table, results: list[StrategyResult]) -> None:
    table.add_column("strategy", overflow="fold")
    for heading in ("FIM %", "x fair", "busiest link", "busy for"):
        table.add_column(heading, justify="right", no_wrap=heading != "busiest link")
    for one in results:
        table.add_row(
            _title(one),
            fim(one.fim_percent),
            factor(one.max_over_mean),
            one.busiest_link or NONE,
            human.duration(one.lower_bound_ns),
        )


def print_flow_strategy(page: Page, one: StrategyResult, top: int) -> None:
    """Print the layers and the worst links of one strategy."""
    page.section(_title(one))
    for note in one.notes:
        page.say(f"{page.glyphs.warning} {note}", "yellow")
    say_hashes(page, one.switches)
    page.draw(lambda table: _layers(table, one.layers))
    with_acks = [layer for layer in one.layers if layer.choice and layer.fim_all_flows_percent]
    if with_acks:
        told = (
            f"{layer.layer} {fim(layer.fim_all_flows_percent)} % "
            f"({human.counted(layer.flows or 0, 'flow')})"
            for layer in with_acks
        )
        page.say(f"FIM of all flows, those with only ACKs included: {', '.join(told)}.", "dim")
    if one.solver is not None:
        page.say(
            f"Solver: {one.solver.status}; the busiest link is at most "
            f"{human.percent(one.solver.gap)} above the optimum.",
            "dim",
        )
    if any(layer.over_time for layer in one.layers):
        page.say("Per window, so that only flows of the same window collide:", "dim")
        page.draw(lambda table: _over_time(table, one.layers))
    if one.worst:
        page.draw(lambda table: _worst(table, one, top))


def say_hashes(page: Page, switches: list[SwitchHash]) -> None:
    """The hash of every switch of a fabric that sets some."""
    for origin, words in _SEEDS_FROM.items():
        those = [one for one in switches if one.seed_from == origin]
        if those:
            told = [f"{s.switch} {s.hash} ({s.fields}) 0x{s.seed:x}" for s in those[:_HASHES]]
            more = f", and {len(those) - _HASHES} more: --format json" * (len(those) > _HASHES)
            page.say(f"{words}: {', '.join(told)}{more}.", "dim")


def _layers(table: Table, layers: list[LayerLoad]) -> None:
    table.add_column("layer", no_wrap=True)
    for heading in ("links", "idle", "flows", "FIM %", "chance", "bound", "FIM % bytes", "x fair"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in layers:
        if not layer.choice:
            continue
        table.add_row(
            layer.layer,
            human.count(layer.links),
            human.count(layer.idle_links),
            NONE if layer.flows is None else human.count(layer.data_flows or layer.flows),
            fim(layer.fim_flows_percent),
            chance_text(layer.fim_chance_percent),
            fim(layer.fim_flows_best_percent),
            fim(layer.fim_bytes_percent),
            factor(layer.max_over_mean),
        )


def _over_time(table: Table, layers: list[LayerLoad]) -> None:
    table.add_column("layer", no_wrap=True)
    for heading in ("windows", "FIM % bytes", "max/mean", "peak", "utilisation"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in layers:
        over = layer.over_time
        if over is not None and layer.choice:
            table.add_row(
                layer.layer,
                human.count(over.windows),
                fim(over.fim_bytes_percent),
                factor(over.max_over_mean),
                human.rate(over.peak_bits_per_second),
                human.percent(over.peak_utilisation),
            )


def _worst(table: Table, one: StrategyResult, top: int) -> None:
    at_once = any(collision.flows_at_once is not None for collision in one.worst)
    table.add_column("worst links", no_wrap=True)
    for heading in ("bytes", "x fair", "flows", *(("concurrent",) if at_once else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("largest flows on it", overflow="fold")
    for collision in one.worst[:top]:
        largest = ", ".join(
            f"{flow.src}>{flow.dst} {human.queue_pair(flow.dest_qp)}"
            for flow in collision.largest[: min(top, 3)]
        )
        cells = [
            collision.link,
            human.size(collision.wire_bytes),
            factor(collision.over_mean),
            human.count(collision.flows),
        ]
        if at_once:
            cells.append(human.count(collision.flows_at_once))
        table.add_row(*cells, largest + (", ..." if collision.flows > 3 else ""))

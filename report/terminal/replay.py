"""The result of `replay` on a terminal: the strategies, then the worst links of each."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from ...replay.results.replay import CollidingFlow, LayerLoad, ReplayResult, StrategyResult
from ..words import human
from .page import Page, folded, numbers, texts
from .ranks import ranks_text
from .replay_packets import print_packets, print_strategy
from .replay_parts import (
    NONE,
    captured_links,
    chance_text,
    factor,
    fim,
    print_head,
    say_hashes,
)
from .replay_varied import print_varied


def fill_replay(
    page: Page, result: ReplayResult, top: int = 5, charts: Callable[[], object] = bool
) -> None:
    """The comparison, then the `top` worst links and flows of each strategy; charts: called between
    them."""
    print_head(page, result.traffic, result.fabric, result.warnings)
    if result.varied:
        print_varied(page, result)
        charts()
        return
    if not result.strategies:  # interrupted before the first was finished
        return
    if any(strategy.packets for strategy in result.strategies):
        print_packets(page, result)
    else:
        print_comparison(page, result)
    charts()
    for strategy in result.strategies:
        if strategy.packets is None:
            print_flow_strategy(page, strategy, top)
        else:
            print_strategy(page, strategy, top)


def print_comparison(page: Page, result: ReplayResult) -> None:
    """Print the strategies of whole flows, one per row."""
    page.section("Strategies", verdict(result))
    page.draw(lambda table: _strategies(table, result.strategies))
    if note := captured_links(result.strategies):
        page.say(note, "dim")


def verdict(result: ReplayResult) -> str:
    """The strategy with the smallest overload of its fullest link, in one sentence."""
    known = [strategy for strategy in result.strategies if strategy.max_over_mean]
    if not known:
        return "No strategy had a choice of links for this traffic."
    best = min(known, key=lambda strategy: strategy.max_over_mean or 0)
    worst = max(known, key=lambda strategy: strategy.max_over_mean or 0)
    text = (
        f"{best.title} puts {factor(best.max_over_mean)} times the fair share of bytes on the "
        "fullest link between switches"
    )
    if factor(best.max_over_mean) == factor(worst.max_over_mean):
        return f"{text}{'; the other strategies do the same' if len(known) > 1 else ''}."
    return f"{text}; {worst.title} puts {factor(worst.max_over_mean)} times."


def _strategies(table: Table, results: list[StrategyResult]) -> None:
    folded(table, "strategy")
    for heading in ("FIM %", "x fair", "busiest link", "busy for"):
        table.add_column(heading, justify="right", no_wrap=heading != "busiest link")
    for strategy in results:
        table.add_row(
            strategy.title,
            fim(strategy.fim_percent),
            factor(strategy.max_over_mean),
            strategy.busiest_link or NONE,
            human.duration(strategy.lower_bound_ns),
        )


def print_flow_strategy(page: Page, strategy: StrategyResult, top: int) -> None:
    """Print the layers and the worst links of one strategy."""
    page.section(strategy.title)
    page.warn(strategy.notes)
    say_hashes(page, strategy.switches)
    if any(layer.choice for layer in strategy.layers):
        page.draw(lambda table: _layers(table, strategy.layers))
    with_acks = [layer for layer in strategy.layers if layer.choice and layer.fim_all_flows_percent]
    if with_acks:
        note = (
            f"{layer.layer} {fim(layer.fim_all_flows_percent)} % "
            f"({human.counted(layer.flows or 0, 'flow')})"
            for layer in with_acks
        )
        page.say(f"FIM with flows of ACKs: {', '.join(note)}.", "dim")
    if strategy.solver is not None:
        page.say(
            f"Solver: {strategy.solver.status}; the busiest link is at most "
            f"{human.percent(strategy.solver.gap)} above the optimum.",
            "dim",
        )
    if any(layer.over_time for layer in strategy.layers):
        page.say("Per window, so that only flows of the same window collide:", "dim")
        page.draw(lambda table: _over_time(table, strategy.layers))
    if strategy.worst:
        page.draw(lambda table: _worst(table, strategy, top))


def _layers(table: Table, layers: list[LayerLoad]) -> None:
    texts(table, "layer")
    numbers(table, "links", "idle", "flows", "FIM %", "chance", "bound", "FIM % bytes", "x fair")
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
    texts(table, "layer")
    numbers(table, "windows", "FIM % bytes", "max/mean", "peak", "utilisation")
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


def _ranks(flow: CollidingFlow) -> str:
    """` (rank 11>3)`; empty without logs."""
    text = ranks_text(flow.src_rank, flow.dst_rank)
    return f" (rank {text})" if text else ""


def _worst(table: Table, strategy: StrategyResult, top: int) -> None:
    at_once = any(collision.flows_at_once is not None for collision in strategy.worst)
    texts(table, "worst links")
    numbers(table, "bytes", "x fair", "flows", *(("concurrent",) if at_once else ()))
    folded(table, "largest flows on it")
    for collision in strategy.worst[:top]:
        largest = ", ".join(
            f"{flow.src}>{flow.dst} {human.queue_pair(flow.dest_qp)}{_ranks(flow)}"
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

"""The result of `replay` on a terminal: the strategies, then the worst links of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeAlias

from rich.table import Table

from ...replay.results import (
    CAPTURED,
    CollidingFlow,
    Decision,
    LayerLoad,
    ReplayResult,
    StrategyResult,
    VariedStrategy,
    short_titles,
)
from .. import human
from .page import Page, folded, numbers, texts
from .ranks import ranks_text
from .replay_packets import (
    NONE,
    captured_links,
    chance_text,
    factor,
    fim,
    print_head,
    print_packets,
    print_strategy,
    say_hashes,
)

# `--vary` on a terminal: one row per combination of values and strategy.

_Case: TypeAlias = tuple[float, dict[str, str], str, VariedStrategy]
"""Time in ns, values of the parameters, strategy, row."""


def print_varied(page: Page, result: ReplayResult) -> None:
    """The table; what is unknown or zero in all rows has no column."""
    rows = [row for each in result.varied for row in each.strategies]
    page.section("Other values", _verdict(result))
    for line in _by_strategy(result):
        page.say(line, indent=2)
    page.draw(lambda table: _rows(table, result))
    if any(row.jobs_ns for row in rows):
        page.draw(lambda table: _jobs(table, result))
    page.say("Traffic and fabric above are those of the first row.", "dim")
    first = next((each.packets for each in result.strategies), None)
    if first is not None and first.model.get("offer", "").startswith(CAPTURED):
        page.say(
            "Packets are offered at their captured times, which set the completion; with "
            "--offer closed each message begins after what it waited for.",
            "dim",
        )


def _verdict(result: ReplayResult) -> str:
    rows = list(_named(result))
    packets = any(row.by_packet for *_, row in rows)
    timed = [(time.mean, *row) for row in rows if (time := row[-1].compared_ns)]
    cases = human.counted(len(result.varied), "case")
    if packets and not timed:
        if any(row.lost_packets for *_, row in rows):
            return f"{cases}; packets are lost, and no case completes: --transport recovers them."
        return f"{cases}; none completes."
    if not timed:
        return f"{cases}; no link between switches carries data."
    best, worst = min(timed, key=itemgetter(0)), max(timed, key=itemgetter(0))
    alone = len({name for _, name, _ in rows}) == 1
    what = "" if packets else "the busiest link is busy for "
    text = f"{_name_case(best, alone)}, {what}{human.duration(best[0])}"
    if len(result.varied) == 1:
        name = next(iter(result.varied[0].settings), "")
        return f"One case: {text}; give several values to compare: --vary {name}=A,B."
    if len(timed) < len(rows):
        text += f" ({len(rows) - len(timed)} of {len(rows)} rows did not complete)"
    if human.duration(best[0]) == human.duration(worst[0]):
        return f"All {cases} alike: {what}{human.duration(best[0])}{_shares(timed, alone)}."
    if not alone:
        return f"Best is {text}."
    less = human.percent(1 - best[0] / worst[0])
    return (
        f"Best is {text}: {less} less than the worst, {_name_case(worst, alone)}, "
        f"{human.duration(worst[0])}."
    )


def _by_strategy(result: ReplayResult) -> Iterator[str]:
    """What the values change for each of several strategies, each compared with itself."""
    rows = list(_named(result))
    titles = list(dict.fromkeys(title for _, title, _ in rows))
    known = (row.compared_ns for *_, row in rows)
    times = {time and human.duration(time.mean) for time in known}
    if len(titles) < 2 or len(result.varied) < 2 or len(times) < 2:  # the verdict says it
        return
    for title in titles:
        cases = [row for row in rows if row[1] == title]
        timed = [(time.mean, *row) for row in cases if (time := row[-1].compared_ns)]
        if not timed:
            yield f"{title}: no case completes"
            continue
        best, worst = min(timed, key=itemgetter(0)), max(timed, key=itemgetter(0))
        least, most = human.duration(best[0]), human.duration(worst[0])
        missing = f"; {len(cases) - len(timed)} of {len(cases)} cases did not complete"
        missing = missing if len(timed) < len(cases) else ""
        if least == most:
            yield f"{title}: {least} in all cases{missing}"
            continue
        less = human.percent(1 - best[0] / worst[0])
        low, high = _name_case(best, True), _name_case(worst, True)
        yield f"{title}: {least} with {low}, {less} less than {most} with {high}{missing}"


def _shares(timed: list[_Case], alone: bool) -> str:
    """The least and the largest load of the busiest link, over its fair share."""
    known = [case for case in timed if case[3].max_over_mean is not None]
    ends = [end(known, key=lambda case: case[3].max_over_mean or 0) for end in (min, max) if known]
    loads = [f"{factor(case[3].max_over_mean)} ({_name_case(case, alone)})" for case in ends]
    if not ends or factor(ends[0][3].max_over_mean) == factor(ends[1][3].max_over_mean):
        return ""
    return f"; the busiest link has {loads[0]} to {loads[1]} times its fair share"


def _name_case(case: _Case, alone: bool) -> str:
    """`spines=8 with ecmp`; alone: there is one strategy."""
    settings = ", ".join(f"{key}={value}" for key, value in case[1].items())
    return settings if alone else f"{settings} with {case[2]}"


def _rows(table: Table, result: ReplayResult) -> None:
    rows = [row for case in result.varied for row in case.strategies]
    packets = any(row.by_packet for row in rows)
    extra = [
        (heading, name)
        for heading, name in (
            ("lost", "lost_packets"),
            ("retrans", "retransmitted_packets"),
            ("pauses", "pauses"),
        )
        if any(getattr(row, name) for row in rows)
    ]
    texts(table, *result.varied[0].settings, "strategy")
    numbers(table, *(("completion", "over bound", "max queue") if packets else ("busy for",)))
    numbers(table, "x fair", *(heading for heading, _ in extra))
    for settings, title, row in _named(result):
        cells = [*settings.values(), title]
        if packets:
            done, over = row.completion_ns, row.over_bound_percent
            cells.append(NONE if done is None else human.duration(done.mean))
            cells.append(NONE if over is None else f"{over.mean:.1f} %")
            cells.append(NONE if row.max_queue_packets is None else f"{row.max_queue_packets:.0f}")
        else:
            cells.append(human.duration(row.busy_ns))
        cells.append(factor(row.max_over_mean))
        for _, name in extra:
            value = getattr(row, name)
            cells.append(NONE if value is None else human.count(value))
        table.add_row(*cells)


def _jobs(table: Table, result: ReplayResult) -> None:
    rows = [row for case in result.varied for row in case.strategies]
    names = list(dict.fromkeys(name for row in rows for name in row.jobs_ns))
    texts(table, *result.varied[0].settings, "strategy")
    numbers(table, *names)
    for settings, title, row in _named(result):
        times = [row.jobs_ns.get(name) for name in names]
        shown = (NONE if time is None else human.duration(time) for time in times)
        table.add_row(*settings.values(), title, *shown)


def _named(result: ReplayResult) -> Iterator[tuple[dict[str, str], str, VariedStrategy]]:
    """Values of the parameters, strategy and row of every case."""
    for case in result.varied:
        for title, row in zip(short_titles(case.strategies), case.strategies, strict=True):
            yield case.settings, title, row


def fill_replay(
    page: Page, result: ReplayResult, top: int = 5, charts: Callable[[], object] = bool
) -> None:
    """The comparison, then the `top` worst links and flows of each strategy; charts: called between
    them."""
    print_decision(page, result.decision)
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


def print_decision(page: Page, decision: Decision | None) -> None:
    """What another strategy saves, before everything else."""
    if decision is None:
        return
    page.line("DECISION", "bold")
    for line in decision.lines:
        page.say(line)
    page.gap()


def fill_brief(page: Page, result: ReplayResult) -> None:
    """The decision alone; what it leaves open in its place, if there is none."""
    if result.decision is None:
        page.say("No decision: no strategy has a time to compare.")
    print_decision(page, result.decision)


def print_comparison(page: Page, result: ReplayResult) -> None:
    """Print the strategies of whole flows, one per row."""
    page.section("Strategies", verdict(result))
    page.draw(lambda table: _strategies(table, result.strategies))
    if note := captured_links(result.strategies):
        page.say(note, "dim")


def verdict(result: ReplayResult) -> str:
    """The strategy with the smallest overload of its busiest link, in one sentence."""
    known = [strategy for strategy in result.strategies if strategy.max_over_mean]
    if not known:
        return "No strategy had a choice of links for this traffic."
    best = min(known, key=lambda strategy: strategy.max_over_mean or 0)
    worst = max(known, key=lambda strategy: strategy.max_over_mean or 0)
    text = (
        f"{best.title} puts {factor(best.max_over_mean)} times the fair share of bytes on the "
        "busiest link between switches"
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

"""`--vary` on a terminal: one row per combination of values and strategy."""

from __future__ import annotations

from rich.table import Table

from ...replay.results.replay import ReplayResult
from ..words import human
from .page import Page, numbers, texts
from .replay_parts import NONE, factor


def print_varied(page: Page, result: ReplayResult) -> None:
    """The table; what is unknown or zero in all rows has no column."""
    rows = [row for one in result.varied for row in one.strategies]
    page.section("Other values", _verdict(result))
    page.draw(lambda table: _rows(table, result))
    if any(row.jobs_ns for row in rows):
        page.draw(lambda table: _jobs(table, result))
    page.say("Traffic and fabric above are those of the first row.", "dim")


def _verdict(result: ReplayResult) -> str:
    found = [
        (row.completion_ns.mean, row.name, one.settings)
        for one in result.varied
        for row in one.strategies
        if row.completion_ns is not None
    ]
    if not found:
        cases = human.counted(len(result.varied), "case")
        if any(row.lost_packets for one in result.varied for row in one.strategies):
            return f"{cases}; packets are lost, and no case completes: --transport recovers them."
        return f"{cases}."
    least, most = min(found, key=lambda f: f[0]), max(found, key=lambda f: f[0])
    text = f"Fastest: {_told(least[2])} with {least[1]}, {human.duration(least[0])}"
    return f"{text}; slowest: {_told(most[2])} with {most[1]}, {human.duration(most[0])}."


def _told(settings: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def _rows(table: Table, result: ReplayResult) -> None:
    rows = [row for one in result.varied for row in one.strategies]
    packets = any(row.max_queue_packets is not None for row in rows)
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
    for one in result.varied:
        for row in one.strategies:
            cells = [*one.settings.values(), row.name]
            if packets:
                done, over = row.completion_ns, row.over_bound_percent
                cells.append(NONE if done is None else human.duration(done.mean))
                cells.append(NONE if over is None else f"{over.mean:.1f} %")
                cells.append(
                    NONE if row.max_queue_packets is None else f"{row.max_queue_packets:.0f}"
                )
            else:
                cells.append(human.duration(row.busy_ns))
            cells.append(factor(row.max_over_mean))
            for _, name in extra:
                value = getattr(row, name)
                cells.append(NONE if value is None else human.count(value))
            table.add_row(*cells)


def _jobs(table: Table, result: ReplayResult) -> None:
    rows = [row for one in result.varied for row in one.strategies]
    names = list(dict.fromkeys(name for row in rows for name in row.jobs_ns))
    texts(table, *result.varied[0].settings, "strategy")
    numbers(table, *names)
    for one in result.varied:
        for row in one.strategies:
            times = [row.jobs_ns.get(name) for name in names]
            table.add_row(
                *one.settings.values(),
                row.name,
                *(NONE if time is None else human.duration(time) for time in times),
            )

"""`--vary` on a terminal: one row per combination of values and strategy."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TypeAlias

from rich.table import Table

from ...replay.compare.request import CAPTURED
from ...replay.results.replay import ReplayResult, VariedStrategy, short_titles
from ..words import human
from .page import Page, numbers, texts
from .replay_parts import NONE, factor

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
            "--model offer=asap each message begins when its dependencies are complete.",
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
    """The least and the largest load of the fullest link, over its fair share."""
    known = [case for case in timed if case[3].max_over_mean is not None]
    ends = [end(known, key=lambda case: case[3].max_over_mean or 0) for end in (min, max) if known]
    loads = [f"{factor(case[3].max_over_mean)} ({_name_case(case, alone)})" for case in ends]
    if not ends or factor(ends[0][3].max_over_mean) == factor(ends[1][3].max_over_mean):
        return ""
    return f"; the fullest link has {loads[0]} to {loads[1]} times its fair share"


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

"""Completion times of the flows of a replay packet by packet, by strategy."""

from __future__ import annotations

from collections.abc import Sequence

from ....replay.results.replay import ReplayResult, StrategyResult
from ...words import human
from ..chart import Chart
from .lines import MOST, lines

_STEPS = 100
"""Points of a line."""


def completions(result: ReplayResult) -> Chart | None:
    """The share of flows that are complete over time; None if none is known."""
    known = [(each, times) for each in result.strategies if (times := _times(each))]
    if not known:
        return None
    shown = known[:MOST]
    points = [_points(each, times) for each, times in shown]
    named = [
        (_describe(each, times), _steps(line))
        for (each, times), line in zip(shown, points, strict=True)
    ]
    rows = [
        (each.title, share, time)
        for (each, _), line in zip(shown, points, strict=True)
        for time, share in line
    ]
    left = len(known) - len(shown)
    more = [f"{human.counted(left, 'strategy', 'strategies')} not shown."] if left else []
    omitted = max(each.packets.flows_omitted for each, _ in known if each.packets is not None)
    if omitted:
        more.append(f"Of the earliest {human.counted(omitted, 'flow')} no times are kept.")
    return Chart(
        "Completion of flows",
        "The share of flows whose last ACK is at the sender, over time. First run.",
        lines(named, 100, lambda share: f"{share:.0f} %", "time since the first packet"),
        ("strategy", "complete, %", "ns"),
        rows,
        " ".join(more),
    )


def _times(strategy: StrategyResult) -> list[float]:
    """Times of the completed flows, in order."""
    if strategy.packets is None:
        return []
    return sorted(f.completed_ns for f in strategy.packets.flows if f.completed_ns is not None)


def _describe(strategy: StrategyResult, times: Sequence[float]) -> str:
    assert strategy.packets is not None
    earlier = strategy.packets.flows_omitted
    half = (earlier + len(strategy.packets.flows)) // 2 - earlier
    text = f"{strategy.title}: "
    if half < len(times):  # else half of the flows are never complete
        text += f"{'more than ' if half < 0 else ''}half by {human.duration(times[max(0, half)])}, "
    missing = len(strategy.packets.flows) - len(times)
    if missing:
        return text + f"{human.counted(missing, 'flow')} never"
    return text + f"the last at {human.duration(times[-1])}"


def _points(strategy: StrategyResult, times: Sequence[float]) -> list[tuple[float, float]]:
    """(ns, percent of all flows) of at most _STEPS flows, the first and the last among them."""
    assert strategy.packets is not None
    earlier = strategy.packets.flows_omitted
    every = earlier + len(strategy.packets.flows)
    count = min(_STEPS, len(times))
    ranks = sorted({round((len(times) - 1) * i / max(1, count - 1)) for i in range(count)})
    return [(times[rank], 100 * (earlier + rank + 1) / every) for rank in ranks]


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The line that rises at each point."""
    line, before = [(0.0, 0.0)], 0.0
    for time, share in points:
        line += [(time, before), (time, share)]
        before = share
    return line

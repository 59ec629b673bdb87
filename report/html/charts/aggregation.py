"""Schemes of in-network aggregation: completion times by memory, memory in use, bytes on links."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from ....replay.results.aggregation import AggregationResult, SchemeResult
from ...words import human
from ..chart import Chart, Value
from ..drawing import WIDTH, Drawing, shorten, ticks

MOST = 24
_LEFT, _RIGHT, _TOP, _PLOT = 180.0, WIDTH - 30.0, 12.0, 240.0
_ROW, _OCCUPANCY = 30.0, 64.0


def completions(result: AggregationResult) -> Chart | None:
    """Mean completion time of the jobs: a line over memory per scheme, and a dashed line for those
    without limited memory; bars with one size of memory. None if no scheme ended its jobs."""
    ended = [scheme for scheme in result.schemes if scheme.mean_completion_ns is not None]
    sizes = sorted({scheme.slots for scheme in ended if scheme.slots is not None})
    if not ended:
        return None
    if len(sizes) < 2:
        rows = [(_titled(scheme), (scheme.mean_completion_ns or 0) / 1e6) for scheme in ended]
        return _bars("Mean job completion time", _words(result), rows, "ms")
    return _lines(result, ended, sizes)


def on_links(result: AggregationResult) -> Chart | None:
    """Bytes on the fullest link, by scheme; None without traffic."""
    rows = [(_titled(row), row.links[0].wire_bytes / 1e6) for row in result.schemes if row.links]
    if not rows:
        return None
    words = f"{_words(result)} Bars are the link with the most bytes."
    return _bars("Bytes on the fullest link", words, rows, "MB")


def occupancy(result: AggregationResult) -> Chart | None:
    """Slots in use over time, by scheme, and those whose sum became complete in the switch; None
    without a scheme that shares its memory."""
    shown = [scheme for scheme in result.schemes if scheme.occupancy is not None][:MOST]
    if not shown:
        return None
    length = max(_length_ns(scheme) for scheme in shown)
    bottom = _TOP + _OCCUPANCY * len(shown)
    drawing = Drawing(bottom + 40)
    rows: list[tuple[Value, ...]] = []
    for number, scheme in enumerate(shown):
        kept = scheme.occupancy
        assert kept is not None
        base = _TOP + _OCCUPANCY * (number + 1) - 6
        most = max(1.0, *kept.used_percent)
        drawing.line(_LEFT, base, _RIGHT, base, "axis")
        drawing.text(_LEFT - 8, base - 22, shorten(_titled(scheme), 24), "", "end")
        drawing.text(_LEFT - 8, base - 7, f"up to {most:.1f} %", "soft", "end")
        for at, (used, useful) in enumerate(
            zip(kept.used_percent, kept.useful_percent, strict=True)
        ):
            left = _x(kept.bin_ns * at, length)
            width = max(0.5, _x(kept.bin_ns * (at + 1), length) - left)
            for share, kind in ((used, "two"), (useful, "one")):
                height = (_OCCUPANCY - 14) * share / most
                drawing.rect(left, base - height, width, height, kind)
            rows.append((_titled(scheme), kept.bin_ns * at / 1e6, used, useful))
    _time_axis(drawing, length, bottom)
    words = (
        f"{_words(result)} Percent of the slots of all switches with memory; the lower part are "
        "slots whose sum became complete in the switch, in the first run."
    )
    return Chart(
        "Switch memory in use",
        words,
        drawing,
        ("scheme", "from, ms", "used, %", "useful, %"),
        rows,
    )


def _titled(scheme: SchemeResult) -> str:
    return scheme.name if scheme.slots is None else f"{scheme.name} {human.count(scheme.slots)}"


def _words(result: AggregationResult) -> str:
    return (
        f"{human.counted(len(result.jobs), 'job')} on {result.fabric.spec}, "
        f"{human.counted(result.runs, 'run')}."
    )


def _length_ns(scheme: SchemeResult) -> float:
    assert scheme.occupancy is not None
    return scheme.occupancy.bin_ns * len(scheme.occupancy.used_percent)


def _x(time_ns: float, length_ns: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * min(1.0, time_ns / max(1.0, length_ns))


def _time_axis(drawing: Drawing, length_ns: float, bottom: float) -> None:
    for tick in ticks(length_ns / 1e6, 6):
        if tick * 1e6 <= length_ns * 1.001:
            drawing.text(_x(tick * 1e6, length_ns), bottom + 14, f"{tick:g}", "soft", "middle")
    drawing.text((_LEFT + _RIGHT) / 2, bottom + 32, "ms from the start", "soft", "middle")


def _bars(name: str, words: str, rows: Sequence[tuple[str, float]], unit: str) -> Chart:
    shown = rows[:MOST]
    scale = ticks(max(value for _, value in shown), 6)
    bottom = _TOP + _ROW * len(shown)
    drawing = Drawing(bottom + 40)
    for tick in scale:
        x = _LEFT + (_RIGHT - 60 - _LEFT) * tick / scale[-1]
        drawing.line(x, _TOP, x, bottom, "axis")
        drawing.text(x, bottom + 16, f"{tick:g}", "soft", "middle")
    drawing.text((_LEFT + _RIGHT - 60) / 2, bottom + 34, unit, "soft", "middle")
    for number, (label, value) in enumerate(shown):
        y = _TOP + _ROW * number
        width = (_RIGHT - 60 - _LEFT) * value / scale[-1]
        drawing.text(_LEFT - 8, y + 19, shorten(label, 24), "", "end")
        drawing.rect(_LEFT, y + 6, max(1.0, width), _ROW - 12, "one")
        drawing.text(_LEFT + width + 6, y + 19, f"{value:.3g}", "soft")
    left = len(rows) - len(shown)
    return Chart(
        name,
        words,
        drawing,
        ("scheme", unit),
        list(rows),
        f"{human.counted(left, 'further scheme')} not shown." if left else "",
    )


def _decades(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from at most `least` to at least `most`."""
    values = [step * 10.0**power for power in range(-7, 9) for step in (1, 2, 5)]
    first = max(at for at, value in enumerate(values) if value <= least)
    last = min(at for at, value in enumerate(values) if value >= most)
    return values[first : max(last, first + 1) + 1]


def _labels(
    drawing: Drawing, wanted: Sequence[tuple[float, str]], x: float, anchor: str, base: float
) -> None:
    """Names of lines at their ends, a line of text apart."""
    below = 0.0
    for number, (at, name) in enumerate(sorted(wanted)):
        room = base - 13 * (len(wanted) - 1 - number)
        place = max(min(at, room), below)
        drawing.text(x, place + 4, shorten(name, 20), "", anchor)
        below = place + 13


def _lines(result: AggregationResult, ended: Sequence[SchemeResult], sizes: Sequence[int]) -> Chart:
    names = list(dict.fromkeys(scheme.name for scheme in ended if scheme.slots is not None))[:MOST]
    flat = [scheme for scheme in ended if scheme.slots is None]
    means = [(scheme.mean_completion_ns or 1.0) / 1e6 for scheme in ended]
    scale = _decades(min(means), max(means))
    left, right, base = 190.0, WIDTH - 150.0, _TOP + _PLOT
    drawing = Drawing(base + 40)

    def x(slots: int) -> float:
        span = log2(sizes[-1]) - log2(sizes[0])
        return left + (right - left) * (log2(slots) - log2(sizes[0])) / span

    def y(mean_ns: float) -> float:
        share = log2(mean_ns / 1e6 / scale[0]) / log2(scale[-1] / scale[0])
        return base - _PLOT * share

    for tick in scale:
        drawing.line(left, y(tick * 1e6), right, y(tick * 1e6), "axis")
        drawing.text(52, y(tick * 1e6) + 4, human.duration(tick * 1e6), "soft", "end")
    for slots in sizes:
        drawing.text(x(slots), base + 16, human.count(slots), "soft", "middle")
    drawing.text((left + right) / 2, base + 34, "slots of each switch", "soft", "middle")
    begins: list[tuple[float, str]] = []
    ends: list[tuple[float, str]] = []
    for name in names:
        points = sorted(
            (scheme.slots or 0, scheme.mean_completion_ns or 1.0)
            for scheme in ended
            if scheme.name == name and scheme.slots is not None
        )
        drawing.path([(x(slots), y(mean)) for slots, mean in points], "wire")
        for slots, mean in points:
            drawing.rect(x(slots) - 2, y(mean) - 2, 4, 4, "one")
        begins.append((y(points[0][1]), name))
        ends.append((y(points[-1][1]), name))
    for scheme in flat:
        at = y(scheme.mean_completion_ns or 1.0)
        drawing.line(left, at, right, at, "fair")
        ends.append((at, scheme.name))
    _labels(drawing, begins, left - 8, "end", base)
    _labels(drawing, ends, right + 8, "start", base)
    rows: list[tuple[Value, ...]] = [
        (scheme.name, scheme.slots, (scheme.mean_completion_ns or 0) / 1e6) for scheme in ended
    ]
    words = f"{_words(result)} Logarithmic; dashed: without limited switch memory."
    return Chart(
        "Mean job completion time by memory", words, drawing, ("scheme", "slots", "ms"), rows
    )

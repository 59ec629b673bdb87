"""The charts of replays: box plots, completion times, queues, aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

from ...replay.results import (
    AggregationResult,
    Distribution,
    LinkLoad,
    ReplayResult,
    SchemeResult,
    StrategyResult,
    SweepResult,
    short_titles,
)
from .. import human
from .analysis_charts import MOST as MOST_BARS
from .analysis_charts import lines
from .page import WIDTH, Chart, Drawing, Value, shorten, ticks

# Box plots: imbalance over hash seeds, loads of links by strategy.

MOST = 24
_LEFT, _ROW, _TOP = 220.0, 44.0, 12.0
_MEASURES = {
    "fim-flows": "FIM of flows, %",
    "fim-bytes": "FIM of bytes, %",
    "max-over-mean": "busiest link over the fair share",
}


class Box(NamedTuple):
    """One row of a box plot."""

    name: str
    five: tuple[float, float, float, float, float]
    """min, lower end of the box, median, upper end of the box, max."""
    marks: tuple[tuple[str, float], ...] = ()
    """Names and places of single values."""


def seeds(result: SweepResult) -> Chart:
    """The distribution over seeds: of the worst layer, then of each layer."""
    in_use = result.production
    chosen = (("in use", in_use.value),) if in_use is not None else ()
    boxes = [
        Box("worst layer", _five(result.distribution), (("chance", result.chance.mean), *chosen))
    ]
    boxes += [
        Box(layer.layer, _five(layer.distribution), (("chance", layer.chance.mean),))
        for layer in result.layers
    ]
    unit = _MEASURES[result.measure]
    d = result.distribution
    words = f"{unit}, over {human.counted(result.seeds[2], 'seed')} of {result.hash}: "
    words += f"best {d.min:.3g}, median {d.quantiles['p50']:.3g}, worst {d.max:.3g}. "
    words += "Boxes hold half of the seeds, whiskers all; chance is ideal random hashing."
    return _plot("Imbalance over hash seeds", words, boxes, unit, "layer", 0.0)


def strategies(result: ReplayResult) -> Chart | None:
    """Loads of the links between which hashing chooses, by strategy; None without such links."""
    boxes = []
    for strategy in result.strategies:
        layers = {layer.layer for layer in strategy.layers if layer.choice}
        loads = sorted(
            link.over_mean
            for link in strategy.links
            if link.layer in layers and link.over_mean is not None
        )
        if loads:
            boxes.append(Box(strategy.title, _quartiles(loads)))
    if not boxes:
        return None
    worst = max(boxes, key=lambda box: box.five[-1])
    words = "Bytes of every link between switches over its fair share: boxes hold half of the "
    words += "links, whiskers all; 1 is fair. "
    words += f"The busiest link has {worst.five[-1]:.2f} times its share, by {worst.name}."
    return _plot("Load of the links by strategy", words, boxes, "times the fair share",
                 "strategy", 1.0)  # fmt: skip


def _five(d: Distribution) -> tuple[float, float, float, float, float]:
    q = d.quantiles
    return d.min, q["p25"], q["p50"], q["p75"], d.max


def _quartiles(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Of sorted values, by the nearest rank."""
    last = len(values) - 1
    first, low, half, high, end = (values[round(last * k / 4)] for k in range(5))
    return first, low, half, high, end


def _plot(
    name: str, words: str, boxes: Sequence[Box], unit: str, what: str, fair: float
) -> Chart:  # fmt: skip
    shown = boxes[:MOST]
    marks = [value for box in shown for _, value in box.marks]
    scale = ticks(max(*(box.five[-1] for box in shown), *marks, fair), 6)
    bottom = _TOP + _ROW * len(shown)
    drawing = Drawing(bottom + 40)

    def x(value: float) -> float:
        return _LEFT + (WIDTH - 30 - _LEFT) * value / scale[-1]

    for tick in scale:
        drawing.line(x(tick), _TOP, x(tick), bottom, "axis")
        drawing.text(x(tick), bottom + 16, f"{tick:g}", "soft", "middle")
    drawing.text(x(scale[-1] / 2), bottom + 34, unit, "soft", "middle")
    if fair:
        drawing.line(x(fair), _TOP, x(fair), bottom, "fair")
    for number, box in enumerate(shown):
        middle = _TOP + _ROW * (number + 0.5)
        low, first, half, third, high = map(x, box.five)
        drawing.text(_LEFT - 8, middle + 4, shorten(box.name, 29), "", "end")
        drawing.line(low, middle, high, middle, "whisker")
        for end in (low, high):
            drawing.line(end, middle - 6, end, middle + 6, "whisker")
        drawing.rect(first, middle - 9, max(1.5, third - first), 18, "box", 0.45)
        drawing.line(half, middle - 9, half, middle + 9, "whisker")
        for side, (word, value) in enumerate(box.marks):
            drawing.line(x(value), middle - 16, x(value), middle + 16, "mark")
            drawing.text(x(value) + 3, middle + (19 if side else -11), word, "strong")
    names = list(dict.fromkeys(word for box in shown for word, _ in box.marks))
    rows: list[tuple[Value, ...]] = [
        (box.name, *box.five, *(dict(box.marks).get(word) for word in names)) for box in shown
    ]
    columns = (what, "min", "p25", "median", "p75", "max", *names)
    left = len(boxes) - len(shown)
    return Chart(name, words, drawing, columns, rows,
                 f"{human.counted(left, 'further row')} not shown." if left else "")  # fmt: skip


# Completion times of the flows of a replay packet by packet, by strategy.

_STEPS = 100
"""Points of a line."""


def completions(result: ReplayResult) -> Chart | None:
    """The share of flows that are complete over time; None if none is known."""
    known = [(each, times) for each in result.strategies if (times := _times(each))]
    if not known:
        return None
    shown = known[:MOST_BARS]
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


# Queues of a replay packet by packet over time.


def queues(strategy: StrategyResult) -> Chart | None:
    """The link with the longest queue of each layer; None if no packet waited."""
    if strategy.packets is None:
        return None
    longest: dict[str, LinkLoad] = {}
    for link in strategy.links:
        most = max(link.queue_bytes_over_time or (0,))
        if most > max(_queue(longest.get(link.layer)), default=0):
            longest[link.layer] = link
    queued = sorted(longest.values(), key=lambda link: -max(_queue(link)))
    if not queued:
        return None
    shown, stretch = queued[:MOST_BARS], strategy.packets.load_stretch_ns
    named = [
        (
            f"{link.name} ({link.layer}), at most {human.size(max(_queue(link)))}",
            [
                (stretch * (number + side), float(size))
                for number, size in enumerate(_queue(link))
                for side in (0, 1)
            ],
        )
        for link in shown
    ]
    rows = [
        (stretch * number, *sizes)
        for number, sizes in enumerate(zip(*map(_queue, shown), strict=True))
    ]
    words = f"The longest queue of each layer in intervals of {human.duration(stretch)}, the "
    words += "packet in service included; 0 where no packet waited. First run."
    left = len(queued) - len(shown)
    return Chart(
        f"Queues over time, {strategy.title}",
        words,
        lines(named, max(_queue(shown[0])), human.size, "time since the first packet"),
        ("from, ns", *(f"{link.name}, B" for link in shown)),
        rows,
        f"{human.counted(left, 'layer')} with shorter queues not shown." if left else "",
    )


def _queue(link: LinkLoad | None) -> list[int]:
    return [] if link is None else link.queue_bytes_over_time or []


# Bars: completion under other values of parameters, by strategy; of whole flows the time for which
# the busiest link is busy.

VARIED_MOST = 48
_VARIED_LEFT, _VARIED_ROW, _VARIED_TOP = 250.0, 22.0, 12.0
_KINDS = ("one", "two", "three")


def varied(result: ReplayResult) -> Chart | None:
    """A bar per combination of values and strategy; None if no case is complete."""
    cases = [
        (", ".join(f"{k}={v}" for k, v in each.settings.items()), name, row)
        for each in result.varied
        for name, row in zip(short_titles(each.strategies), each.strategies, strict=True)
    ]
    times = [time.mean for *_, row in cases if (time := row.compared_ns) is not None]
    if not times or not max(times):
        return None
    what = "Completion" if any(row.by_packet for *_, row in cases) else "Time of the busiest link"
    shown = cases[:VARIED_MOST]
    scale = ticks(max(times), 5)
    bottom = _VARIED_TOP + _VARIED_ROW * len(shown)
    drawing = Drawing(bottom + 40)
    names = list(dict.fromkeys(name for _, name, _ in cases))

    def x(value: float) -> float:
        return _VARIED_LEFT + (WIDTH - 60 - _VARIED_LEFT) * value / scale[-1]

    for tick in scale:
        drawing.line(x(tick), _VARIED_TOP, x(tick), bottom, "axis")
        drawing.text(x(tick), bottom + 16, human.duration(tick), "soft", "middle")
    drawing.text(
        x(scale[-1] / 2), bottom + 34, f"{what.lower()}, mean of the runs", "soft", "middle"
    )
    for number, (values, name, row) in enumerate(shown):
        middle = _VARIED_TOP + _VARIED_ROW * (number + 0.5)
        case = values if len(names) == 1 else f"{values} {name}"
        drawing.text(_VARIED_LEFT - 8, middle + 4, shorten(case, 36), "", "end")
        time = row.compared_ns
        if time is None:
            drawing.text(_VARIED_LEFT + 4, middle + 4, "not completed", "soft")
            continue
        kind = _KINDS[names.index(name) % len(_KINDS)]
        drawing.rect(_VARIED_LEFT, middle - 8, max(1.0, x(time.mean) - _VARIED_LEFT), 16, kind)
        drawing.line(x(time.min), middle, x(time.max), middle, "whisker")
    words = f"{what} for {human.counted(len(result.varied), 'case')}"
    words += f" under {', '.join(names)}; lines span the runs."
    rows = [
        (
            values,
            name,
            *(
                (None, None, None)
                if (time := row.compared_ns) is None
                else (time.mean, time.min, time.max)
            ),
        )
        for values, name, row in shown
    ]
    left = len(cases) - len(shown)
    return Chart(
        f"{what} by " + ", ".join(result.varied[0].settings), words, drawing,
        ("case", "strategy", "ns", "min", "max"), rows,
        f"{human.counted(left, 'further row')} not shown." if left else "",
    )  # fmt: skip


# Schemes of in-network aggregation: completion times by memory, memory in use, bytes on links.

AGGREGATION_MOST = 24
_AGGREGATION_LEFT, _RIGHT, _AGGREGATION_TOP, _PLOT = 180.0, WIDTH - 30.0, 12.0, 240.0
_AGGREGATION_ROW, _OCCUPANCY = 30.0, 64.0


def completions_aggregation(result: AggregationResult) -> Chart | None:
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
    """Bytes on the busiest link, by scheme; None without traffic."""
    rows = [(_titled(row), row.links[0].wire_bytes / 1e6) for row in result.schemes if row.links]
    if not rows:
        return None
    words = f"{_words(result)} Bars are the link with the most bytes."
    return _bars("Bytes on the busiest link", words, rows, "MB")


def occupancy(result: AggregationResult) -> Chart | None:
    """Slots in use over time, by scheme, and those whose sum became complete in the switch; None
    without a scheme that shares its memory."""
    shown = [scheme for scheme in result.schemes if scheme.occupancy is not None][:AGGREGATION_MOST]
    if not shown:
        return None
    length = max(_length_ns(scheme) for scheme in shown)
    bottom = _AGGREGATION_TOP + _OCCUPANCY * len(shown)
    drawing = Drawing(bottom + 40)
    rows: list[tuple[Value, ...]] = []
    for number, scheme in enumerate(shown):
        kept = scheme.occupancy
        assert kept is not None
        base = _AGGREGATION_TOP + _OCCUPANCY * (number + 1) - 6
        most = max(1.0, *kept.used_percent)
        drawing.line(_AGGREGATION_LEFT, base, _RIGHT, base, "axis")
        drawing.text(_AGGREGATION_LEFT - 8, base - 22, shorten(_titled(scheme), 24), "", "end")
        drawing.text(_AGGREGATION_LEFT - 8, base - 7, f"up to {most:.1f} %", "soft", "end")
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
    return _AGGREGATION_LEFT + (_RIGHT - _AGGREGATION_LEFT) * min(
        1.0, time_ns / max(1.0, length_ns)
    )


def _time_axis(drawing: Drawing, length_ns: float, bottom: float) -> None:
    for tick in ticks(length_ns / 1e6, 6):
        if tick * 1e6 <= length_ns * 1.001:
            drawing.text(_x(tick * 1e6, length_ns), bottom + 14, f"{tick:g}", "soft", "middle")
    drawing.text(
        (_AGGREGATION_LEFT + _RIGHT) / 2, bottom + 32, "ms from the start", "soft", "middle"
    )


def _bars(name: str, words: str, rows: Sequence[tuple[str, float]], unit: str) -> Chart:
    shown = rows[:AGGREGATION_MOST]
    scale = ticks(max(value for _, value in shown), 6)
    bottom = _AGGREGATION_TOP + _AGGREGATION_ROW * len(shown)
    drawing = Drawing(bottom + 40)
    for tick in scale:
        x = _AGGREGATION_LEFT + (_RIGHT - 60 - _AGGREGATION_LEFT) * tick / scale[-1]
        drawing.line(x, _AGGREGATION_TOP, x, bottom, "axis")
        drawing.text(x, bottom + 16, f"{tick:g}", "soft", "middle")
    drawing.text((_AGGREGATION_LEFT + _RIGHT - 60) / 2, bottom + 34, unit, "soft", "middle")
    for number, (label, value) in enumerate(shown):
        y = _AGGREGATION_TOP + _AGGREGATION_ROW * number
        width = (_RIGHT - 60 - _AGGREGATION_LEFT) * value / scale[-1]
        drawing.text(_AGGREGATION_LEFT - 8, y + 19, shorten(label, 24), "", "end")
        drawing.rect(_AGGREGATION_LEFT, y + 6, max(1.0, width), _AGGREGATION_ROW - 12, "one")
        drawing.text(_AGGREGATION_LEFT + width + 6, y + 19, f"{value:.3g}", "soft")
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
    names = list(dict.fromkeys(scheme.name for scheme in ended if scheme.slots is not None))[
        :AGGREGATION_MOST
    ]
    flat = [scheme for scheme in ended if scheme.slots is None]
    means = [(scheme.mean_completion_ns or 1.0) / 1e6 for scheme in ended]
    scale = _decades(min(means), max(means))
    left, right, base = 190.0, WIDTH - 150.0, _AGGREGATION_TOP + _PLOT
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

"""Box plots: imbalance over hash seeds, loads of links by strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....replay.results.replay import ReplayResult
from ....replay.results.sweep import Distribution, SweepResult
from ...words import human
from ..chart import Chart, Value
from ..drawing import WIDTH, Drawing, shorten, ticks

MOST = 24
_LEFT, _ROW, _TOP = 220.0, 44.0, 12.0
_MEASURES = {
    "fim-flows": "FIM of flows, %",
    "fim-bytes": "FIM of bytes, %",
    "max-over-mean": "fullest link over the fair share",
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
    words += f"The fullest link has {worst.five[-1]:.2f} times its share, by {worst.name}."
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

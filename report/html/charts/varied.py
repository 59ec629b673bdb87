"""Bars: completion under other values of parameters, by strategy; of whole flows the time for which
the busiest link is busy."""

from __future__ import annotations

from ....replay.results.replay import ReplayResult, short_titles
from ...words import human
from ..chart import Chart
from ..drawing import WIDTH, Drawing, shorten, ticks

MOST = 48
_LEFT, _ROW, _TOP = 250.0, 22.0, 12.0
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
    shown = cases[:MOST]
    scale = ticks(max(times), 5)
    bottom = _TOP + _ROW * len(shown)
    drawing = Drawing(bottom + 40)
    names = list(dict.fromkeys(name for _, name, _ in cases))

    def x(value: float) -> float:
        return _LEFT + (WIDTH - 60 - _LEFT) * value / scale[-1]

    for tick in scale:
        drawing.line(x(tick), _TOP, x(tick), bottom, "axis")
        drawing.text(x(tick), bottom + 16, human.duration(tick), "soft", "middle")
    drawing.text(
        x(scale[-1] / 2), bottom + 34, f"{what.lower()}, mean of the runs", "soft", "middle"
    )
    for number, (values, name, row) in enumerate(shown):
        middle = _TOP + _ROW * (number + 0.5)
        case = values if len(names) == 1 else f"{values} {name}"
        drawing.text(_LEFT - 8, middle + 4, shorten(case, 36), "", "end")
        time = row.compared_ns
        if time is None:
            drawing.text(_LEFT + 4, middle + 4, "not completed", "soft")
            continue
        kind = _KINDS[names.index(name) % len(_KINDS)]
        drawing.rect(_LEFT, middle - 8, max(1.0, x(time.mean) - _LEFT), 16, kind)
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

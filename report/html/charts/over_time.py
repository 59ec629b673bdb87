"""Traffic and its troubles over time, with the findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....analyzer.results.analysis import Analysis
from ....analyzer.results.diagnosis import Finding
from ...words import human
from ...words.diagnosis import first_ns
from ...words.hops import short_taps
from ..chart import Chart
from ..drawing import WIDTH, Drawing, ticks
from .heat import heat_map

POINTS = 240
"""Windows of a chart; of longer series, neighbours are summed."""
_SPANS = 20
"""Findings with their spans in the picture."""
_TROUBLES = (
    ("reordered_packets", "reordered"),
    ("retransmitted_packets", "retransmitted"),
    ("duplicate_packets", "duplicate"),
    ("ecn_marked_packets", "CE-marked"),
    ("cnps", "CNPs"),
    ("naks", "NAKs"),
)
_LEFT, _RIGHT, _RATE, _ROW = 92.0, WIDTH - 10.0, 150.0, 46.0


def over_time(analysis: Analysis) -> Chart | None:
    """Wire rate, the counts that are not zero, and the findings; None without packets."""
    series = analysis.series
    if not sum(series.packets):
        return None
    step = -(-len(series.packets) // POINTS)
    window_ns = series.window_ns * step
    rates = _rates(series.wire_bytes, step, series.window_ns)
    seen = [
        (word, summed(values, step))
        for name, word in _TROUBLES
        if sum(values := getattr(series, name))
    ]
    findings = analysis.diagnosis.findings[:_SPANS]
    top = 22.0 + 14 * len(findings)
    drawing = Drawing(top + _RATE + _ROW * len(seen) + 40)
    begin_ns = first_ns(analysis)
    length_ns = max(1, series.start_ns + window_ns * len(rates) - begin_ns)
    bottom = top + _RATE + _ROW * len(seen)

    def x(time_ns: float) -> float:
        share = (time_ns - begin_ns) / length_ns
        return _LEFT + (_RIGHT - _LEFT) * min(1.0, max(0.0, share))

    _spans(drawing, findings, begin_ns + length_ns, bottom, x)
    scale = ticks(max(rates))
    for tick in scale:
        y = top + _RATE - (_RATE - 12) * tick / scale[-1]
        drawing.line(_LEFT, y, _RIGHT, y, "axis")
        drawing.text(_LEFT - 6, y + 4, human.rate(tick), "soft", "end")
    starts = [series.start_ns + window_ns * i for i in range(len(rates))]
    points = [
        (x(start + window_ns * side), top + _RATE - (_RATE - 12) * rate / scale[-1])
        for start, rate in zip(starts, rates, strict=True)
        for side in (0, 1)
    ]
    drawing.path(points, "wire")
    for number, (word, counts) in enumerate(seen):
        base = top + _RATE + _ROW * (number + 1)
        drawing.line(_LEFT, base, _RIGHT, base, "axis")
        drawing.text(_LEFT - 6, base - 14, word, "", "end")
        drawing.text(_LEFT - 6, base, f"max {human.count(max(counts))}", "soft", "end")
        for start, count in zip(starts, counts, strict=True):
            if count:
                height = max(1.5, (_ROW - 10) * count / max(counts))
                left, right = x(start), x(start + window_ns)
                drawing.rect(left, base - height, max(1, right - left - 0.5), height, "two")
    _time_axis(drawing, length_ns, bottom)
    words = f"Wire rate in windows of {human.duration(window_ns)}, at most {human.rate(max(rates))}"
    words += (
        f"; below it the packets of each window: {', '.join(w for w, _ in seen)}" if seen else ""
    )
    words += "." if not findings else (
        f". {human.counted(len(findings), 'finding is', 'findings are')} marked from onset to end, "
        "with the numbers of the diagnosis."
    )  # fmt: skip
    rows = [
        (max(0, starts[number] - begin_ns) / 1e9, rate, *(counts[number] for _, counts in seen))
        for number, rate in enumerate(rates)
    ]
    hidden = len(analysis.diagnosis.findings) - len(findings)
    return Chart(
        "Traffic over time",
        words,
        drawing,
        ("from, s", "wire rate, b/s", *(word for word, _ in seen)),
        rows,
        f"{human.counted(hidden, 'further finding')} not marked." if hidden else "",
    )


def taps_over_time(analysis: Analysis) -> Chart | None:
    """Wire rate of every tap over time as a heat map; None with one tap or without a packet."""
    series, begin_ns = analysis.series, first_ns(analysis)
    if len(series.tap_wire_bytes) < 2 or not series.packets:
        return None
    step = -(-len(series.packets) // 48)
    window_ns = series.window_ns * step
    busiest = sorted(series.tap_wire_bytes, key=lambda tap: -sum(series.tap_wire_bytes[tap]))[:32]
    taps = [tap for tap in series.tap_wire_bytes if tap in busiest]
    short = short_taps(series.tap_wire_bytes)
    rates = [_rates(series.tap_wire_bytes[tap], step, series.window_ns) for tap in taps]
    starts = [
        human.duration(max(0, series.start_ns + i * window_ns - begin_ns))
        for i in range(len(rates[0]))
    ]
    hidden = len(series.tap_wire_bytes) - len(taps)
    return heat_map(
        "Wire rate per tap over time",
        f"{human.counted(len(taps), 'tap')}, windows of {human.duration(window_ns)}; the strongest "
        f"colour is {human.rate(max(map(max, rates)))}.",
        [short[tap] for tap in taps],
        starts,
        rates,
        "tap",
        left_out=f"{human.counted(hidden, 'tap')} with less traffic not shown." if hidden else "",
    )


def summed(values: Sequence[int], step: int) -> list[int]:
    """Sums of `step` neighbours each."""
    return [sum(values[i : i + step]) for i in range(0, len(values), step)]


def _rates(sizes: Sequence[int], step: int, window_ns: int) -> list[float]:
    """Bits per second of `step` neighbours each; the last may be fewer."""
    counts = (min(step, len(sizes) - first) for first in range(0, len(sizes), step))
    return [
        8e9 * size / (window_ns * count)
        for size, count in zip(summed(sizes, step), counts, strict=True)
    ]


def _spans(
    drawing: Drawing,
    findings: Sequence[Finding],
    end_ns: int,
    bottom: float,
    x: Callable[[float], float],
) -> None:
    """A numbered bar per finding above the plots, and its span below the bar."""
    for number, finding in enumerate(findings):
        y = 8.0 + 14 * number
        begin, end = x(finding.from_ns), x(end_ns if finding.until_ns is None else finding.until_ns)
        end = max(end, begin + 2)
        kind = f"span {finding.severity}"
        drawing.rect(begin, y, end - begin, bottom - y, kind, 0.06)
        drawing.rect(begin, y, end - begin, 5, kind)
        drawing.line(begin, y, begin, bottom, f"mark {finding.severity}")
        drawing.text(_LEFT - 6, y + 7, f"finding {number + 1}", "soft", "end")


def _time_axis(drawing: Drawing, length_ns: float, bottom: float) -> None:
    scale = [tick for tick in ticks(length_ns, 6) if tick <= length_ns * 1.001]
    for tick in scale:
        x = _LEFT + (_RIGHT - _LEFT) * tick / length_ns
        drawing.line(x, bottom, x, bottom + 4, "axis")
        drawing.text(x, bottom + 17, human.duration(tick) if tick else "0", "soft", "middle")
    drawing.text((_LEFT + _RIGHT) / 2, bottom + 33, "time since the first packet", "soft", "middle")

"""Small charts as text: bars, distributions, strips on one time axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

import numpy as np
from rich.text import Text

from ..analyzer.results.base import Event
from ..report import human
from ..report.human import UNICODE
from ..report.notes import counted_kind
from ..report.overview import TimeAxis
from .clock import Clock
from .session.snapshot import UNKNOWN, FlowKey, Snapshot

# Horizontal bars with their numbers, as text.


class Bar(NamedTuple):
    """One line."""

    label: str
    value: float
    note: str = ""
    """Text after the number, such as `◂ p99`."""
    span: tuple[int, int] = (0, 0)
    """Lowest and highest value of a histogram bucket."""


def bar_lines(title: str, bars: Sequence[Bar], width: int, height: int, legend: str = "") -> Text:
    """Bars of at most `height` lines, each with its share of the sum."""
    text = Text(f"{title}\n", "bold", no_wrap=True, overflow="ellipsis")
    if not bars:
        text.append("  no values", "dim")
        return text
    total = sum(bar.value for bar in bars)
    most = max(bar.value for bar in bars)
    label = max(len(bar.label) for bar in bars)
    room = max(4, width - label - 12 - max(len(bar.note) for bar in bars))
    for bar in bars[:height]:
        drawn = UNICODE.bar(bar.value / most if most else 0, room)
        text.append(f" {bar.label:>{label}} ", "dim")
        text.append(f"{drawn:<{room}}", "cyan")
        text.append(f" {human.percent(bar.value / total if total else 0):>7}")
        text.append(f" {bar.note}\n", "bold")
    if len(bars) > height:
        text.append(f" and {len(bars) - height} more\n", "dim")
    if legend:
        text.append(f" {legend}", "dim")
    return text


# A distribution on one line, on a common axis.

SHADES = "▒▓"


class StripAxis:
    """Values from `low` to `high` on `width` columns."""

    def __init__(self, low: float, high: float, width: int) -> None:
        self.low, self.high = low, max(high, low + 1e-9 * max(1.0, abs(low)))
        self.width = max(10, width)

    def place(self, value: float) -> int:
        """The column of a value, clamped to the axis."""
        share = (value - self.low) / (self.high - self.low)
        return round(min(1.0, max(0.0, share)) * (self.width - 1))

    def ticks(self) -> str:
        """A line with the numbers of five values."""
        line = [" "] * (self.width + 6)
        for i in range(5):
            value = self.low + (self.high - self.low) * i / 4
            text = f"{value:.2f}"
            at = self.place(value)
            line[at : at + len(text)] = text
        return "".join(line).rstrip()


def strip(
    axis: StripAxis,
    low: float,
    high: float,
    quantiles: Mapping[str, float],
    marks: Mapping[str, float] | None = None,
) -> str:
    """`├──▒▒▓▓█▓▓▒▒──┤`: min and max, p5 to p95, p25 to p75, the median; with marks."""
    line = ["·" if i % max(1, axis.width // 4) == 0 else " " for i in range(axis.width)]
    first, last = axis.place(low), axis.place(high)
    for i in range(first, last + 1):
        line[i] = "─"
    for (a, b), glyph in ((("p5", "p95"), SHADES[0]), (("p25", "p75"), SHADES[1])):
        for i in range(axis.place(quantiles[a]), axis.place(quantiles[b]) + 1):
            line[i] = glyph
    if last > first:
        line[first], line[last] = "├", "┤"
    line[axis.place(quantiles["p50"])] = "█"
    for glyph, value in (marks or {}).items():
        line[axis.place(value)] = glyph
    return "".join(line)


# Strips on one time axis: signals of all flows and of one flow over time.

LABEL = 16
TICK, DAY_TICK = 14, 20
"""Columns between two numbers of a time axis, about; of times of day."""
SIGNALS = (
    ("retransmitted", "retransmitted_packets"),
    ("late", "reordered_packets"),
    ("NAKs", "naks"),
    ("CE marks", "ecn_marked_packets"),
    ("CNPs", "cnps"),
)
"""Label and column of the time line."""


class Axis(NamedTuple):
    """The shared time axis of strips."""

    start_ns: int
    length_ns: int
    columns: int

    @classmethod
    def of(cls, snapshot: Snapshot, width: int) -> Axis:
        """The whole session, in the columns between labels and sums."""
        length = max(1, snapshot.end_ns - snapshot.start_ns)
        return cls(snapshot.start_ns, length, max(10, width - LABEL - 12))

    def spread(self, values: Sequence[int], start_ns: int, bin_ns: int) -> list[float]:
        """Sums by column of equal bins that start at `start_ns`."""
        edges = self.start_ns + np.arange(self.columns + 1) * (self.length_ns / self.columns)
        sums = np.concatenate([[0.0], np.cumsum(values)])
        place = np.clip((edges - start_ns) / max(1, bin_ns), 0, len(values))
        columns: list[float] = np.diff(np.interp(place, np.arange(len(sums)), sums)).tolist()
        return columns

    def column(self, time_ns: int) -> int:
        """The column of a time, of the nearest one outside the axis."""
        place = (time_ns - self.start_ns) * self.columns // self.length_ns
        return min(max(place, 0), self.columns - 1)

    def numbers(self, clock: Clock, label: str = "") -> Text:
        """The line under the strips: times at round numbers."""
        origin_ns = 0 if clock.of_day else clock.origin_ns
        first = self.start_ns - origin_ns
        last = first + self.length_ns
        least = self.length_ns * (DAY_TICK if clock.of_day else TICK) / self.columns
        power = 10 ** floor(log10(least))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= least)
        unit, scale = next(
            ((u, s) for u, s in (("s", 10**9), ("ms", 10**6)) if last >= s), ("us", 10**3)
        )
        digits = max(0, -floor(log10(step / scale)))
        digits_of_day = max(0, -floor(log10(step / 10**9)))
        line = ""
        for tick in range(ceil(first / step), floor(last / step) + 1):
            at = round((tick * step - first) * self.columns / self.length_ns)
            mark = f"╵{tick * step / scale:.{digits}f} {unit}"
            if clock.of_day:
                mark = f"╵{clock.text(int(tick * step), min(9, digits_of_day))}"
            if at + len(mark) <= self.columns + LABEL:
                line = line.ljust(at) + mark
        return Text(f"{label:>{LABEL}} {line}", "dim", no_wrap=True, overflow="ellipsis")

    def interval(
        self, label: str, from_ns: int, until_ns: int | None, style: str = "bold red"
    ) -> Text:
        """A strip that marks an interval; an arrow at its end: it continues."""
        begin = self.column(from_ns)
        end = self.columns - 1 if until_ns is None else self.column(until_ns)
        last = "▶" if until_ns is None else "┤"
        line = "├" + "─" * (end - begin - 1) + last if end > begin else "┃"
        text = Text(f"{label:>{LABEL}} ", "dim", no_wrap=True, overflow="ellipsis")
        return text.append(" " * begin + line, f"{style} not dim")

    def counts(self, events: Sequence[Event]) -> list[int]:
        """Events per column."""
        counts = [0] * self.columns
        for event in events:
            place = (event.time_ns - self.start_ns) * self.columns // self.length_ns
            if 0 <= place <= self.columns:
                counts[min(place, self.columns - 1)] += 1
        return counts


def strip_line(label: str, values: Sequence[float], total: str, style: str) -> Text:
    """`label ▁▂▃ total`"""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{label:>{LABEL}} ", "dim")
    text.append(UNICODE.columns(values), style)
    text.append(f" {total}")
    return text


def signal_lines(
    snapshot: Snapshot,
    axis: Axis,
    signals: Iterable[tuple[str, str]],
    zeros: bool,
    height: int = 1,
) -> list[Text]:
    """A strip of all flows per signal, or a chart of more lines; zeros: also of signals that are
    always 0."""
    line, lines = snapshot.timeline, []
    for label, name in signals:
        values, is_size = line[name].tolist(), name == "wire_bytes"
        total = sum(values)
        if total or zeros:
            spread = axis.spread(values, line.start_ns, line.window_ns)
            amount = human.size(total) if is_size else human.count(total)
            style = "cyan" if is_size else "bold yellow"
            lines += area_lines(label, spread, height, amount, "", style)
    return lines


def late_line(snapshot: Snapshot, at: int, width: int) -> Text:
    """A strip of a flow's late packets."""
    axis, bins = Axis.of(snapshot, width), snapshot.late
    late = int(snapshot.flows.late[at])
    known = human.UNKNOWN if late == UNKNOWN else human.count(late)
    values = axis.spread(bins.of(at), bins.start_ns, bins.bin_ns)
    return strip_line("late, this flow", values, known, "bold yellow")


def flow_lines(
    snapshot: Snapshot, key: FlowKey | None, width: int, kinds: bool = False
) -> list[Text]:
    """A strip of the flow's bytes; with `kinds` also one strip per kind of its events."""
    at = snapshot.find(key)
    if at is None or snapshot.activity.ndim != 2 or at >= snapshot.activity.shape[1]:
        return []
    axis = Axis.of(snapshot, width)
    values = axis.spread(
        snapshot.activity[:, at].tolist(), snapshot.activity_start_ns, snapshot.activity_bin_ns
    )
    size = human.size(int(snapshot.flows.wire_bytes[at]))
    lines = [strip_line("this flow, bytes", values, size, "cyan")]
    if not kinds:
        return lines
    peer = int(snapshot.flows.peer[at])
    mine = [e for e in snapshot.events if e.flow is not None and e.flow in (at, peer)]
    for kind in dict.fromkeys(event.kind for event in mine):
        of_kind = [event for event in mine if event.kind == kind]
        label = counted_kind(2, kind).partition(" ")[2]
        counts = axis.counts(of_kind)
        lines.append(strip_line(label, counts, human.count(len(of_kind)), "bold yellow"))
    return lines


# The axis of time of the overview: what happens when, and the findings as bars.

MOST_BARS = 9
"""Bars of findings; further ones are counted."""
_TALL, _TALL_BYTES = 2, 5
"""Lines of a chart before links have a line each; what is left makes charts taller."""
_TALLEST, _TALLEST_BYTES = 5, 14


class LinkStrip(NamedTuple):
    """The bytes of one link over time."""

    label: str
    style: str
    values: Sequence[int]
    """In the windows of the time line."""


_SEVERE = {"critical": "bold red", "warning": "yellow", "note": "dim"}


def area_lines(
    label: str, values: Sequence[float], height: int, total: str, most: str, style: str
) -> list[Text]:
    """A chart of some lines: the sum at its top line, the largest column at its second.

    most: the largest column in words.
    """
    if height == 1:
        return [strip_line(label, values, total, style)]
    top = max(values, default=0.0) or 1.0
    lines = []
    for row in range(height):
        base = height - 1 - row
        part = [min(1.0, max(0.0, value / top * height - base)) for value in values]
        text = Text(f"{label if row == 0 else '':>{LABEL}} ", "dim", no_wrap=True)
        text.append(UNICODE.columns(part, 1.0), f"{style} not dim")
        text.append(f" {(total, most, *[''] * height)[row]}", "not dim" if row == 0 else "dim")
        lines.append(text)
    return lines


def overview_lines(
    snapshot: Snapshot,
    time: TimeAxis | None,
    links: Sequence[LinkStrip],
    clock: Clock,
    width: int,
    room: int,
) -> list[Text]:
    """The charts in up to `room` lines: signals, pauses, steps, findings, links, times."""
    axis, line = Axis.of(snapshot, width), snapshot.timeline
    marks: list[Text] = []
    if time is not None:
        marks = [*_pause_lines(axis, time), *_step_lines(axis, time)]
        shown = time.findings[: max(1, min(MOST_BARS, room - 2 - len(marks)))]
        marks += [
            axis.interval(f"{n} {kind}"[:LABEL], begin, end, _SEVERE[severity])
            for n, kind, severity, begin, end in shown
        ]
        if len(time.findings) > len(shown):
            more = human.counted(len(time.findings) - len(shown), "further finding")
            marks.append(Text(f"{'':>{LABEL}} and {more}", "dim", no_wrap=True))
    signals = [
        (label, line[name].tolist(), name)
        for label, name in (("bytes", "wire_bytes"), *SIGNALS)
        if name == "wire_bytes" or line[name].any()
    ]
    spare = room - len(marks) - 1
    signals = signals[: max(1, spare)]
    others = len(signals) - 1
    links = links[: max(0, spare - _TALL_BYTES - _TALL * others - 1)]
    spare -= len(links) + bool(links)
    height = max(1, min(_TALLEST, spare // len(signals)))
    tall = max(1, min(_TALLEST_BYTES, spare - height * others))
    strips = _link_lines(axis, snapshot, links)
    column_s = axis.length_ns / axis.columns / 1e9
    lines: list[Text] = []
    for label, values, name in signals:
        spread, total = axis.spread(values, line.start_ns, line.window_ns), sum(values)
        is_size = name == "wire_bytes"
        most = max(spread, default=0.0)
        lines += area_lines(
            label,
            spread,
            tall if is_size else height,
            human.size(total) if is_size else human.count(total),
            f"≤ {human.rate(most * 8 / column_s) if is_size else human.count(round(most))}",
            "cyan" if is_size else "bold yellow",
        )
    column = f"1 col {human.duration(axis.length_ns / axis.columns)}"
    return [*lines, *marks, *strips, axis.numbers(clock, column[:LABEL])]


def _link_lines(axis: Axis, snapshot: Snapshot, links: Sequence[LinkStrip]) -> list[Text]:
    """A strip of bytes for each link, all on one scale."""
    line = snapshot.timeline
    spread = [axis.spread(link.values, line.start_ns, line.window_ns) for link in links]
    top = max((max(values, default=0.0) for values in spread), default=0.0)
    lines = [Text(f"{'bytes by link':>{LABEL}}", "dim")] if links else []
    for link, values in zip(links, spread, strict=True):
        text = Text(f"{link.label:>{LABEL}} ", link.style, no_wrap=True, overflow="ellipsis")
        text.append(UNICODE.columns(values, top), "cyan not dim not bold")
        lines.append(text.append(f" {human.size(sum(link.values))}", "not dim not bold"))
    return lines


def time_line(snapshot: Snapshot, time: TimeAxis | None, width: int) -> Text:
    """One line: bytes over time, with the number of each finding at its onset."""
    axis, line = Axis.of(snapshot, width), snapshot.timeline
    values = line["wire_bytes"].tolist()
    text = strip_line(
        "bytes", axis.spread(values, line.start_ns, line.window_ns), human.size(sum(values)), "cyan"
    )
    plain, spans = list(text.plain), []
    for number, _, severity, begin, _ in reversed(time.findings[:MOST_BARS] if time else ()):
        at = LABEL + 1 + axis.column(begin)
        plain[at] = str(number)
        spans.append((at, severity))
    marked = Text("".join(plain), no_wrap=True, overflow="ellipsis")
    marked.stylize("dim", 0, LABEL)
    marked.stylize("cyan", LABEL + 1, LABEL + 1 + axis.columns)
    for at, severity in spans:
        marked.stylize(f"{_SEVERE[severity]} reverse", at, at + 1)
    return marked


def _pause_lines(axis: Axis, time: TimeAxis) -> list[Text]:
    """A line with the times in which any tap was paused."""
    if not time.pauses:
        return []
    columns = [" "] * axis.columns
    for span in time.pauses:
        for at in range(axis.column(span.from_ns), axis.column(span.until_ns) + 1):
            columns[at] = "▬" if span.is_exact else "╌"
    text = Text(f"{'paused':>{LABEL}} ", "dim", no_wrap=True, overflow="ellipsis")
    text.append("".join(columns), "bold yellow not dim")
    taps = len({span.tap for span in time.pauses})
    return [text.append(f" {human.counted(taps, 'tap')}", "not dim")]


def _step_lines(axis: Axis, time: TimeAxis) -> list[Text]:
    """A line with a tick at the end of every step, for each of the first jobs."""
    lines = []
    for job in list(dict.fromkeys(step.job for step in time.steps))[:2]:
        ends = [step.at_ns for step in time.steps if step.job == job]
        columns = [" "] * axis.columns
        for end in ends:
            columns[axis.column(end)] = "╷"
        label = human.UNICODE.shorten(f"steps of {job}", LABEL)
        text = Text(f"{label:>{LABEL}} ", "dim", no_wrap=True, overflow="ellipsis")
        lines.append(text.append(f"{''.join(columns)} {human.count(len(ends))}", "not dim"))
    return lines

"""Strips on one time axis: signals of all flows and of one flow over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

import numpy as np
from rich.text import Text

from ...analyzer.results.events import Event
from ...report.words import human
from ...report.words.events import counted_kind
from ...report.words.human import UNICODE
from ..session.snapshots.snapshot import UNKNOWN, FlowKey, Snapshot

LABEL = 16
TICK = 14
"""Columns between two numbers of a time axis, about."""
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

    def numbers(self, origin_ns: int) -> Text:
        """The line under the strips: times since `origin_ns` at round numbers."""
        first = self.start_ns - origin_ns
        last = first + self.length_ns
        least = self.length_ns * TICK / self.columns
        power = 10 ** floor(log10(least))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= least)
        unit, scale = next(
            ((u, s) for u, s in (("s", 10**9), ("ms", 10**6)) if last >= s), ("us", 10**3)
        )
        digits = max(0, -floor(log10(step / scale)))
        line = ""
        for tick in range(ceil(first / step), floor(last / step) + 1):
            at = round((tick * step - first) * self.columns / self.length_ns)
            label = f"╵{tick * step / scale:.{digits}f} {unit}"
            if at + len(label) <= self.columns + LABEL:
                line = line.ljust(at) + label
        return Text(" " * (LABEL + 1) + line, "dim", no_wrap=True, overflow="ellipsis")

    def interval(self, label: str, from_ns: int, until_ns: int | None) -> Text:
        """A strip that marks an interval; an arrow at its end: it continues."""
        begin = self.column(from_ns)
        end = self.columns - 1 if until_ns is None else self.column(until_ns)
        last = "▶" if until_ns is None else "┤"
        line = "├" + "─" * (end - begin - 1) + last if end > begin else "┃"
        text = Text(f"{label:>{LABEL}} ", "dim", no_wrap=True, overflow="ellipsis")
        return text.append(" " * begin + line, "bold red not dim")

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
    snapshot: Snapshot, axis: Axis, signals: Iterable[tuple[str, str]], zeros: bool
) -> list[Text]:
    """A strip of all flows per signal; zeros: also of signals that are always 0."""
    line, lines = snapshot.timeline, []
    for label, name in signals:
        values, is_size = line[name].tolist(), name == "wire_bytes"
        total = sum(values)
        if total or zeros:
            spread = axis.spread(values, line.start_ns, line.window_ns)
            amount = human.size(total) if is_size else human.count(total)
            lines.append(strip_line(label, spread, amount, "cyan" if is_size else "bold yellow"))
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

"""The observed fabric as a map: a row per switch, a cell per link, hosts below their leaf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding

from ..kernels.kernel import Ints
from ..report import human
from ..report.hops import short_taps
from ..report.human import UNICODE
from ..report.overview import (
    FAULTS,
    GLYPHS,
    MEASURES,
    WORST_FIRST,
    Device,
    Direction,
    Fabric,
    Link,
    Measure,
    State,
)
from .grid import LEFT, Grid, GridColumn
from .strips import LABEL, LinkStrip

_NUMBERED, _SIGNS, _SIGN = 10, 3, 2
"""Columns of a cell with a number (at least), with a sign for each direction, with the worse sign
only."""
_WIDEST = 14
_LONGEST_LABEL = 24
_GRAVE = (State.LOSSY, State.MOVED)


@dataclass(frozen=True, slots=True)
class _Row:
    """A switch with its links upward, the hosts below it, or the heading of further switches."""

    label: str
    style: str
    links: tuple[Link | None, ...] = ()
    hosts: tuple[Device, ...] = ()
    """Of the links, if they lead to hosts."""
    columns: tuple[Device, ...] = ()
    """Of a heading."""


class FabricMap(Grid):
    """The links of a fabric with a cursor on one of them."""

    COMPONENT_CLASSES: ClassVar = {"grid--here"}
    BINDINGS: ClassVar = [
        Binding("left,h", "move_across(-1)", show=False),
        Binding("right,l", "move_across(1)", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__((), id=id)
        self._fabric: Fabric | None = None
        self._measure = MEASURES[0]
        self._map: list[_Row] = []
        self._across, self._first = 0, 0
        """The cell with the cursor, and the first one that is drawn."""
        self._width, self._label = _NUMBERED, 8
        self._is_placed = False
        """Whether the user has moved the cursor."""

    def show_fabric(self, fabric: Fabric, measure: Measure) -> None:
        """Draw a fabric; the cursor is on the worst link until the user moves it."""
        self._fabric, self._measure = fabric, measure
        self._lay_out(fabric)
        if not self._is_placed:
            self._to_worst()
        self._follow()
        self.show(len(self._map), self._cells_of)

    @property
    def link(self) -> Link | None:
        """The link under the cursor."""
        links = self._map[self.cursor].links if self.cursor < len(self._map) else ()
        return links[min(self._across, len(links) - 1)] if links else None

    @property
    def lines_needed(self) -> int:
        """Lines of the whole map, with its heading."""
        return len(self._map) + 1

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        if self._fabric is not None:
            self.show_fabric(self._fabric, self._measure)

    def _lay_out(self, fabric: Fabric) -> None:
        cells, room = fabric.cells(), max(20, self.size.width - LEFT - 2)
        labels = [len(device.label) + 2 for device in fabric.devices if device.level]
        self._label = min(_LONGEST_LABEL, max(labels, default=6))
        across = max((len(fabric.level(n)) for n in range(2, fabric.tiers + 1)), default=1)
        left = room - self._label - 1
        fitting = (w for w in (_NUMBERED, _SIGNS, _SIGN) if across * w <= left)
        self._width = next(fitting, _SIGNS)
        if self._width == _NUMBERED:
            self._width = min(_WIDEST, left // across)
        rows: list[_Row] = []
        for level in range(1, max(2, fabric.tiers)):
            upper = tuple(fabric.level(level + 1))
            if level > 1:
                rows.append(_Row("", "dim", columns=upper))
            for device in fabric.level(level):
                links = tuple(cells.get((device.name, above.name)) for above in upper)
                rows.append(_Row(_marked(device), cell_style(device.state), links))
                if level == 1:
                    rows += self._host_rows(fabric.hosts_of(device.name), left)
        self._map = rows

    def _follow(self) -> None:
        """Draw from the first cell on which leaves the cell with the cursor on the screen."""
        shown = max(1, (self.size.width - LEFT - self._label - 1) // self._width)
        if self._map and not self._map[self.cursor].hosts:
            first = max(0, self._across - shown + 1, min(self._first, self._across))
            self._first = min(first, max(0, len(self._map[self.cursor].links) - shown))
        heads = self._heads(self._fabric.level(2)) if self._fabric is not None else ""
        self.set_columns(
            (
                GridColumn("name", "SWITCH", self._label),
                GridColumn("map", heads, 4, grows=True),
            )
        )

    def _host_rows(self, hosts: Sequence[tuple[Device, Link]], room: int) -> list[_Row]:
        """As many hosts in a row as fit."""
        if not hosts:
            return []
        width = self._host_width(tuple(host for host, _ in hosts))
        many = max(1, room // width)
        parts = [hosts[i : i + many] for i in range(0, len(hosts), many)]
        return [
            _Row(
                "  hosts" if number == 0 else "",
                "dim",
                tuple(link for _, link in part),
                tuple(host for host, _ in part),
            )
            for number, part in enumerate(parts)
        ]

    @staticmethod
    def _host_width(hosts: Sequence[Device]) -> int:
        return max(len(host.label) for host in hosts) + 5

    def _heads(self, devices: Sequence[Device]) -> str:
        """Names over the cells, as much of each as fits."""
        width = self._width - 1
        names = [_marked(device) for device in devices[self._first :]]
        if any(len(name) > width for name in names):
            names = [_number(device) for device in devices[self._first :]]
        return "".join(f"{name[-width:]:<{width}} " for name in names)

    def _cells_of(self, row: int) -> Sequence[str | tuple[str, str] | list[tuple[str, str]]]:
        drawn = self._map[row]
        if drawn.columns:
            return ("", [(self._heads(drawn.columns), "dim")])
        pieces: list[tuple[str, str]] = []
        width = self._host_width(drawn.hosts) if drawn.hosts else self._width
        first = 0 if drawn.hosts else self._first
        across = min(self._across, len(drawn.links) - 1)
        for number, link in enumerate(drawn.links[first:], first):
            text = self._text(link, width)
            if drawn.hosts:
                label = drawn.hosts[number].label
                text = f"{label} {_signs(link)}" if link is not None else label
            here = row == self.cursor and number == across
            style = "here" if here else "dim" if link is None else cell_style(link.state)
            pieces += [(f"{text:<{width - 1}}"[: width - 1], style), (" ", "")]
        return ((drawn.label, drawn.style), pieces)

    def _text(self, link: Link | None, width: int) -> str:
        """The signs of both directions, and the larger number of the measure."""
        if link is None:
            return ""
        if width < _SIGNS:
            return GLYPHS[link.state]
        if width < _NUMBERED:
            return _signs(link)
        values = [self._measure.value(way) for way in link.directions]
        known = [value for value in values if value is not None]
        number = self._measure.text(max(known)) if known else "" if not link.taps else "?"
        return f"{_signs(link)} {number}"

    def action_move(self, rows: int) -> None:
        """Over headings, which hold no link."""
        self._is_placed = True
        step = 1 if rows > 0 else -1
        at = max(0, min(len(self._map) - 1, self.cursor + rows))
        while 0 <= at < len(self._map) and not self._map[at].links:
            at += step
        if 0 <= at < len(self._map):
            self.cursor = at

    def action_move_across(self, cells: int) -> None:
        """Move the cursor within its row, and the cells with it."""
        if not self._map or not self._map[self.cursor].links:
            return
        self._is_placed = True
        row = self._map[self.cursor]
        self._across = max(0, min(len(row.links) - 1, self._across + cells))
        self._follow()
        self.refresh()
        self.post_message(self.Moved(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        row = event.y - 1 + int(self.scroll_offset.y)
        if 0 <= row < len(self._map) and self._map[row].links:
            self._is_placed = True
            drawn = self._map[row]
            width = self._host_width(drawn.hosts) if drawn.hosts else self._width
            number = (event.x - LEFT - self._label - 1) // width
            number += 0 if drawn.hosts else self._first
            self._across = max(0, min(len(drawn.links) - 1, number))
            self.refresh()
        super().on_click(event)

    def _to_worst(self) -> None:
        found = [
            (WORST_FIRST.index(link.state), number, across)
            for number, row in enumerate(self._map)
            for across, link in enumerate(row.links)
            if link is not None
        ]
        if found:
            _, row, self._across = min(found)
            self.set_reactive(Grid.cursor, row)


def _signs(link: Link) -> str:
    """A sign for the way up and one for the way down; twice that of the link where it is worse."""
    ways = [way.state for way in link.directions]
    signs = ways if link.state in ways else [link.state] * 2
    return "".join(GLYPHS[state] for state in signs)


def cell_style(state: State) -> str:
    """The style of a state in tables."""
    if state in _GRAVE:
        return "bad"
    return "warn" if state in FAULTS else "dim"


def _marked(device: Device) -> str:
    """The name, with the sign of a fault."""
    return f"{GLYPHS[device.state]} {device.label}" if device.state in FAULTS else device.label


def _number(device: Device) -> str:
    """The number of a device, or the end of its name."""
    digits = "".join(c for c in device.label if c.isdigit())
    return digits[-2:] or device.label[-2:]


def link_strips(fabric: Fabric | None, taps: Sequence[str], tap_bytes: Ints) -> list[LinkStrip]:
    """The bytes of every captured link, the worst link first; without a fabric of every tap.

    tap_bytes: int64[windows, taps].
    """
    if tap_bytes.shape[1] != len(taps):
        return []
    short = short_taps(taps)
    number = {tap: n for n, tap in enumerate(taps)}
    label = {device.name: device.label for device in fabric.devices} if fabric is not None else {}
    found: list[tuple[int, int, LinkStrip]] = []
    known: set[str] = set()
    for link in fabric.links if fabric is not None else ():
        seen = [number[tap] for tap in link.taps if tap in number]
        if not seen:
            continue
        known |= set(link.taps)
        values = tap_bytes[:, seen].max(axis=1).tolist()
        name = UNICODE.shorten(f"{label[link.lower]}-{label[link.upper]}", LABEL - 2)
        strip = LinkStrip(f"{GLYPHS[link.state]} {name}", rich_style(link.state), values)
        found.append((WORST_FIRST.index(link.state), -sum(values), strip))
    for tap in taps:
        if tap not in known:
            values = tap_bytes[:, number[tap]].tolist()
            strip = LinkStrip(UNICODE.shorten(short[tap], LABEL), "dim", values)
            found.append((len(WORST_FIRST), -sum(values), strip))
    return [strip for *_, strip in sorted(found, key=lambda each: each[:2])]


def legend(fabric: Fabric, measure: Measure) -> Text:
    """The signs on the map, and what the numbers are."""
    text = Text(overflow="ellipsis")
    text.append(f"{measure.title}", "bold")
    text.append(f", {measure.unit}; cell: up, down; all packets\n", "dim")
    on_map = {way.state for link in fabric.links for way in link.directions}
    on_map |= {link.state for link in fabric.links}
    for state in WORST_FIRST:
        if state in on_map:
            text.append(f"{GLYPHS[state]} {state}  ", rich_style(state))
    text.rstrip()
    return text


def rich_style(state: State) -> str:
    """The style of a state in text."""
    return {"bad": "bold red", "warn": "yellow", "dim": "dim"}[cell_style(state)]


def link_lines(fabric: Fabric, link: Link | None) -> Text:
    """The numbers of a link, a line for each direction."""
    label = {device.name: device.label for device in fabric.devices}
    text = Text(overflow="ellipsis")
    if link is None:
        return text
    if not link.taps:
        why = " (other switches of the tier have such a link)" if link.is_supposed else ""
        return text.append(f"{label[link.lower]}-{label[link.upper]}: not captured{why}", "dim")
    for way in link.directions:
        text.append(
            f"{GLYPHS[way.state]} {label[way.source]} {UNICODE.arrow} {label[way.target]}", "bold"
        )
        text.append(f" {way.state}", rich_style(way.state))
        text.append(f": {_numbers(way)}")
        if way.findings:
            text.append(f"; finding {', '.join(map(str, way.findings))}", "bold")
        text.append("\n")
    if link.pause_frames:
        text.append(f"{human.counted(link.pause_frames, 'pause frame')}\n", "yellow")
    text.rstrip()
    return text


def _numbers(way: Direction) -> str:
    if way.packets is None:
        return "no other tap saw its packets"
    parts = [f"{human.counted(way.packets, 'packet')}, {human.size(way.wire_bytes)}"]
    if way.lost_after_packets:
        share = human.percent(way.lost_after_packets / way.packets)
        parts.append(f"{human.count(way.lost_after_packets)} lost after ({share})")
    if way.lost_before_packets and way.expected_packets:
        share = human.percent(way.lost_before_packets / way.expected_packets)
        parts.append(f"{human.count(way.lost_before_packets)} lost before ({share})")
    if not (way.lost_after_packets or way.lost_before_packets):
        parts.append("none lost")
    if way.queueing_p99_ns is not None:
        parts.append(f"queue p99 {human.duration(way.queueing_p99_ns)}")
    for number, word in ((way.ce_packets, "marked CE"), (way.late_packets, "late")):
        parts += [f"{human.count(number)} {word}"] if number else []
    if way.utilisation_percent is not None:
        parts.append(f"{human.percent(way.utilisation_percent / 100)} of its rate")
    if way.fair_ratio is not None:
        parts.append(f"{way.fair_ratio:.2f} x fair")
    return ", ".join(parts)

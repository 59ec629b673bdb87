"""The fabric as the captures show it: a grid of links per tier, and the links with faults."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from .. import human
from ..overview import FAULTS, GLYPHS, MEASURES, WORST_FIRST, Direction, Fabric, Link, State
from ..terminal.page import folded, numbers, texts
from .page import WIDTH, Chart, Drawing, shorten

MOST_SIDE = 64
"""Rows and columns of a grid."""
MOST_FAULTY = 20
"""Links in the table of faults."""
_LEFT, _ROW, _WIDEST, _SIGNED, _HEAD = 150.0, 22.0, 64.0, 20.0, 40.0
"""Room for labels; size of a cell; least width of a cell with signs; room for names of columns."""
_HOSTS = 8
"""Hosts in a row of the list below the grids."""
_STRONG = {State.LOSSY, State.MOVED}


def fabric_chart(fabric: Fabric) -> Chart:
    """Links between the tiers of switches as grids, then the hosts of each switch."""
    parts: list[str] = []
    height = 8.0
    grids, cells = [], fabric.cells()
    for tier in range(1, fabric.tiers):
        lower, upper = fabric.level(tier), fabric.level(tier + 1)
        hidden = max(0, len(lower) - MOST_SIDE) + max(0, len(upper) - MOST_SIDE)
        if hidden:
            parts.append(f"{human.counted(hidden, 'switch', 'switches')} of tier {tier} not drawn")
        grids.append((height, lower[:MOST_SIDE], upper[:MOST_SIDE]))
        height += _HEAD + _ROW * min(len(lower), MOST_SIDE) + 10
    owners = [
        (switch, hosts) for switch in fabric.level(1) if (hosts := fabric.hosts_of(switch.name))
    ]
    if len(owners) > MOST_SIDE:
        parts.append(f"hosts of {len(owners) - MOST_SIDE} switches not drawn")
    lines = [
        (switch.label if not first else "", hosts[first : first + _HOSTS])
        for switch, hosts in owners[:MOST_SIDE]
        for first in range(0, len(hosts), _HOSTS)
    ]
    drawing = Drawing(height + (_ROW * (len(lines) + 1) if lines else 0) + 4)
    for top, lower, upper in grids:
        width = min(_WIDEST, (WIDTH - 8 - _LEFT) / max(1, len(upper)))
        every = -(-40 // max(1, int(width)))
        for i, device in enumerate(upper):
            if i % every == 0:
                name = shorten(_named(device.label, device.state), max(4, int(width * every / 7)))
                drawing.text(_LEFT + width * (i + 0.5), top + 26, name, "soft", "middle")
        for j, below in enumerate(lower):
            y = top + _HEAD + _ROW * j
            name = shorten(_named(below.label, below.state), 20)
            drawing.text(_LEFT - 6, y + 15, name, "", "end")
            for i, above in enumerate(upper):
                link = cells.get((below.name, above.name))
                if link is not None:
                    _cell(drawing, link, _LEFT + width * i, y, width)
    if lines:
        drawing.text(_LEFT, height + 14, "hosts below each switch", "soft")
    room = (WIDTH - 8 - _LEFT) / _HOSTS
    for j, (name, hosts) in enumerate(lines):
        y = height + _ROW * (j + 1)
        drawing.text(_LEFT - 6, y + 15, shorten(name, 20), "", "end")
        for i, (host, link) in enumerate(hosts):
            _cell(drawing, link, _LEFT + room * i, y, room - 4, shorten(host.label, int(room / 8)))
    return Chart(
        "Fabric as captured",
        f"{fabric.sentence()}. {_legend(fabric)} The left half of a cell is the direction "
        "away from the hosts, the right half the direction towards them.",
        drawing,
        ("link", "direction", "state", *(f"{m.title}, {m.unit}" for m in MEASURES), "findings"),
        [
            (
                link.name,
                f"{way.source} to {way.target}",
                str(_state(link, way)),
                *(measure.value(way) for measure in MEASURES),
                _findings(way.findings),
            )
            for link in worst_first(fabric.links)[: MOST_SIDE * 8]
            if link.taps
            for way in link.directions
        ],
        f"{'; '.join(parts)}." if parts else "",
    )


def worst_first(links: Sequence[Link]) -> list[Link]:
    """Links by state; of one state in their order."""
    return sorted(links, key=lambda link: WORST_FIRST.index(link.state))


def faulty_links(fabric: Fabric) -> list[Link]:
    """Links with a fault or congestion, worst first."""
    return [link for link in worst_first(fabric.links) if link.state in FAULTS]


def fault_table(table: Table, links: Sequence[Link]) -> None:
    """Their directions with a fault."""
    texts(table, "from", "to")
    folded(table, "state")
    numbers(table, *(measure.title for measure in MEASURES), "findings")
    for link in links:
        for way in link.directions:
            state = _state(link, way)
            if state in FAULTS:
                values = [(measure, measure.value(way)) for measure in MEASURES]
                table.add_row(
                    way.source,
                    way.target,
                    f"{GLYPHS[state]} {state}",
                    *(human.UNKNOWN if v is None else measure.text(v) for measure, v in values),
                    _findings(way.findings),
                )


def _state(link: Link, way: Direction) -> State:
    """That of the direction; of the link where no direction has it, as a pause."""
    known = {each.state for each in link.directions}
    return way.state if link.state in known else link.state


def _cell(drawing: Drawing, link: Link, x: float, y: float, width: float, name: str = "") -> None:
    half = width / 2
    for side, way in enumerate(link.directions):
        state = _state(link, way)
        kind, opacity = _shade(state)
        drawing.rect(x + half * side, y, half, _ROW - 2, f"{kind} cell", opacity)
        if not name and width >= _SIGNED:
            drawing.text(x + half * (side + 0.5), y + 14, GLYPHS[state], "", "middle")
    if name:
        drawing.text(x + half, y + 14, _named(name, link.state), "", "middle")


def _shade(state: State) -> tuple[str, float]:
    """Only faults have a strong colour."""
    if state in FAULTS:
        return ("span", 0.5) if state in _STRONG else ("two", 0.45)
    return ("one", 0.12) if state == State.FINE else ("none", 1)


def _named(label: str, state: State) -> str:
    return f"{label} {GLYPHS[state]}" if state in FAULTS else label


def _legend(fabric: Fabric) -> str:
    states = {_state(link, way) for link in fabric.links for way in link.directions}
    signs = [f"{GLYPHS[s].strip() or 'empty'} {s}" for s in WORST_FIRST if s in states]
    return f"Signs: {', '.join(signs)}."


def _findings(found: Sequence[int]) -> str:
    return ", ".join(map(str, found)) or "-"

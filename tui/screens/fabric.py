"""Screen 0: the links of the replayed fabric as a map, and the flows on each link."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal

from ...replay.results.replay import LinkLoad, StrategyResult
from ...report.words import human
from ..messages import FlowSelected
from ..session.replays.placed import OnLink
from ..session.replays.replays import BY_PACKET, limiting_link
from ..session.snapshots.matrix import LEGEND, NUMBER_CELL, heat, heat_cell
from ..session.snapshots.snapshot import Snapshot
from ..session.words import sentences
from ..widgets.grid import Grid
from ..widgets.grid_columns import Cell, GridColumn
from .base import RoceScreen, flow_name, own_bindings

_WORST = (
    GridColumn("link", "LINK", 14, grows=True),
    GridColumn("over", "x FAIR", 6, True),
    GridColumn("flows", "FLOWS", 5, True),
    GridColumn("bytes", "BYTES", 8, True, 1),
    GridColumn("layer", "LAYER", 12, priority=2),
)
_ON_IT = (
    GridColumn("flow", "FLOW", 34, grows=True),
    GridColumn("entropy", "SPORT", 6, True, 1),
    GridColumn("bytes", "BYTES", 8, True),
    GridColumn("share", "SHARE", 7, True),
    GridColumn("packets", "PACKETS", 8, True, 2),
)
_FROM = 14
_EVEN = 1.005
"""Loads below this multiple of the fair share count as fair."""
NOTHING_YET = """No strategy has run on this traffic yet.

9  opens the replay screen
r  there runs every strategy on a fabric that fits the captured hosts
f  there sets another fabric"""


class FabricScreen(RoceScreen):
    """Link map of the strategy under the cursor of screen 9, its links, and the flows on a link."""

    name_ = "fabric"
    BINDINGS = own_bindings("fabric")

    def __init__(self) -> None:
        super().__init__()
        self._links: list[LinkLoad] = []
        self._on_it: list[OnLink] = []
        self._chosen = ""

    def body(self) -> ComposeResult:
        yield Grid((), id="links")
        with Horizontal(id="below-map"):
            yield Grid(_WORST, id="collisions")
            yield Grid(_ON_IT, id="on-link")

    def draw(self, snapshot: Snapshot) -> str:
        shown = self.view
        view = shown.replays.view
        chosen = (
            shown.strategy
            if shown.strategy in view.strategies
            else next(iter(view.strategies), None)
        )
        self._chosen = chosen or ""
        grid, below = self.query_one("#links", Grid), self.query_one("#collisions", Grid)
        self.query_one("#below-map").display = chosen is not None
        if chosen is None:
            grid.set_columns((GridColumn("none", "", 20, grows=True),))
            why = sentences.nothing(snapshot)
            grid.empty = self.what_next(snapshot) if why else NOTHING_YET
            grid.show(0, lambda row: ())
            self._links = []
            below.show(0, lambda row: ())
            self._show_flows()
            return why or "No strategy has run yet: r on screen 9."
        result = view.strategies[chosen]
        against = next((n for n in shown.picked if n in view.strategies and n != chosen), None)
        base = view.strategies[against] if against else None
        rows = link_rows(result, base, self.size.width - _FROM - 4)
        legend = " ".join(f"{heat(ratio)[0].strip()} {word}" for ratio, word in LEGEND)
        title = f"{chosen} minus {against}" if against else f"{chosen} / fair share   {legend}"
        grid.set_columns(
            (GridColumn("from", "FROM", _FROM), GridColumn("map", title, 4, grows=True))
        )
        grid.show(len(rows), lambda row: (rows[row][0], rows[row][1]))
        # Hashing does not affect the links of hosts, so they come last.
        self._links = sorted(
            result.links,
            key=lambda one: ("host" in one.layer, -one.wire_bytes, -(one.over_mean or 0.0)),
        )
        below.show(len(self._links), lambda row: link_cells(self._links[row]))
        self._show_flows()
        if result.packets is not None:
            return packets_sentence(chosen, result)
        top = limiting_link(result)
        if top is None or (top.over_mean or 0.0) < _EVEN:
            return f"{chosen}: no link carries more than its fair share."
        text = f"{chosen}: {times_fair(top, result)}"
        if top.flows is not None:
            text += f"; {human.counted(top.flows, 'flow shares', 'flows share')} it"
        return f"{text}."

    def _show_flows(self) -> None:
        """The flows on the link under the cursor."""
        at, grid = self.query_one("#collisions", Grid).cursor, self.query_one("#on-link", Grid)
        placed = self.view.replays.placed.get(self._chosen)
        link = self._links[at] if at < len(self._links) else None
        self._on_it = placed.on_link(link.name) if placed is not None and link is not None else []
        name = f"FLOWS ON {link.name}" if link is not None else "FLOW"
        grid.set_columns((_ON_IT[0]._replace(title=name), *_ON_IT[1:]))
        by_packet = self._chosen.endswith(BY_PACKET)
        grid.empty = "unknown in packet-by-packet replays" if by_packet else "no flow on this link"
        total = link.wire_bytes if link is not None else 0
        grid.show(len(self._on_it), lambda row: flow_cells(self._on_it[row], total))

    @on(Grid.Moved, "#collisions")
    def _moved(self) -> None:
        self._show_flows()

    @on(Grid.Moved, "#on-link")
    def _chosen_flow(self, event: Grid.Moved) -> None:
        if event.row < len(self._on_it):
            self.post_message(FlowSelected(self._on_it[event.row].key))

    def action_deeper(self) -> None:
        """From the links to the flows of a link, then to their packets."""
        grid = self.query_one("#on-link", Grid)
        if not grid.has_focus:
            grid.focus()
        elif grid.cursor < len(self._on_it):
            self.view.select(self._on_it[grid.cursor].key, by_user=True)
            self.host.go("packets")


def times_fair(link: LinkLoad, result: StrategyResult) -> str:
    """Its load over its fair share, and over the largest of its layer if that differs."""
    over, most = f"{link.over_mean or 0:.2f}", f"{result.max_over_mean or 0:.2f}"
    largest = "" if over == most else f" ({most} times the largest of its layer)"
    return f"{link.name} carries {over} times its fair share{largest}"


def packets_sentence(name: str, result: StrategyResult) -> str:
    """The fullest link, completion over its bound, the longest queue, reordering."""
    parts = []
    full = limiting_link(result)
    if full is not None and full.over_mean:
        parts.append(times_fair(full, result))
    took, bound = result.completion_time_ns, result.lower_bound_ns
    if took is None:
        parts.append("not all packets were delivered")
    else:
        over = f", {took / bound:.2f} times the lower bound" if bound else ""
        parts.append(f"completed in {human.duration(took)}{over}")
    parts.append(f"at most {human.counted(result.max_queue_packets or 0, 'packet')} in a queue")
    if result.packets is not None and result.packets.received is not None:
        parts.append(f"{result.packets.received.reordered_percent:.1f} % late")
    return f"{name}: {'; '.join(parts)}."


def link_rows(
    result: StrategyResult, base: StrategyResult | None, room: int
) -> list[tuple[str, list[tuple[str, str]]]]:
    """A row per node and layer, a cell per link out of it: load over fair, or the difference.

    room: terminal columns for the cells of a row.
    """
    before = {link.name: link.over_mean or 0.0 for link in base.links} if base else {}
    rows: list[tuple[str, list[tuple[str, str]]]] = []
    layer = ""
    by_node: dict[tuple[str, str], list[LinkLoad]] = {}
    for link in sorted(
        result.links, key=lambda one: "host" in one.layer
    ):  # the least important ones
        node = link.name.partition(">")[0]
        by_node.setdefault((link.layer, node), []).append(link)
    most = max(map(len, by_node.values()), default=1)
    cell = NUMBER_CELL if most * NUMBER_CELL <= room else 4
    for (of, node), links in by_node.items():
        if of != layer:
            targets = [link.name.partition(">")[2] for link in links]
            same = all(
                [x.name.partition(">")[2] for x in others] == targets
                for (o, _), others in by_node.items()
                if o == of
            )
            short = str if max(map(len, targets)) < cell else _short
            heads = "".join(f"{short(name):>{cell - 1}} " for name in targets) if same else ""
            rows.append((of, [(heads, "dim")]))
            layer = of
        cells = []
        for link in links:
            ratio = link.over_mean or 0.0
            if base is not None:
                cells.append(_signed(ratio - before.get(link.name, 0.0), cell))
            else:
                cells.append(heat_cell(ratio, cell))
        rows.append((f"  {node}", cells))
    return rows


def _short(name: str) -> str:
    digits = "".join(c for c in name if c.isdigit())
    return f"{name[0]}{digits}"[-3:]


def _signed(difference: float, cell: int) -> tuple[str, str]:
    if abs(difference) < 0.05:
        return f"{'.':>{cell - 1}} ", "fair"
    style = "hot2" if difference > 0 else "cold2"
    digits = 1 if cell < NUMBER_CELL else 2
    return f"{difference:+.{digits}f}"[:cell].rjust(cell - 1).ljust(cell), style


def link_cells(link: LinkLoad) -> Sequence[Cell]:
    """One link."""
    over = link.over_mean or 0.0
    return (
        link.name,
        (f"{over:.2f}", "bad" if over >= 1.25 else "" if over > 0 else "dim"),
        "-" if link.flows is None else human.count(link.flows),
        human.size(link.wire_bytes),
        link.layer,
    )


def flow_cells(one: OnLink, total: int) -> Sequence[Cell]:
    """One flow of a link; total: wire bytes of the link."""
    return (
        flow_name(one.key),
        str(one.entropy & 0xFFFF),
        human.size(one.wire_bytes),
        human.percent(one.wire_bytes / total if total else None),
        human.count(one.packets),
    )

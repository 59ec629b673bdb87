"""Screen 8: the links of the replayed fabric as a map, and who meets on the crowded ones."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from ...replay.results import LinkLoad, StrategyResult
from .. import human
from ..matrix import heat
from ..snapshot import Snapshot
from ..widgets.grid import Cell, Grid, GridColumn
from .base import RoceScreen, own_bindings

_FLOWS = (
    GridColumn("link", "LINK", 18),
    GridColumn("over", "x FAIR", 6, True),
    GridColumn("flows", "FLOWS", 5, True),
    GridColumn("who", "LARGEST FLOWS ON IT", 30, grows=True),
)


class FabricScreen(RoceScreen):
    """Link map of the strategy the cursor of screen 7 is on."""

    name_ = "fabric"
    BINDINGS = own_bindings("fabric")

    def body(self) -> ComposeResult:
        yield Grid((), id="links")
        yield Grid(_FLOWS, id="collisions")

    def draw(self, snapshot: Snapshot) -> str:
        app = self.roce
        view = app.replays.view
        chosen = (
            app.strategy if app.strategy in view.strategies else next(iter(view.strategies), None)
        )
        grid, below = self.query_one("#links", Grid), self.query_one("#collisions", Grid)
        if chosen is None:
            grid.set_columns((GridColumn("none", "", 20, grows=True),))
            grid.empty = "run strategies on screen 7 first"
            grid.show(0, lambda row: ())
            below.show(0, lambda row: ())
            return "No strategy has run yet: r on screen 7."
        result = view.strategies[chosen]
        against = next((n for n in app.picked if n in view.strategies and n != chosen), None)
        base = view.strategies[against] if against else None
        rows = link_rows(result, base)
        columns = max((len(cells) for _, cells in rows), default=1)
        title = f"{chosen} minus {against}" if against else chosen
        grid.set_columns(
            (
                GridColumn("from", "FROM", 14),
                GridColumn("map", title, max(len(title), columns * 4), grows=True),
            )
        )
        grid.show(len(rows), lambda row: (rows[row][0], rows[row][1]))
        worst = result.worst
        below.empty = "no link carries more than its share"
        below.show(len(worst), lambda row: collision_cells(result, row))
        if not worst:
            return f"{chosen}: no link carries more than its fair share."
        top = worst[0]
        return (
            f"{chosen}: {top.link} carries {top.over_mean:.2f} times its fair share;"
            f" {human.counted(top.flows, 'flow meets', 'flows meet')} there."
        )


def link_rows(
    result: StrategyResult, base: StrategyResult | None
) -> list[tuple[str, list[tuple[str, str]]]]:
    """A row per node and layer, a cell per link out of it: load over fair, or the difference."""
    before = {link.name: link.over_mean or 0.0 for link in base.links} if base else {}
    rows: list[tuple[str, list[tuple[str, str]]]] = []
    layer = ""
    by_node: dict[tuple[str, str], list[LinkLoad]] = {}
    for link in sorted(result.links, key=lambda one: "host" in one.layer):  # those matter least
        node = link.name.partition(">")[0]
        by_node.setdefault((link.layer, node), []).append(link)
    for (of, node), links in by_node.items():
        if of != layer:
            targets = [link.name.partition(">")[2] for link in links]
            same = all(
                [x.name.partition(">")[2] for x in others] == targets
                for (o, _), others in by_node.items()
                if o == of
            )
            heads = " ".join(f"{_short(name):>3}" for name in targets) if same else ""
            rows.append((of, [(heads, "dim")]))
            layer = of
        cells = []
        for link in links:
            ratio = link.over_mean or 0.0
            if base is not None:
                cells.append(_signed(ratio - before.get(link.name, 0.0)))
            else:
                glyph, style = heat(ratio)
                cells.append((f" {glyph} ", style))
        rows.append((f"  {node}", cells))
    return rows


def _short(name: str) -> str:
    digits = "".join(c for c in name if c.isdigit())
    return f"{name[0]}{digits}"[-3:]


def _signed(difference: float) -> tuple[str, str]:
    if abs(difference) < 0.05:
        return "  . ", "fair"
    style = "hot2" if difference > 0 else "cold2"
    return f"{difference:+4.1f}"[:4], style


def collision_cells(result: StrategyResult, row: int) -> Sequence[Cell]:
    """One crowded link."""
    worst = result.worst[row]
    largest = ", ".join(
        f"{f.src}>{f.dst} {human.queue_pair(f.dest_qp)} {human.size(f.wire_bytes)}"
        for f in worst.largest[:4]
    )
    return worst.link, (f"{worst.over_mean:.2f}", "bad"), str(worst.flows), largest

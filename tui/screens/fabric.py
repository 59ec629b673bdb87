"""Screen 0: the fabric as captured; after a replay its links as a map, and the flows on each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ...analyzer.words import printable
from ...replay.results import LinkLoad, StrategyResult
from ...report import human
from ...report.overview import GLYPHS, MEASURES, WORST_FIRST, Direction, Fabric
from ..fabric_map import FabricMap, cell_style, legend, link_lines
from ..grid import Cell, Grid, GridColumn
from ..host import FlowSelected
from ..session import words
from ..session.matrix import LEGEND, NUMBER_CELL, heat, heat_cell
from ..session.placed import OnLink, Point
from ..session.replays import BY_PACKET, ReplayView, limiting_link
from ..session.snapshot import TRACED, Snapshot
from .base import RoceScreen, flow_name, go_to_hops, own_bindings

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
_OBSERVED = (
    GridColumn("link", "LINK", 18, grows=True, most=44),
    GridColumn("state", "STATE", 14),
    GridColumn("packets", "PACKETS", 10, True),
    GridColumn("bytes", "BYTES", 8, True, 2),
    GridColumn("after", "LOST AFTER", 10, True),
    GridColumn("before", "LOST BEFORE", 11, True),
    GridColumn("loss", "LOSS", 8, True),
    GridColumn("queue", "QUEUE p99", 9, True, 1),
    GridColumn("ce", "CE", 7, True, 3),
    GridColumn("late", "LATE", 7, True, 3),
    GridColumn("fair", "x FAIR", 6, True, 4),
    GridColumn("rate", "UTIL", 7, True, 5),
    GridColumn("findings", "FINDING", 7, priority=6),
)
"""A row for each direction of a captured link."""
_FROM = 14
_EVEN = 1.005
"""Loads below this multiple of the fair share count as fair."""
NOTHING_YET = """No strategy has run on this traffic yet.

9    opens the replay screen
9 r  runs every strategy on a fabric that fits the captured hosts
9 f  sets another fabric"""


class FabricScreen(RoceScreen):
    """Link map of the strategy under the cursor of screen 9, its links, and the flows on a link."""

    name_ = "fabric"
    BINDINGS = own_bindings("fabric")

    def __init__(self) -> None:
        super().__init__()
        self._links: list[LinkLoad] = []
        self._on_it: list[OnLink] = []
        self._chosen = ""
        self._drawn: ReplayView | None = None

    def body(self) -> ComposeResult:
        yield Static(id="followed")
        yield Grid((), id="links")
        with Horizontal(id="below-map"):
            yield Grid(_WORST, id="collisions")
            yield Grid(_ON_IT, id="on-link")
        yield FabricMap("observed")
        yield Static(id="legend")
        yield Static(id="link")
        yield Grid(_OBSERVED, id="observed-links")

    def on_mount(self) -> None:
        self.set_interval(0.25, self._while_tracing)

    def _while_tracing(self) -> None:
        """Show traced paths and what switches do, as soon as they are there."""
        if self.is_current and self.view.replays.view is not self._drawn:
            self.redraw()

    def draw(self, snapshot: Snapshot) -> str:
        shown = self.view
        view = self._drawn = shown.replays.view
        followed = self.query_one("#followed", Static)
        followed.display = bool(view.followed)
        followed.update(fim_line(view, self.size.width - 2), layout=False)
        chosen = (
            shown.strategy
            if shown.strategy in view.strategies
            else next(iter(view.strategies), None)
        )
        self._chosen = chosen or ""
        grid, below = self.query_one("#links", Grid), self.query_one("#collisions", Grid)
        self.query_one("#below-map").display = chosen is not None
        listed = self.query_one("#observed-links", Grid)
        overview = snapshot.judged.overview
        observed = None if overview is None else overview.fabric
        self._show_observed(observed, alone=chosen is None)
        grid.display = chosen is not None or observed is None
        listed.display = chosen is None and observed is not None
        if observed is not None:
            ways = observed_ways(observed)
            label = {device.name: device.label for device in observed.devices}
            listed.show(len(ways), lambda row: observed_cells(ways[row], label))
        if chosen is None:
            grid.set_columns((GridColumn("none", "", 20, grows=True),))
            why = words.nothing(snapshot)
            no_fabric = printable(overview.why) if overview is not None else ""
            grid.empty = (
                self.what_next(snapshot) if why else f"{no_fabric}\n\n{NOTHING_YET}".strip()
            )
            grid.show(0, lambda row: ())
            self._links = []
            below.show(0, lambda row: ())
            self._show_flows()
            if observed is not None and not why and not none_traced(view):
                return f"As captured: {observed.sentence()}. A replay (9, then r) adds its loads."
            return why or none_traced(view) or "No strategy has run yet: r on screen 9."
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
            key=lambda link: ("host" in link.layer, -link.wire_bytes, -(link.over_mean or 0.0)),
        )
        below.show(len(self._links), lambda row: link_cells(self._links[row]))
        self._show_flows()
        if result.packets is not None:
            return none_traced(view) + packets_sentence(chosen, result)
        top = limiting_link(result)
        text = none_traced(view) + traced_words(view, chosen)
        if top is None or (top.over_mean or 0.0) < _EVEN:
            return f"{text}: no link carries more than its fair share."
        text += f": {times_fair(top, result)}"
        if top.flows is not None:
            text += f"; {human.counted(top.flows, 'flow shares', 'flows share')} it"
        return f"{text}."

    def _show_observed(self, fabric: Fabric | None, alone: bool) -> None:
        """The fabric as captured; with a replay only a part of the screen."""
        shown, parts = self.query_one("#observed", FabricMap), ("#observed", "#legend", "#link")
        for part in parts:
            self.query_one(part).display = fabric is not None
        if fabric is None:
            self.without_effect = frozenset({"measure"})
            return
        self.without_effect = frozenset()
        measure = MEASURES[self.view.fabric_measure]
        shown.show_fabric(fabric, measure)
        most = self.size.height // 2 if alone else self.size.height // 4
        shown.styles.height = min(shown.lines_needed, most)
        self.query_one("#legend", Static).update(legend(fabric, measure))
        self.query_one("#link", Static).update(link_lines(fabric, shown.link))

    @on(Grid.Moved, "#observed")
    def _other_link(self) -> None:
        overview = self.view.snapshot.judged.overview
        if overview is not None and overview.fabric is not None:
            link = self.query_one("#observed", FabricMap).link
            self.query_one("#link", Static).update(link_lines(overview.fabric, link))

    def action_measure(self) -> None:
        """The next measure of the observed links."""
        self.view.fabric_measure = (self.view.fabric_measure + 1) % len(MEASURES)
        self.redraw()

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
        """From the links to the flows of a link, then to their packets; from an observed link to
        its hops."""
        observed = self.query_one("#observed", FabricMap)
        if observed.has_focus:
            go_to_hops(self, observed)
            return
        grid = self.query_one("#on-link", Grid)
        if not grid.has_focus:
            grid.focus()
        elif grid.cursor < len(self._on_it):
            self.view.select(self._on_it[grid.cursor].key, by_user=True)
            self.host.go("packets")


def observed_ways(fabric: Fabric) -> list[Direction]:
    """Both directions of every captured link, the worst first."""
    ways = [way for link in fabric.links if link.taps for way in link.directions]
    return sorted(ways, key=lambda way: WORST_FIRST.index(way.state))


def observed_cells(way: Direction, label: dict[str, str]) -> Sequence[Cell]:
    """One row, in the order of `_OBSERVED`; `?`: these captures cannot tell. label: of devices."""
    loss, fair, used = way.loss_percent, way.fair_ratio, way.utilisation_percent
    style = cell_style(way.state)
    return (
        f"{label[way.source]} {human.UNICODE.arrow} {label[way.target]}",
        (f"{GLYPHS[way.state]} {way.state}", style),
        human.count(way.packets),
        human.size(way.wire_bytes),
        human.count(way.lost_after_packets),
        human.count(way.lost_before_packets),
        (human.percent(None if loss is None else loss / 100), style if loss else ""),
        human.duration(way.queueing_p99_ns),
        human.count(way.ce_packets),
        human.count(way.late_packets),
        human.UNKNOWN if fair is None else f"{fair:.2f}",
        human.percent(None if used is None else used / 100),
        ", ".join(map(str, way.findings)),
    )


def none_traced(view: ReplayView) -> str:
    """A sentence, with a space after it, if paths were traced and none is known now."""
    if view.traced is None or view.traced[0] or not view.traced[1]:
        return ""
    return f"No traced path is known ({human.counted(view.traced[1], 'flow')}). "


def traced_words(view: ReplayView, name: str) -> str:
    """The name of a strategy; of traced paths with those that are not known."""
    if name != TRACED or view.traced is None or view.traced[0] == view.traced[1]:
        return name
    known, flows = view.traced
    return f"{name} ({human.count(flows - known)} of {human.counted(flows, 'path')} unknown)"


def fim_line(view: ReplayView, room: int) -> Text:
    """FIM over time while switches are followed, and the latest event below."""
    text = Text(no_wrap=True, overflow="ellipsis")
    known = [point.fim_percent for point in view.followed if point.fim_percent is not None]
    if not view.followed:
        return text
    text.append("FIM over time ", "bold")
    if known:
        latest = view.followed[-1].fim_percent
        now = " unknown" if latest is None else f" {latest:.1f} %"
        now += f" now ({min(known):.1f} to {max(known):.1f})"
        width = max(4, room - 14 - len(now))
        text.append(human.UNICODE.columns(_over_time(view.followed, width)), "cyan")
        text.append(now)
    else:
        text.append("unknown: no path is known", "dim")
    return text.append(f"\n{printable(view.followed[-1].text)}", "dim")


def _over_time(points: Sequence[Point], width: int) -> list[float]:
    """FIM in columns of equal time up to the latest event; 0 where it is not known."""
    last = max(points[-1].seconds, 1e-9)
    columns: list[float] = []
    at = 0
    for column in range(min(width, 4 * len(points))):
        until = last * (column + 1) / min(width, 4 * len(points))
        while at + 1 < len(points) and points[at + 1].seconds <= until:
            at += 1
        columns.append(points[at].fim_percent or 0.0)
    return columns


def times_fair(link: LinkLoad, result: StrategyResult) -> str:
    """Its load over its fair share, and over the largest of its layer if that differs."""
    over, most = f"{link.over_mean or 0:.2f}", f"{result.max_over_mean or 0:.2f}"
    largest = "" if over == most else f" ({most} times the largest of its layer)"
    return f"{link.name} carries {over} times its fair share{largest}"


def packets_sentence(name: str, result: StrategyResult) -> str:
    """The busiest link, completion over its bound, the longest queue, reordering."""
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
        result.links, key=lambda load: "host" in load.layer
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
    over = link.over_mean or 0.0
    return (
        link.name,
        (f"{over:.2f}", "bad" if over >= 1.25 else "" if over > 0 else "dim"),
        "-" if link.flows is None else human.count(link.flows),
        human.size(link.wire_bytes),
        link.layer,
    )


def flow_cells(flow: OnLink, total: int) -> Sequence[Cell]:
    """One flow of a link; total: wire bytes of the link."""
    return (
        flow_name(flow.key),
        str(flow.entropy & 0xFFFF),
        human.size(flow.wire_bytes),
        human.percent(flow.wire_bytes / total if total else None),
        human.count(flow.packets),
    )

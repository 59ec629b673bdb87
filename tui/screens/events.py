"""Screen 8: events in order of time."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult

from ...analyzer.results.events import Event
from ...report.terminal.ranks import ranks_of_owner
from ...report.words import human
from ...report.words.events import event_text, kind_name
from ..flow_columns import RANKS
from ..messages import FlowSelected
from ..session.packets.packets import Point
from ..session.snapshots.snapshot import Snapshot
from ..session.words.shown_events import sentence, shown_events
from ..widgets.grid import Grid
from ..widgets.grid_columns import Cell, GridColumn
from .base import RoceScreen, own_bindings

EVENT_COLUMNS = (
    GridColumn("time", "TIME s", 10, True),
    GridColumn("kind", "KIND", 11),
    GridColumn("text", "WHAT", 30, grows=True),
    GridColumn("frame", "FRAME", 9, True, 3),
    GridColumn("tap", "TAP", 22, priority=4, ends=True),
)
NOTHING = """No NAK, rewind or restart of a queue pair.

Losses without a NAK are on screen 6, late packets on screen 5."""
_WITH_RANKS = 100
"""Terminal columns from which ranks fit beside what happened."""
_ALIKE = 50
"""If the addresses of one of the first N events do not fit, all events omit them."""
_STYLES = {
    "nak": "bad",
    "rnr_nak": "bad",
    "rewind": "warn",
    "sequence_restart": "bad",
    "mrc_nack": "warn",
    "ev_retired": "warn",
    "plane_down": "bad",
}


class EventsScreen(RoceScreen):
    """The list of events."""

    name_ = "events"
    of_record = False
    BINDINGS = own_bindings("events")

    def __init__(self) -> None:
        super().__init__()
        self._events: tuple[Event, ...] = ()

    def body(self) -> ComposeResult:
        yield Grid(EVENT_COLUMNS, id="list")

    def draw(self, snapshot: Snapshot) -> str:
        session = self.view.session
        self._events = shown_events(snapshot, session.passing(snapshot))
        start = self.start_ns(snapshot)
        grid = self.query_one("#list", Grid)
        one_tap = len(snapshot.source.tap_names) < 2
        columns = EVENT_COLUMNS[:-1] if one_tap else EVENT_COLUMNS
        ranked = self.size.width >= _WITH_RANKS and any(
            owner.ranks != (None, None) for owner in snapshot.owners.values()
        )
        grid.set_columns((*columns[:2], RANKS, *columns[2:]) if ranked else columns)
        hidden = len(snapshot.events) > len(self._events)
        quiet = len(snapshot.flows) and not hidden
        grid.empty = NOTHING if quiet else self.what_next(snapshot)
        room = grid.width_of("text")
        first = self._events[:_ALIKE]
        short = any(len(event_text(event)) > room for event in first)

        def cells(row: int) -> Sequence[Cell]:
            event = self._events[row]
            known = event_cells(event, start, room, short)
            owner = None if event.flow is None else snapshot.owners.get(event.flow)
            return (*known[:2], ranks_of_owner(owner), *known[2:]) if ranked else known

        grid.show(len(self._events), cells)
        return sentence(snapshot, self._events, session.filter is not None)

    @on(Grid.Moved, "#list")
    def _moved(self, event: Grid.Moved) -> None:
        if event.row < len(self._events):
            flow = self._events[event.row].flow
            if flow is not None and flow < len(self.view.snapshot.flows):
                self.post_message(FlowSelected(self.view.snapshot.key(flow)))

    def action_deeper(self) -> None:
        grid = self.query_one("#list", Grid)
        if grid.cursor < len(self._events):
            event = self._events[grid.cursor]
            self.view.wanted_packet = Point(event.time_ns, event.tap, event.frame_number)
        self.host.go("packets")


def event_cells(event: Event, start_ns: int, room: int, short: bool) -> Sequence[Cell]:
    """One row, in the order of EVENT_COLUMNS; room, short: as those of `event_text`."""
    return (
        f"{(event.time_ns - start_ns) / 1e9:.6f}",
        (kind_name(event.kind), _STYLES.get(event.kind, "accent")),
        event_text(event, short, room),
        human.UNKNOWN if event.frame_number is None else f"{event.frame_number:,}",
        event.tap or "",
    )

"""Parts of all screens, and which screens there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import ClassVar, Final, cast

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ...report import human
from ..actions import ACTIONS, Action, actions_of, bindings, shown_key
from ..clock import Clock
from ..fabric_map import FabricMap, link_strips
from ..grid import Grid, GridColumn
from ..host import Host
from ..session import words
from ..session.snapshot import FlowKey, Snapshot
from ..session.words import shown_events
from ..strips import overview_lines
from ..topbar import Tabs, TopBar
from ..view_state import ViewState
from .prompts import TextPrompt

# Which screens there are; each is imported when it is first shown.

SCREENS = {
    "diagnosis": "diagnosis.DiagnosisScreen",
    "evidence": "diagnosis.EvidenceScreen",
    "qps": "qps.QpsScreen",
    "hops": "hops.HopsScreen",
    "paths": "paths.PathsScreen",
    "reorder": "reorder.ReorderScreen",
    "recovery": "recovery.RecoveryScreen",
    "ranks": "ranks.RanksScreen",
    "jobs": "jobs.JobsScreen",
    "packets": "packets.PacketsScreen",
    "events": "recovery.EventsScreen",
    "replay": "replay.ReplayScreen",
    "aggregation": "aggregation.AggregationScreen",
    "fabric": "fabric.FabricScreen",
    "doctor": "doctor.DoctorScreen",
}
"""Module and class of each screen."""
_OF_REPLAYS = {"replay", "aggregation", "fabric"}
"""Screens whose modules take some 40 MB."""


def modes() -> dict[str, str | Callable[[], Screen[None]]]:
    """The modes of the app: how to make each screen."""
    return {name: _maker(place) for name, place in SCREENS.items()}


def prepared(shown: str, can_replay: bool) -> list[str]:
    """Screens to make before their first visit: not the one shown, nor any without a use."""
    left_out = {shown} if can_replay else {shown, *_OF_REPLAYS}
    return [name for name in SCREENS if name not in left_out]


def _maker(place: str) -> Callable[[], Screen[None]]:
    module, _, name = place.partition(".")

    def make() -> Screen[None]:
        screen: Screen[None] = getattr(import_module(f"{__package__}.{module}"), name)()
        return screen

    return make


TALL_FROM, LEAST_SPARE = 48, 10
"""Lines of a terminal that is tall, and of the smallest axis of time on it."""


def _lines_needed(part: Widget) -> int:
    """Lines of a part of a screen that are not empty."""
    if isinstance(part, Grid):
        return max(part.row_count + 1, EMPTY_LINES if not part.row_count else 0)
    if isinstance(part, Static):
        return part.virtual_size.height
    return max((_lines_needed(child) for child in part.children), default=0) + 1


EMPTY_LINES = 9
"""Lines of a table without rows, which says what to do."""

UNTIL_NOW, SINCE_THE_BEGINNING = " (until now)", " (since the start)"
"""Suffix of values of a live session that do not refer to the displayed time or window."""


class Verdict(Static):
    """The one-sentence verdict, as many of its words as two lines hold."""

    _LINES: Final = 2  # of the styles, without the border
    _shown = ("", 0)
    _shape = (0, 0)

    def show(self, sentence: str) -> None:
        """Draw a sentence."""
        width = self.size.width
        if (sentence, width) == self._shown:
            return
        self._shown = sentence, width
        text = Text(sentence, "bold", overflow="ellipsis")
        lines = text.wrap(self.app.console, max(1, width))
        if width and len(lines) > self._LINES:
            last = lines[self._LINES - 1].plain.rstrip()
            if cell_len(last) + 2 > width:
                last = last.rpartition(" ")[0]
            begin = [line.plain.rstrip() for line in lines[: self._LINES - 1]]
            text = Text("\n".join([*begin, f"{last} …"]), "bold", overflow="ellipsis")
        shape = width, len(lines)
        # Live sentences change four times a second; only a change of height costs a layout.
        self.update(text, layout=shape != self._shape)
        self._shape = shape


ALWAYS_SHOWN = ("help", "quit")
"""Actions that the footer shows on the narrowest terminal: they lead to all others."""


class Hints(Static):
    """The keys of this screen, as many as fit: the common ones first."""

    _shown: tuple[str, int, frozenset[str]] | None = None

    def show(self, screen: str, without: frozenset[str]) -> None:
        """Draw the footer from the registry, without some actions."""
        if self._shown == (screen, self.size.width, without):
            return
        self._shown = screen, self.size.width, without
        text = Text(" ")
        for action in _hinted(screen, (self.size.width or 80) - 1, without):
            begin = len(text.plain)
            text.append(shown_key(action), "bold")
            text.append(f" {action.label}")
            text.apply_meta({"@click": action.target}, begin, len(text.plain))
            text.append("  ")
        self.update(text, layout=False)


def _hinted(screen: str, width: int, without: frozenset[str]) -> list[Action]:
    """The actions of the footer; those that are always shown come last."""
    actions = [
        action
        for action in actions_of(screen)
        if not action.name.startswith("go(") and action.name not in without
    ]
    last = [action for action in actions if action.name in ALWAYS_SHOWN]
    others = [action for action in actions if action not in last]
    left = width - 1 - sum(map(_room, last))
    shown = []
    for action in sorted(others, key=lambda action: not action.footer):
        if _room(action) <= left:
            shown.append(action)
            left -= _room(action)
        elif not action.footer:
            break
    return shown + last


def _room(action: Action) -> int:
    return len(shown_key(action)) + len(action.label) + 3


def own_bindings(screen: str) -> list[BindingType]:
    """The keys of one screen's own actions."""
    return bindings([action for action in ACTIONS if screen in action.screens])


class RoceScreen(Screen[None]):
    """A screen over snapshots: subclasses give `name_`, `BINDINGS`, `body` and `draw`."""

    name_: ClassVar[str] = ""
    of_record: ClassVar[bool] = True
    """Whether it depends on the record of the selected flow."""
    spare_of: ClassVar[str] = ""
    """The part of the screen whose empty lines the axis of time takes on tall terminals."""
    without_effect: frozenset[str] = frozenset()
    """Actions that `draw` finds nothing for: the footer does not offer them."""

    def __init__(self) -> None:
        super().__init__()
        # Its widgets get the styles of now when they mount. Textual would parse all styles again,
        # for each screen twice: when the screen is made and at its first visit.
        self._css_update_count = self.app._css_update_count

    def compose(self) -> ComposeResult:
        yield TopBar(id="topbar")
        yield Tabs(id="tabs")
        yield Verdict(id="verdict")
        yield from self.body()
        if self.spare_of:
            yield Static(id="axis")
        yield Hints(id="hints")

    def body(self) -> ComposeResult:
        """The widgets between the sentence and the keys."""
        yield Widget()

    def draw(self, snapshot: Snapshot) -> str:
        """Show a snapshot; returns the sentence of the first line."""
        raise NotImplementedError

    def before_leaving(self, name: str) -> None:
        """A key leads to another screen: select what it shall show."""

    @property
    def host(self) -> Host:
        """The app as screens know it."""
        return cast(Host, self.app)

    @property
    def view(self) -> ViewState:
        """The shared view state."""
        return self.host.view

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Styles change only with the theme, and Textual applies the theme when a screen resumes.
        # A restyle at every visit takes half the time budget of a key.
        event.refresh_styles = False
        if self.query_one(
            TopBar
        ).size.width:  # before the first paint if the size is known, else on resize
            self.redraw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    @property
    def can_draw(self) -> bool:
        """Whether the widgets of the screen are mounted."""
        shown = self.is_attached and self in self.app.screen_stack
        return shown and bool(self.query(Hints))  # the last of them

    def redraw(self) -> None:
        """Show the app's snapshot."""
        if not self.can_draw:
            return
        view = self.view
        snapshot, session = view.snapshot, view.session
        top = self.query_one(TopBar)
        clock = self.clock(snapshot)
        span = "  ".join(filter(None, (clock.day(), view.window_text())))
        top.show(snapshot, view.paths(), view.frozen, span, session.name)
        events = shown_events(snapshot, session.passing(snapshot))
        counts = {
            "diagnosis": len(snapshot.judged.findings),
            "qps": view.visible_count,
            "events": len(events),
        }
        self.query_one(Tabs).show(self.name_, counts)
        sentence = session.absent(self.name_)
        for widget in self.children:
            if not isinstance(widget, (TopBar, Tabs, Verdict, Hints)):
                widget.visible = not sentence
        sentence = sentence or self.draw(snapshot)
        if self.spare_of:
            self._show_axis(snapshot)
        self.query_one(Hints).show(self.name_, self.without_effect)
        verdict = self.query_one(Verdict)
        shown = (
            grid for grid in self.query(Grid) if all(n.display for n in grid.ancestors_with_self)
        )
        left_out = sum(grid.left_out for grid in shown)
        more = f"+{human.counted(left_out, 'column')}" if left_out else ""
        if more != (verdict.border_subtitle or ""):
            verdict.border_subtitle = more
        verdict.show(sentence)

    def _show_axis(self, snapshot: Snapshot) -> None:
        """What happens when, in the lines that a tall terminal leaves."""
        axis, part = self.query_one("#axis", Static), self.query_one(self.spare_of)
        width, height = self.size
        lines = part.outer_size.height + (axis.outer_size.height if axis.display else 0)
        spare = lines - _lines_needed(part) - 1
        axis.display = spare >= LEAST_SPARE and height >= TALL_FROM and bool(len(snapshot.flows))
        if axis.display:
            overview = snapshot.judged.overview
            time = None if overview is None else overview.time
            fabric = None if overview is None else overview.fabric
            strips = link_strips(fabric, snapshot.source.tap_names, snapshot.timeline.tap_bytes)
            drawn = overview_lines(snapshot, time, strips, self.clock(snapshot), width - 1, spare)
            axis.update(Text("\n").join(drawn))

    def action_everything(self) -> None:
        """Show or hide flows without data."""
        self.view.everything = not self.view.everything
        self.redraw()

    def action_path_key(self) -> None:
        """Switch to the next path key."""
        if not self.view.next_path_key():
            self.notify("Source ports are the only path key here; a replay (9) predicts links")
        self.redraw()

    def action_mark(self) -> None:
        """Mark the selected flow."""
        session = self.view.session
        if session.selected is not None:
            session.marks.toggle(session.selected)
            self.redraw()

    def action_comment(self) -> None:
        """Ask for a comment on the selected flow."""
        session = self.view.session
        key = session.selected
        if key is None:
            return

        def keep(text: str | None) -> None:
            if text is not None:
                session.marks.flows[key] = text
                self.redraw()

        before = session.marks.flows.get(key, "")
        self.app.push_screen(TextPrompt("comment on this flow", before), keep)

    def action_larger(self) -> None:
        """Show only the focused pane."""
        if self.focused is not None:
            self._set_aside(self, {self.focused, *self.focused.ancestors})
            self.call_after_refresh(self.redraw)

    def _set_aside(self, parent: Widget, kept: set[DOMNode]) -> None:
        for child in parent.children:
            if child in kept:
                if child is not self.focused:
                    self._set_aside(child, kept)
            elif not isinstance(child, (TopBar, Tabs, Verdict, Hints)):
                child.add_class("aside")

    def action_smaller(self) -> None:
        """Show all panes."""
        self.query(".aside").remove_class("aside")
        self.call_after_refresh(self.redraw)

    def draw_record(self) -> None:
        """Redraw what depends on the record of the selected flow."""
        if self.of_record:
            self.redraw()

    def on_grid_chosen(self) -> None:
        if hasattr(self, "action_deeper"):
            self.action_deeper()

    def clock(self, snapshot: Snapshot) -> Clock:
        """How this screen shows times."""
        return Clock(self.start_ns(snapshot), self.view.time_mode)

    def start_ns(self, snapshot: Snapshot) -> int:
        """Origin of times: the start of the capture, independent of the time window."""
        full = self.view.session.whole()
        return full[0] if full is not None else snapshot.start_ns

    def no_flow(self, snapshot: Snapshot) -> str:
        """The sentence of a one-flow screen without a selected flow or without its record."""
        if why := words.nothing(snapshot):
            return why
        key = self.view.session.selected
        if key is None:
            return "Select a flow on screen 2."
        if snapshot.find(key) is None:
            return f"{flow_name(key)} has no packet here: select another flow on screen 2."
        return f"{flow_name(key)}: loading its details."

    def what_next(self, snapshot: Snapshot) -> str:
        """Hints for an empty table."""
        session, source = self.view.session, snapshot.source
        others = "^f opens a capture, ^n captures on interfaces of this host"
        if source.error and not len(snapshot.flows):
            return f"X  retries\n{others}"
        if session.filter_text:
            return f"no flow passes the filter {session.filter_text}\n\n/  changes it"
        if len(snapshot.flows):
            return "no flow carries data\n\na  shows flows of ACKs and CNPs only"
        if source.running:
            return "flows appear when their packets arrive"
        port = "RoCEv2 uses UDP port 4791; --udp-port sets another port"
        window = "}  doubles the time window\n" if session.window is not None else ""
        return f"{window}{port}\n{others}"

    def flow_title(self) -> str:
        """The selected flow, as a heading."""
        key = self.view.session.selected
        if key is None:
            return "no flow selected"
        return flow_name(key) + self.record_span()

    def record_span(self) -> str:
        """The record of the selected flow: values that the snapshot lacks."""
        session = self.view.session
        if session.until_now:
            return UNTIL_NOW
        return SINCE_THE_BEGINNING if session.length_ns is not None else ""


def flow_name(key: FlowKey) -> str:
    """`10.0.0.1 > 10.0.0.2 0x000011`"""
    return f"{key.src} > {key.dst} {human.queue_pair(key.qp)}"


def go_to_hops(screen: RoceScreen, shown: FabricMap) -> None:
    """To the worst hop of the link under the cursor."""
    link = shown.link
    if link is None or not link.taps:
        screen.notify("No tap captured this link")
        return
    screen.view.wanted_taps = link.taps
    screen.host.go("hops")


def timed(columns: Sequence[GridColumn], clock: Clock, digits: int, *keys: str) -> list[GridColumn]:
    """Columns of times with their unit, as wide as the clock needs."""
    return [
        column._replace(
            title=f"{column.title} {clock.title}",
            width=len(clock.text(0, digits)) if clock.of_day else column.width,
        )
        if column.key in keys
        else column
        for column in columns
    ]

"""What all screens share: line 1, the tabs, the sentence, the body, the keys."""

from __future__ import annotations

from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ...report.words import human
from ..actions import ACTIONS, Action, actions_of, bindings, shown_key
from ..host import Host
from ..session.snapshots.snapshot import FlowKey, Snapshot
from ..session.words import sentences
from ..session.words.shown_events import shown_events
from ..view_state import ViewState
from ..widgets.topbar import Tabs, TopBar
from .prompts import TextPrompt

UNTIL_NOW, SINCE_THE_BEGINNING = " (until now)", " (since the beginning)"
"""Behind what is not of the moment or of the window that is looked at, in a live session."""


class Verdict(Static):
    """One sentence that answers."""


ALWAYS_SHOWN = ("help", "quit")
"""Whatever else has no room: who is lost finds the way by them."""


class Hints(Static):
    """The keys of this screen, as many as fit: the usual ones, then the others."""

    _shown: tuple[str, int] | None = None

    def show(self, screen: str) -> None:
        """Draw the footer from the registry."""
        if self._shown == (screen, self.size.width):
            return
        self._shown = screen, self.size.width
        text = Text(" ")
        for action in _hinted(screen, (self.size.width or 80) - 1):
            begin = len(text.plain)
            text.append(shown_key(action), "bold")
            text.append(f" {action.label}")
            text.apply_meta({"@click": action.target}, begin, len(text.plain))
            text.append("  ")
        self.update(text, layout=False)


def _hinted(screen: str, width: int) -> list[Action]:
    """The actions of the footer, those that always stand there last."""
    actions = [action for action in actions_of(screen) if not action.name.startswith("go(")]
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
    _sentence = ""
    _shape = (0, 0)
    """Width and lines of the sentence."""

    def compose(self) -> ComposeResult:
        yield TopBar(id="topbar")
        yield Tabs(id="tabs")
        yield Verdict(id="verdict")
        yield from self.body()
        yield Hints(id="hints")

    def body(self) -> ComposeResult:
        """The widgets between the sentence and the keys."""
        yield Widget()

    def draw(self, snapshot: Snapshot) -> str:
        """Show a snapshot; returns the sentence of the first line."""
        raise NotImplementedError

    @property
    def host(self) -> Host:
        """The app as screens know it."""
        return cast(Host, self.app)

    @property
    def view(self) -> ViewState:
        """What is shown."""
        return self.host.view

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Styles change with the theme alone, and Textual applies that when a screen comes back;
        # to do it for every visit takes half the time a key has.
        event.refresh_styles = False
        if self.query_one(TopBar).size.width:  # before it is painted; else when it has a size
            self.redraw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    @property
    def can_draw(self) -> bool:
        """Whether its widgets are there, and not yet or no longer only the screen."""
        here = self.is_attached and self in self.app.screen_stack
        return here and bool(self.query(Hints))  # the last of them

    def redraw(self) -> None:
        """Show the app's snapshot."""
        if not self.can_draw:
            return
        view = self.view
        snapshot, session = view.snapshot, view.session
        top = self.query_one(TopBar)
        top.show(snapshot, view.paths(), view.frozen, view.window_text(), session.name)
        events = shown_events(snapshot, session.passing(snapshot))
        counts = {"qps": view.visible_count, "events": len(events)}
        self.query_one(Tabs).show(self.name_, counts)
        self.query_one(Hints).show(self.name_)
        sentence = self.draw(snapshot)
        if sentence != self._sentence:
            self._sentence = sentence
            verdict = self.query_one(Verdict)
            text, width = Text(sentence, "bold", overflow="ellipsis"), verdict.size.width
            shape = width, len(text.wrap(self.app.console, max(1, width)))
            # Live sentences change four times a second; only another height costs a layout.
            verdict.update(text, layout=shape != self._shape)
            self._shape = shape

    def action_everything(self) -> None:
        """Show or hide flows without data."""
        self.view.everything = not self.view.everything
        self.redraw()

    def action_path_key(self) -> None:
        """The next way to tell paths apart."""
        if not self.view.next_path_key():
            self.notify("Source ports alone tell paths apart here; a replay (7) predicts links")
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
        """Only the pane with the focus."""
        if self.focused is not None:
            self._set_aside(self, {self.focused, *self.focused.ancestors})

    def _set_aside(self, parent: Widget, kept: set[DOMNode]) -> None:
        for child in parent.children:
            if child in kept:
                if child is not self.focused:
                    self._set_aside(child, kept)
            elif not isinstance(child, (TopBar, Tabs, Verdict, Hints)):
                child.add_class("aside")

    def action_smaller(self) -> None:
        """All panes again."""
        self.query(".aside").remove_class("aside")

    def draw_record(self) -> None:
        """Show what the record of the selected flow changes."""
        self.redraw()

    def start_ns(self, snapshot: Snapshot) -> int:
        """Where times begin: at the start of everything, whatever the time window is."""
        whole = self.view.session.whole()
        return whole[0] if whole is not None else snapshot.start_ns

    def no_flow(self, snapshot: Snapshot) -> str:
        """The sentence of a screen about one flow where none is chosen, or not yet read."""
        if why := sentences.nothing(snapshot):
            return why
        key = self.view.session.selected
        if key is None:
            return "Choose a flow on screen 1."
        if snapshot.find(key) is None:
            return f"{flow_name(key)} has no packet here: choose another flow on screen 1."
        return f"{flow_name(key)}: its record is being read."

    def what_next(self, snapshot: Snapshot) -> str:
        """What to do where there is nothing to see; lines for an empty table."""
        session, source = self.view.session, snapshot.source
        others = "^f opens a capture, ^n watches interfaces of this host"
        if session.filter_text:
            return f"nothing passes the filter {session.filter_text}\n\n/  changes it"
        if len(snapshot.flows):
            return "no flow carries data\n\na  shows those that only acknowledge"
        if source.error:
            return f"X  tries again\n{others}"
        if source.running:
            return "flows appear here as their packets come"
        port = "RoCEv2 is UDP to port 4791; --udp-port names another one"
        window = "}  makes the time window longer\n" if session.window is not None else ""
        return f"{window}{port}\n{others}"

    def flow_title(self) -> str:
        """The selected flow, as a heading of what its record tells."""
        key = self.view.session.selected
        if key is None:
            return "no flow chosen"
        return flow_name(key) + self.record_span()

    def record_span(self) -> str:
        """What the record of the selected flow holds beyond the snapshot."""
        session = self.view.session
        if session.until_now:
            return UNTIL_NOW
        return SINCE_THE_BEGINNING if session.length_ns is not None else ""


def flow_name(key: FlowKey) -> str:
    """`10.0.0.1 > 10.0.0.2 0x000011`"""
    return f"{key.src} > {key.dst} {human.queue_pair(key.qp)}"

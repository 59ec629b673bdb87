"""The application: wires the session to the screens and does what works everywhere."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from textual import events, work
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget

from ...analyzer.errors import RocescopeError
from ...analyzer.results.analysis import Flow
from ...probes.rights.priority import lower_own, raise_own
from ..actions import ACTIONS, bindings
from ..messages import FlowSelected, FocusReady, SnapshotReady
from ..screens import registry
from ..screens.base import RoceScreen
from ..screens.prompts import TextPrompt
from ..session.session import Session
from ..session.snapshot import PathColumns, Snapshot, SourceState
from ..settings import Settings
from ..theme import LIGHT, THEME
from .export import ExportActions
from .palette import ActionCommands
from .source import SourceActions
from .time import TimeActions
from .upkeep import QUIET_S, Upkeep

if TYPE_CHECKING:
    from ..session.packets.flow_pass import Late
    from ..session.replays.placed import Placed
    from ..session.replays.replays import Replays

LONGEST_WAIT_S = 0.6
"""A new snapshot waits until no key has come for a moment, but not for long."""
HURRIED_EVERY_S = 1.0
"""How often there is a new snapshot while packets come faster than they are measured."""
PAINT_S = 0.05
"""A key is painted in this time; a snapshot that comes meanwhile is drawn after it."""
WORKERS = 8
"""Threads that make snapshots, look for packets, and the like."""
FIRST_EVERY_S = 0.04
"""How often it is asked whether the first packets are there."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Somebody ends the program; the terminal is closed."""


class RocescopeApp(SourceActions, TimeActions, ExportActions, Upkeep):
    """All screens over one session."""

    TITLE = "rocescope"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {ActionCommands}
    BINDINGS = [
        *bindings([a for a in ACTIONS if not a.screens]),
        Binding("ctrl+c", "quit", show=False, priority=True, system=True),
    ]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = registry.modes()
    DEFAULT_MODE = "qps"

    def __init__(self, session: Session, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings or Settings()
        self.session = session
        self.snapshot = Snapshot(SourceState(session.name, session.kind))
        self._next: SnapshotReady | None = None
        """Waits for a key to be painted."""
        self._record: Flow | None = None
        self.chosen = False
        """Whether the user put the cursor on a flow."""
        self.frozen = False
        self.path_key = "entropy"
        self.everything = False
        self.wanted_frame: int | None = None
        self.wanted_late: tuple[Late, str] | None = None
        """Which late packets the packets screen shows, and what they are called."""
        self.strategy: str | None = None
        """The replayed strategy whose links are shown."""
        self.picked: set[str] = set()
        """Strategies to compare with."""
        self._replays: Replays | None = None
        self._trail: list[str] = []
        self._building = False
        self._stale = False
        self._built_at = 0.0
        self._ended_by = 0
        """The number of the signal that ends the program."""

    @property
    def record(self) -> Flow | None:
        """Everything about the selected flow; None while it is read."""
        return self._record if self._is_selected(self._record) else None

    def delay_update(self, delay: float = 0.05) -> None:
        """Nothing to hide: a screen is drawn before it is painted the first time.

        Textual waits 50 ms when screens change, which is all the time a key has.
        """

    def on_mount(self) -> None:
        # A thread that wants the interpreter waits this long for one that computes: a key must
        # not wait for the threads that read packets and make snapshots. Python's own is 5 ms.
        sys.setswitchinterval(0.0005)
        self._main_loop = asyncio.get_running_loop()
        # Who looks at the screen waits for this thread; those that it starts only prepare.
        raise_own()
        self._main_loop.set_default_executor(ThreadPoolExecutor(WORKERS, initializer=lower_own))
        self._terminal = [stream for stream in range(3) if os.isatty(stream)]
        with suppress(ValueError):  # only the main thread hears signals
            # Else the terminal stays as the screens need it, and a recording has no end.
            for number in ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                    signal.signal(number, self._end)
        self.register_theme(THEME)
        self.register_theme(LIGHT)
        if self.settings.theme in self.available_themes:
            self.theme = self.settings.theme
        self.set_keymap(dict(self.settings.keys))
        if not self.session.running:  # probes are read from the moment they are attached
            self.session.start()
        self.request_snapshot()
        self.set_interval(1 / self.settings.refresh_hz, self._tick)
        self._first = self.set_interval(FIRST_EVERY_S, self._wait_for_first)
        self.begin_upkeep([name for name in registry.SCREENS if name != self.DEFAULT_MODE])

    def _end(self, number: int, frame: object) -> None:
        """Leave as the key does, with the exit code of a program that a signal ended."""
        if number == signal.SIGHUP:
            # Writing to a closed terminal fails, and Textual takes the SIGCONT that comes with
            # its end for a return to the foreground.
            signal.signal(signal.SIGCONT, signal.SIG_IGN)
            with open(os.devnull, "r+b", buffering=0) as nowhere:
                for stream in self._terminal:
                    os.dup2(nowhere.fileno(), stream)
        self._ended_by = number
        self._main_loop.call_soon_threadsafe(self.exit)

    @property
    def return_code(self) -> int | None:
        """The exit code, also where a closed terminal made something fail before its signal."""
        return 128 + self._ended_by if self._ended_by else super().return_code

    def on_unmount(self) -> None:
        self.end_upkeep()
        lower_own()
        self.stop_exports()
        self.session.close()
        if self._replays is not None:
            self._replays.stop()

    def _tick(self) -> None:
        if not (self.session.running or self.snapshot.source.running):
            return
        now = monotonic()
        waited = now - self._built_at
        typing = now - self.key_at < QUIET_S and waited < LONGEST_WAIT_S
        hurried = self.session.hurried and waited < HURRIED_EVERY_S
        if not typing and not hurried:
            self.request_snapshot()

    def _wait_for_first(self) -> None:
        """The first packets are shown when they are there; a tick would let them wait."""
        if len(self.snapshot.flows) or not self.session.running:
            self._first.stop()
        if not self._building:
            self.request_snapshot()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self.key_at = monotonic()
        await super().on_event(event)

    def request_snapshot(self) -> None:
        """Have a new snapshot made, unless one is under way: then once more after it."""
        if self._building:
            self._stale = True
            return
        self._building, self._stale = True, False
        self._built_at = monotonic()
        self._build()

    @work(thread=True, group="snapshot", exit_on_error=False)
    def _build(self) -> None:
        try:
            snapshot, record = self.session.snapshot(), self.session.focus()
        finally:
            self._building = False
        self.post_message(SnapshotReady(snapshot, record))

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        left = PAINT_S - (monotonic() - self.key_at)
        if left <= 0 and self._next is None:
            self._arrived(message)
            return
        if self._next is None:
            self.set_timer(max(left, 0.001), self._show_next)
        self._next = message

    def _show_next(self) -> None:
        message, self._next = self._next, None
        if message is not None:
            self._arrived(message)

    def _arrived(self, message: SnapshotReady) -> None:
        if not self.frozen:
            self.show(message.snapshot, message.record)
        if self._stale:
            self.request_snapshot()

    def show(self, snapshot: Snapshot, record: Flow | None = None) -> None:
        """Make a snapshot the current one, with the record of the selected flow, and draw it."""
        self.snapshot, self._record = snapshot, record
        self._redraw()
        if not self._is_selected(record):  # another flow was selected since, or by drawing
            self._fetch_record()

    def _redraw(self) -> None:
        for screen in reversed(self.screen_stack):
            if isinstance(screen, RoceScreen):
                screen.redraw()
                return

    def on_flow_selected(self, message: FlowSelected) -> None:
        changed = self.session.selected != message.key
        self.session.selected = message.key
        self.chosen = self.chosen or message.by_user
        if changed or self.record is None:
            self._fetch_record()

    @work(thread=True, exclusive=True, group="record", exit_on_error=False)
    def _fetch_record(self) -> None:
        self.post_message(FocusReady(self.session.focus()))

    def _is_selected(self, record: Flow | None) -> bool:
        key = self.session.selected
        if record is None or key is None:
            return True
        return (record.src, record.dst, record.dest_qp) == (key.src, key.dst, key.qp)

    def on_focus_ready(self, message: FocusReady) -> None:
        if not self._is_selected(message.flow):
            self._fetch_record()
        elif message.flow != self._record:
            self._record = message.flow
            screen = self.screen_stack[-1] if self.screen_stack else None  # none at the end
            if isinstance(screen, RoceScreen) and screen.can_draw:
                screen.draw_record()

    def paths(self) -> PathColumns:
        """The paths by the chosen key."""
        if self.path_key == "fabric" and (placed := self.placed()) is not None:
            return placed.path_columns(self.snapshot)
        return self.snapshot.paths.get(self.path_key) or self.snapshot.paths["entropy"]

    def shown_flows(self) -> NDArray[np.int64]:
        """Flows that pass the filter; those without data only if asked for."""
        mask = self.session.passing(self.snapshot)
        if not self.everything:
            data = self.snapshot.carries_data()
            if data.any():
                mask = mask & data
        return np.flatnonzero(mask)

    @property
    def visible_count(self) -> int:
        """How many flows are shown."""
        return len(self.shown_flows())

    def action_go(self, name: str) -> None:
        """To a screen by its number; the way back is kept."""
        if name in registry.SCREENS and self.current_mode != name:
            self._trail.append(self.current_mode)
            self.switch_mode(name)

    def show_frame(self, frame_number: int | None) -> None:
        """Which frame the packets screen puts its cursor on."""
        self.wanted_frame = frame_number

    def go_deeper(self, name: str) -> None:
        """What enter does."""
        self.action_go(name)

    async def action_back(self) -> None:
        if self._trail:
            self.switch_mode(self._trail.pop())
        elif self.current_mode != "qps":
            self.switch_mode("qps")
        elif self.session.filter_text:
            self._set_filter("")
        elif self.session.looking_at is not None:
            self.session.looking_at = None
            self.request_snapshot()

    def action_jump(self) -> None:
        from ..screens.jump import JumpScreen

        def jump(part: Widget | None) -> None:
            if part is not None:
                part.focus()

        parts = [w for w in self.screen.focus_chain if w.region.area]
        self.push_screen(JumpScreen(parts), jump)

    def change_session(self, session: Session) -> None:
        """Look at something else."""
        self.session.close()
        if self._replays is not None:
            self._replays.stop()
        self._replays, self.strategy, self.picked = None, None, set()
        self.session, self._record, self._trail = session, None, []
        self.frozen = self.chosen = False
        session.start()
        self.show(Snapshot(SourceState(session.name, session.kind)))
        self.request_snapshot()

    def action_help(self) -> None:
        from ..screens.help import HelpScreen

        self.push_screen(HelpScreen(self.current_mode))

    async def action_filter(self) -> None:
        from ..screens.filter_prompt import FilterPrompt

        # Waiting for the prompt keeps keys that are typed at once for it.
        await self.push_screen(FilterPrompt(self.session.filter_text), self._set_filter)

    def _set_filter(self, text: str | None) -> None:
        if text is None:
            return
        try:
            again = self.session.set_filter(text)
        except RocescopeError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        if again:
            self.request_snapshot()
        self._choose_passing()
        self._redraw()

    def _choose_passing(self) -> None:
        """The cursor is on a flow that passes the filter: the busiest, where it must move."""
        shown = self.shown_flows()
        if len(shown) and self.snapshot.find(self.session.selected) not in shown:
            busiest = shown[np.argmax(self.snapshot.flows.wire_bytes[shown])]
            self.session.selected = self.snapshot.key(int(busiest))
            self._fetch_record()

    def action_freeze(self) -> None:
        self.frozen = not self.frozen
        if not self.frozen:
            self.request_snapshot()
        self._redraw()

    @property
    def replays(self) -> Replays:
        """The replays of the session's captures; made when first asked for."""
        if self._replays is None:
            from ..session.replays.replays import Replays

            self._replays = Replays(self.session.paths, self.session.options)
        return self._replays

    def placed(self) -> Placed | None:
        """Where the strategy under the cursor of the replay screen put the flows."""
        if self._replays is None:
            return None
        found = self._replays.placed
        return found.get(self.strategy or "") or next(iter(found.values()), None)

    def next_path_key(self) -> None:
        """The next way to tell paths apart."""
        keys = list(self.snapshot.paths) + (["fabric"] if self.placed() is not None else [])
        now = keys.index(self.path_key) if self.path_key in keys else 0
        self.path_key = keys[(now + 1) % len(keys)]
        if len(keys) == 1:
            self.notify("Source ports alone tell paths apart here; a replay (7) predicts links")
        self._redraw()

    def toggle_everything(self) -> None:
        """Show or hide flows without data."""
        self.everything = not self.everything
        self._redraw()

    def toggle_mark(self) -> None:
        """Mark the selected flow."""
        if self.session.selected is not None:
            self.session.marks.toggle(self.session.selected)
            self._redraw()

    def comment_flow(self) -> None:
        """Ask for a comment on the selected flow."""
        key = self.session.selected
        if key is None:
            return

        def keep(text: str | None) -> None:
            if text is not None:
                self.session.marks.flows[key] = text
                self._redraw()

        before = self.session.marks.flows.get(key, "")
        self.push_screen(TextPrompt("comment on this flow", before), keep)

    def compare(self) -> None:
        """Show the marked flows side by side."""
        from ..screens.compare import CompareScreen

        marked = [f for f in map(self.snapshot.find, self.session.marks.flows) if f is not None]
        if len(marked) < 2:
            self.notify("Mark two flows with m, then compare them with c")
            return
        self.push_screen(CompareScreen(self.snapshot, self.paths(), marked))

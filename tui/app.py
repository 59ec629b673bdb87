"""The application: connects the session to the screens and handles the keys of all screens."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from os.path import expanduser
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from textual import events
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen
from textual.widget import Widget

from ..analyzer.errors import RocescopeError
from ..probes.rights import lower_own, raise_own
from .actions import ACTIONS, FURTHER, SCREENS, Action, actions_of, bindings, shown_key
from .clock import MODES, Clock
from .exports import Exports
from .host import DiagnosisReady, FlowSelected, FocusReady, Host, SnapshotReady
from .screens import base
from .screens.base import RoceScreen
from .screens.prompts import PathPrompt, TextPrompt
from .session import diagnosing
from .session.session import Session
from .settings import LIGHT, THEME, Settings, named_colours
from .snapshots import Snapshots, Upkeep
from .view_state import ViewState

if TYPE_CHECKING:
    from .session.placed import TracedOn


# The command palette: every action of the registry by its help text.

_WORDS, _HERE = 1000.0, 500.0
"""Beyond any score for scattered letters: all words occur; and it works on the screen in front."""


class _Command(NamedTuple):
    action: Action
    screen: str
    """The other screen on which it works; empty if it works on the current one."""

    @property
    def title(self) -> str:
        key = shown_key(self.action)
        if self.screen:
            number = next((k for k, name, _ in (*SCREENS, *FURTHER) if name == self.screen), "")
            key = f"{number} {key}".strip()
        return f"{self.action.help}  ({key})"

    @property
    def text(self) -> str:
        """The text that is searched."""
        return f"{self.action.help} {self.action.label}"


class ActionCommands(Provider):
    """Actions of the current screen; those of other screens if the query matches whole words."""

    def _list_here(self) -> Iterator[_Command]:
        yield from (_Command(action, "") for action in actions_of(self.app.current_mode))

    def _elsewhere(self) -> Iterator[_Command]:
        for action in ACTIONS:
            if action.screens and self.app.current_mode not in action.screens:
                yield _Command(action, action.screens[0])

    async def discover(self) -> Hits:
        for command in self._list_here():
            yield DiscoveryHit(command.title, self._running(command))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in (*self._list_here(), *self._elsewhere()):
            score = matcher.match(command.text)
            if _has_words(command.text, query):
                score += _WORDS + (0 if command.screen else _HERE)
            elif command.screen:
                continue  # nearly every text contains the letters
            if score > 0:
                yield Hit(score, matcher.highlight(command.title), self._running(command))

    def _running(self, command: _Command) -> Callable[[], Awaitable[None]]:
        return partial(self._run, command)

    async def _run(self, command: _Command) -> None:
        app = cast(Host, self.app)
        if command.screen:
            app.go(command.screen)
            app.call_after_refresh(app.run_action, command.action.target)
        else:
            await app.run_action(command.action.target)


def _has_words(text: str, query: str) -> bool:
    """Whether every word of the query is the start of a word of the text."""
    words = text.casefold().replace("(", " ").split()
    return all(any(w.startswith(part) for w in words) for part in query.casefold().split())


# The keys for time: the window of a capture, the past of a live session.


class Times:
    """Moves and scales the window; a live session continues to capture."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view

    def move(self, way: int) -> None:
        """Half a window back (-1) or forward (1)."""
        session = self._view.session
        if session.kind == "live":
            if not session.step(way):
                self._host.notify(
                    "No older data is kept" if way < 0 else "The screen is live already"
                )
            self._host.request_snapshot()
            return
        full, window = session.whole(), session.window
        if full is not None and window is not None:
            self._set_window(diagnosing.moved(window, full, way / 2))
        else:  # the first half to begin with
            self.scale(0.5)

    def scale(self, by: float) -> None:
        """Make the window longer or shorter."""
        session = self._view.session
        if session.kind == "live":
            session.scale(by)
            self._host.request_snapshot()
            return
        full = session.whole()
        if full is not None:
            self._set_window(diagnosing.scaled(session.window, full, by))

    def _set_window(self, window: diagnosing.Span | None) -> None:
        self._view.session.set_window(window)
        self._host.request_snapshot()

    def show_otherwise(self) -> None:
        """Show times as seconds since the start, as UTC, as local times, in turn."""
        view = self._view
        view.time_mode = MODES[(MODES.index(view.time_mode) + 1) % len(MODES)]
        self._host.notify(Clock(0, view.time_mode).words, timeout=2)
        self._host.redraw()

    def ask(self) -> None:
        """Go to a time that the user enters."""

        def go(text: str | None) -> None:
            session = self._view.session
            full = session.whole()
            if not text or full is None:
                return
            try:
                seconds = Clock(full[0], self._view.time_mode).seconds(text)
                if session.kind == "live":
                    session.look_at(full[0] + int(seconds * 1e9))
                    self._host.request_snapshot()
                else:
                    self._set_window(diagnosing.around(session.window, full, seconds))
            except (ValueError, OverflowError):
                self._host.notify(
                    f"{text!r} is neither a number of seconds nor a time such as 14:03:07.4",
                    severity="error",
                    markup=False,
                )

        self._host.push_screen(TextPrompt("go to time: seconds from the start, or HH:MM:SS"), go)


# Sources of packets, opened and stopped by keys: files and interfaces.


class Sources:
    """Opens and stops captures and probes."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view

    def ask_captures(self) -> None:
        """Open captures that the user names."""
        self._host.push_screen(PathPrompt("open captures, separated by spaces"), self._open)

    def _open(self, names: str | None) -> None:
        if names:
            paths = [expanduser(name) for name in _words(names)]
            self._host.change_session(Session.open(paths))

    def ask_interfaces(self) -> None:
        """Capture on interfaces that the user names."""
        self._host.push_screen(
            TextPrompt("capture on interfaces; `eth2 eth3 > FILE` also records to a file"),
            self._watch,
        )

    def _watch(self, text: str | None) -> None:
        if not text:
            return
        names, _, file = text.partition(">")
        interfaces = _words(names)
        try:
            self._host.change_session(live_session(interfaces, file.strip()))
        except RocescopeError as error:
            self._host.notify(str(error), severity="error", markup=False)

    def halt_or_start(self) -> None:
        """Stop or start the probes, or reading the capture."""
        if self._view.session.running:
            self._host.run_worker(self._halt, thread=True, group="halt", exit_on_error=False)
        else:
            self._view.session.start()
            self._host.request_snapshot()

    def _halt(self) -> None:
        """In a thread: the packets in the rings are still read."""
        self._view.session.halt()
        self._host.call_from_thread(self._host.request_snapshot)


def live_session(interfaces: list[str], file: str = "") -> Session:
    """A session on interfaces. CaptureError, UsageError: missing interface or privilege."""
    from ..probes import live
    from ..probes.hooks.interfaces import find_interfaces
    from .session.live import open_live, open_recorded

    live.check([name.rpartition(":")[0] for name in interfaces])
    find_interfaces(interfaces, None)
    if file:
        return open_recorded(interfaces, None, Path(expanduser(file)))
    return open_live(interfaces)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


WORKERS = 8
"""Threads that make snapshots, search packets and so on."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the program: a request, a closed terminal."""


class RocescopeApp(Host):
    """All screens, which share one view."""

    TITLE = "rocescope"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {ActionCommands}
    BINDINGS = [
        *bindings([a for a in ACTIONS if not a.screens]),
        Binding("ctrl+c", "quit", show=False, priority=True, system=True),
    ]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = base.modes()
    DEFAULT_MODE = "diagnosis"

    def __init__(
        self,
        session: Session,
        settings: Settings | None = None,
        traced_on: TracedOn | None = None,
    ) -> None:
        """traced_on: the fabric on which flows are traced, and followed."""
        super().__init__()
        self.settings = settings or Settings()
        self.view = ViewState(session, self.settings.columns.get("qps", ()))
        self.view.trace_on(traced_on)
        self.snapshots = Snapshots(self)
        self.sources = Sources(self)
        self.times = Times(self)
        self.exports = Exports(self)
        self.upkeep = Upkeep(self, self._make_screen)
        self._trail: list[str] = []
        self._ended_by = 0
        """The number of the signal that ends the program."""

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
        self.ansi_theme_dark, self.ansi_theme_light = map(named_colours, (THEME, LIGHT))
        if self.settings.theme in self.available_themes:
            self.theme = self.settings.theme
        self.set_keymap(dict(self.settings.keys))
        if not self.view.session.running:  # probes are read from the moment they are attached
            self.view.session.start()
        self.snapshots.begin(self.settings.refresh_hz)
        self.upkeep.begin(base.prepared(self.DEFAULT_MODE, bool(self.view.session.paths)))

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
        self.upkeep.end()
        lower_own()
        self.exports.stop()
        self.view.end()

    def _make_screen(self, name: str) -> None:
        """Make a screen before its first visit."""
        ending = bool(self._batch_count)
        if not ending and name not in self._screen_stacks:
            self._init_mode(name)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self.key_at = monotonic()
        await super().on_event(event)

    def request_snapshot(self) -> None:
        self.snapshots.request()

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        self.snapshots.arrived(message)

    def on_diagnosis_ready(self, message: DiagnosisReady) -> None:
        self.snapshots.judged()

    def redraw(self) -> None:
        for screen in reversed(self.screen_stack):
            if isinstance(screen, RoceScreen):
                screen.redraw()
                return

    def on_flow_selected(self, message: FlowSelected) -> None:
        changed = self.view.select(message.key, message.by_user)
        if changed or self.view.record is None:
            self.snapshots.fetch_record()

    def on_focus_ready(self, message: FocusReady) -> None:
        if message.session is not self.view.session:
            return  # the first snapshot of the new session comes with a record
        if message.key != self.view.session.selected:
            self.snapshots.fetch_record()
        elif self.view.put_record(message.record):
            screen = self.screen_stack[-1] if self.screen_stack else None  # none at the end
            if isinstance(screen, RoceScreen) and screen.can_draw:
                screen.draw_record()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """The screen as SVG; blanks at the start of a text stay in every viewer."""
        picture = super().export_screenshot(title=title, simplify=simplify)
        return picture.replace("<svg ", '<svg xml:space="preserve" ', 1)

    def go(self, name: str) -> None:
        if name in base.SCREENS and self.current_mode != name:
            self._trail.append(self.current_mode)
            self.switch_mode(name)

    def action_go(self, name: str) -> None:
        if isinstance(self.screen, RoceScreen):
            self.screen.before_leaving(name)
        self.go(name)

    async def action_back(self) -> None:
        if self._trail:
            self.switch_mode(self._trail.pop())
        elif self.view.session.filter_text:
            self._set_filter("")
        elif self.view.session.looking_at is not None:
            self.view.session.looking_at = None
            self.request_snapshot()
        else:
            self.go(self.DEFAULT_MODE)
            self._trail = []

    def action_jump(self) -> None:
        from .screens.prompts import JumpScreen

        def jump(part: Widget | None) -> None:
            if part is not None:
                part.focus()

        parts = [w for w in self.screen.focus_chain if w.region.area]
        self.push_screen(JumpScreen(parts), jump)

    def change_session(self, session: Session) -> None:
        self.view.begin(session)
        self._trail = []
        session.start()
        self.snapshots.show(self.view.snapshot, FocusReady(session, None, None))
        self.request_snapshot()

    def action_help(self) -> None:
        from .screens.prompts import HelpScreen

        self.push_screen(HelpScreen(self.current_mode))

    async def action_filter(self) -> None:
        from .screens.prompts import FilterPrompt

        # Waiting for the prompt keeps keys that are typed at once for it.
        await self.push_screen(FilterPrompt(self.view.session.filter_text), self._set_filter)

    def _set_filter(self, text: str | None) -> None:
        if text is None:
            return
        try:
            reread = self.view.session.set_filter(text)
        except RocescopeError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        if reread:
            self.request_snapshot()
        if self.view.select_passing():
            self.snapshots.fetch_record()
        self.redraw()

    def action_freeze(self) -> None:
        self.view.frozen = not self.view.frozen
        if not self.view.frozen:
            self.request_snapshot()
        self.redraw()

    def action_earlier(self) -> None:
        self.times.move(-1)

    def action_later(self) -> None:
        self.times.move(1)

    def action_shorter(self) -> None:
        self.times.scale(0.5)

    def action_longer(self) -> None:
        self.times.scale(2.0)

    def action_go_to_time(self) -> None:
        self.times.ask()

    def action_times(self) -> None:
        self.times.show_otherwise()

    def action_export(self) -> None:
        self.exports.ask()

    def action_copy_filter(self) -> None:
        self.exports.copy_filter()

    def action_copy_command(self) -> None:
        self.exports.copy_command()

    def action_open_file(self) -> None:
        self.sources.ask_captures()

    def action_watch(self) -> None:
        self.sources.ask_interfaces()

    def action_halt(self) -> None:
        self.sources.halt_or_start()

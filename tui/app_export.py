"""The ways out: files of what is on the screen, and what goes to the clipboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work

from ..analyzer.errors import RocescopeError
from . import human
from .screens.prompts import TextPrompt
from .session_app import SessionApp

if TYPE_CHECKING:
    from .packets import Packets
    from .snapshot import FlowKey

NO_FILE = "Packets are in files: record (^n) to save some"


class ExportActions(SessionApp):
    """Saves and copies."""

    def action_export(self) -> None:
        from .export import FORMATS

        names = ", ".join(FORMATS)
        stem = self.session.name.split(".")[0] or "rocescope"
        self.push_screen(TextPrompt(f"save as {names}", f"{stem}-view.pcapng"), self._export)

    def _export(self, name: str | None) -> None:
        from .export import FORMATS, analysis_file, html_page, packets_pcapng

        if not name:
            return
        path = Path(name).expanduser()
        if path.suffix == ".svg":
            self._save(path, lambda: self.export_screenshot().encode())
        elif path.suffix == ".html":
            picture = self.export_screenshot()
            self._write(path, lambda: html_page(self.session, picture))
        elif path.suffix == ".pcapng":
            key = self.session.selected
            shown = self._packets_shown()
            if shown is None and (key is None or not self.session.paths):
                why = "Choose a flow first (1)" if self.session.paths else NO_FILE
                self.notify(why, severity="warning")
                return
            self._write(path, lambda: packets_pcapng(shown or self._packets_of(key), self.session))
        elif path.suffix in FORMATS:
            self._write(path, lambda: analysis_file(self.session, path.suffix))
        else:
            self.notify(f"the suffix is one of {', '.join(FORMATS)}", severity="error")

    def _packets_of(self, key: FlowKey | None) -> Packets:
        """The packets of a flow, read from the captures."""
        from .packets import PacketScan

        assert key is not None
        return PacketScan(self.session.paths, key, window=self.packet_window()).run()

    def _packets_shown(self) -> Packets | None:
        from .screens.packets import PacketsScreen

        for screen in self.screen_stack:
            if isinstance(screen, PacketsScreen):
                return screen.packets
        return None

    @work(thread=True, group="export", exit_on_error=False)
    def _write(self, path: Path, make: Callable[[], bytes]) -> None:
        """Make and save in a thread: a large analysis takes a while."""
        self._save(path, make)

    def _save(self, path: Path, make: Callable[[], bytes]) -> None:
        from .export import save

        try:
            data = make()
            save(path, data)
        except (OSError, RocescopeError) as error:
            self.notify(f"{path}: {error}", severity="error", markup=False)
            return
        self.notify(f"{path}, {human.size(len(data))}", title="saved", markup=False)

    def action_copy_filter(self) -> None:
        if self.session.selected is not None:
            self.copy(self.session.wireshark_filter(self.session.selected))

    def action_copy_command(self) -> None:
        self.copy(self.session.command_line(self.session.selected))

    def copy(self, text: str) -> None:
        """Put text on the clipboard and say so."""
        self.copy_to_clipboard(text)
        self.notify(text, title="copied", markup=False)

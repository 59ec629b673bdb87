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
            packets = self._packets_shown()
            if packets is None:
                self.notify("Look at the packets first (5), then export them", severity="warning")
                return
            self._write(path, lambda: packets_pcapng(packets, self.session))
        elif path.suffix in FORMATS:
            self._write(path, lambda: analysis_file(self.session, path.suffix))
        else:
            self.notify(f"the suffix is one of {', '.join(FORMATS)}", severity="error")

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

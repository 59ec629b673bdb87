"""The ways out: files of what is on the screen, and what goes to the clipboard."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work

from ...analyzer.errors import RocescopeError
from ...report.words import human
from ..screens.prompts import TextPrompt
from ..session.export import save
from .session_app import SessionApp

if TYPE_CHECKING:
    from ..session.packets.export import PacketExport

NO_FILE = "Packets are in files: record (^n) to save some"
PICTURES = (".svg", ".html")
TELL_AFTER_S = 1.5
"""An export that takes longer tells how far it is."""


class ExportActions(SessionApp):
    """Saves and copies."""

    def __init__(self) -> None:
        super().__init__()
        self._exports: list[PacketExport] = []
        """Under way."""

    def action_export(self) -> None:
        from ..session.export import FORMATS

        names = ", ".join(FORMATS)
        stem = self.session.name.split(".")[0] or "rocescope"
        self.push_screen(TextPrompt(f"save as {names}", f"{stem}-view.pcapng"), self._export)

    def _export(self, name: str | None, replaces: str = "") -> None:
        """replaces: the name of a file that is there already and may go."""
        if not name:
            return
        path = Path(name).expanduser()
        there = path.is_file()
        if there and any(os.path.exists(p) and path.samefile(p) for p in self.session.paths):
            self.notify(
                f"{path} is what you look at: name another file", severity="error", markup=False
            )
        elif there and name != replaces:
            asked = TextPrompt(f"{path.name} is there already, to be replaced", name)
            self.push_screen(asked, lambda again: self._export(again, name))
        elif path.suffix in PICTURES:
            self.clear_notifications()  # they lie over the screen
            self.call_after_refresh(self._export_picture, path)
        else:
            self._export_data(path)

    def _export_picture(self, path: Path) -> None:
        from ..session.export import html_page

        picture = self.export_screenshot()
        if path.suffix == ".svg":
            self._save(path, picture.encode)
        else:
            self._write(path, lambda: html_page(self.session, picture))

    def _export_data(self, path: Path) -> None:
        from ..session.export import FORMATS, analysis_file

        if path.suffix == ".pcapng":
            self._export_packets(path)
        elif path.suffix in FORMATS:
            self._write(path, lambda: analysis_file(self.session, path.suffix))
        else:
            self.notify(f"the suffix is one of {', '.join(FORMATS)}", severity="error")

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """The screen as SVG; blanks at the begin of a text stay in every viewer."""
        picture = super().export_screenshot(title=title, simplify=simplify)
        return picture.replace("<svg ", '<svg xml:space="preserve" ', 1)

    def _export_packets(self, path: Path) -> None:
        """What the packets screen shows, else the marked flows, else the chosen one."""
        from ..screens.packets import PacketsScreen
        from ..session.packets.export import PacketExport
        from ..session.packets.flow_pass import Wanted

        session = self.session
        if not session.paths:
            self.notify(NO_FILE, severity="warning")
            return
        screen = next((s for s in self.screen_stack if isinstance(s, PacketsScreen)), None)
        wanted = Wanted(window=self.packet_window()) if screen is None else screen.wanted()
        chosen = [session.selected] if session.selected is not None else []
        keys = chosen if screen is not None else list(session.marks.flows) or chosen
        if not keys:
            self.notify("Choose a flow first (1)", severity="warning")
            return
        self._write_packets(path, PacketExport(session, keys, wanted))

    @work(thread=True, group="export", exit_on_error=False)
    def _write_packets(self, path: Path, export: PacketExport) -> None:
        """Write in a thread; what takes long says so."""

        def tell() -> None:
            self.notify(f"{path}: {export.progress:.0%} of the captures read", markup=False)

        late = threading.Timer(TELL_AFTER_S, tell)
        late.start()
        self._exports.append(export)
        try:
            save(path, export.write)
        except RocescopeError as error:
            self.notify(f"{path}: {error}", severity="error", markup=False)
        else:
            size, what = human.size(path.stat().st_size), human.counted(export.packets, "packet")
            self.notify(f"{path}, {what}, {size}", title="saved", markup=False)
        finally:
            late.cancel()
            self._exports.remove(export)

    def stop_exports(self) -> None:
        """Leave without the files that are not whole yet."""
        for export in list(self._exports):
            export.stop()

    @work(thread=True, group="export", exit_on_error=False)
    def _write(self, path: Path, make: Callable[[], bytes]) -> None:
        """Make and save in a thread: a large analysis takes a while."""
        self._save(path, make)

    def _save(self, path: Path, make: Callable[[], bytes]) -> None:
        try:
            data = make()
            save(path, lambda file: file.write(data))
        except RocescopeError as error:
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

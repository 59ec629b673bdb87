"""Export: files of what the screen shows, the analysis, and text on the clipboard."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..analyzer.errors import RocescopeError
from ..report import human
from ..report.whole_file import whole_file
from .host import Host
from .screens.prompts import TextPrompt
from .session.session import Session

if TYPE_CHECKING:
    from .session.packets import PacketExport


# Export files: tables, the report, the whole analysis.


def save(path: Path, write: Callable[[BinaryIO], object]) -> Path:
    """Write a whole file or none. RocescopeError names the reason."""
    if not path.parent.is_dir():
        raise RocescopeError(f"there is no folder {path.parent}")
    with whole_file(path) as file:
        write(file)
    return path


def analysis_file(session: Session, suffix: str) -> bytes:
    """The whole analysis as `.json`, `.parquet`, `.csv` or `.arrow`; its report as `.html`."""
    analysis = session.analysis()
    if suffix == ".html":
        from ..report.html.documents import analysis_html

        return analysis_html(analysis)
    from ..report.files import encode

    return encode(analysis, suffix.removeprefix("."))


FORMATS: dict[str, str] = {
    ".pcapng": "packets with comments: those shown, or of the marked or selected flows",
    ".json": "the whole analysis, for programs",
    ".parquet": "one row per flow",
    ".csv": "one row per flow",
    ".html": "the report with charts, for a browser",
}


NO_FILE = "This session is not recorded: ^n records packets to a file"
TELL_AFTER_S = 1.5
"""An export that takes longer reports its progress."""


class Exports:
    """Saves and copies."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view
        self.under_way: list[PacketExport] = []
        """Exports of packets in progress."""

    def ask(self) -> None:
        """Save to a file that the user names."""
        names = ", ".join(FORMATS)
        # No colon of a namespace or comma of several interfaces: some file systems refuse them.
        stem = re.sub(r"[^\w-]+", "-", self._view.session.name.split(".")[0]).strip("-")
        stem = stem or "rocescope"
        self._host.push_screen(TextPrompt(f"save as {names}", f"{stem}-view.pcapng"), self._export)

    def _export(self, name: str | None, replaces: str = "") -> None:
        """replaces: the name of an existing file that may be overwritten."""
        if not name:
            return
        path = Path(os.path.expanduser(name))
        there = path.is_file()
        if there and any(os.path.exists(p) and path.samefile(p) for p in self._view.session.paths):
            self._host.notify(
                f"{path} is the open capture: choose another name", severity="error", markup=False
            )
        elif there and name != replaces:
            asked = TextPrompt(f"{path.name} exists: enter replaces it", name)
            self._host.push_screen(asked, lambda answer: self._export(answer, name))
        else:
            self._export_data(path)

    def _export_data(self, path: Path) -> None:
        if path.suffix == ".pcapng":
            self._export_packets(path)
        elif path.suffix in FORMATS:
            make = partial(analysis_file, self._view.session, path.suffix)
            self._in_thread(lambda: self._save(path, make))
        else:
            self._host.notify(f"the suffix must be one of {', '.join(FORMATS)}", severity="error")

    def _export_packets(self, path: Path) -> None:
        """Packets of the packets screen, else of the marked flows, else of the selected flow."""
        from .screens.packets import PacketsScreen
        from .session.packets import PacketExport, Wanted

        session = self._view.session
        if not session.paths:
            self._host.notify(NO_FILE, severity="warning")
            return
        screen = next((s for s in self._host.screen_stack if isinstance(s, PacketsScreen)), None)
        wanted = Wanted(window=self._view.packet_window()) if screen is None else screen.wanted()
        chosen = [session.selected] if session.selected is not None else []
        keys = chosen if screen is not None else list(session.marks.flows) or chosen
        if not keys:
            self._host.notify("Choose a flow first (2)", severity="warning")
            return
        export = PacketExport(session, keys, wanted)
        self._in_thread(lambda: self._write_packets(path, export))

    def _write_packets(self, path: Path, export: PacketExport) -> None:
        """Write in a thread; a long export reports its progress."""

        def tell() -> None:
            self._host.notify(f"{path}: {export.progress:.0%} of the captures read", markup=False)

        late = threading.Timer(TELL_AFTER_S, tell)
        late.start()
        self.under_way.append(export)
        try:
            save(path, export.write)
        except RocescopeError as error:
            self._host.notify(f"{path}: {error}", severity="error", markup=False)
        else:
            size, what = human.size(path.stat().st_size), human.counted(export.packets, "packet")
            self._host.notify(f"{path}, {what}, {size}", title="saved", markup=False)
        finally:
            late.cancel()
            self.under_way.remove(export)

    def stop(self) -> None:
        """Remove the incomplete files."""
        for export in list(self.under_way):
            export.stop()

    def _in_thread(self, work: Callable[[], None]) -> None:
        """In a thread: a large analysis takes seconds."""
        self._host.run_worker(work, thread=True, group="export", exit_on_error=False)

    def _save(self, path: Path, make: Callable[[], bytes]) -> None:
        try:
            data = make()
            save(path, lambda file: file.write(data))
        except RocescopeError as error:
            self._host.notify(f"{path}: {error}", severity="error", markup=False)
            return
        self._host.notify(f"{path}, {human.size(len(data))}", title="saved", markup=False)

    def copy_filter(self) -> None:
        """Copy the Wireshark filter of the selected flow."""
        if self._view.session.selected is not None:
            self._host.copy(self._view.session.wireshark_filter(self._view.session.selected))

    def copy_command(self) -> None:
        """Copy the command line that reports what the screens show."""
        self._host.copy(self._view.session.command_line(self._view.session.selected))

"""`rocescope tui`: captures in the terminal UI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..analyzer.errors import UnreadableInput, UsageError
from .options.inputs import STANDARD_INPUT, check_terminal
from .options.parameter import Parameter
from .options.reading import READING, Reading


def tui(
    *files: Annotated[Path, Parameter(name="FILE")],
    reading: Annotated[Reading, Parameter(name="*")] = READING,
) -> int:
    """Show captures in the terminal UI.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4.
    """
    paths, tap_names = reading.captures(files)
    if STANDARD_INPUT in files:
        raise UsageError("the terminal UI reads keys from standard input: give a capture file")
    options = reading.options(paths, tap_names)
    check_terminal()
    from ..tui.app.app import RocescopeApp
    from ..tui.session.session import Session
    from ..tui.settings import load

    app = RocescopeApp(Session.open(paths, options), load())
    app.run()
    shown = app.view.snapshot
    if shown.source.error and not len(shown.flows):
        raise UnreadableInput(shown.source.error)
    return app.return_code or 0

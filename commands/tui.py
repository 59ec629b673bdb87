"""`rocescope tui`: captures in the terminal UI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ..analyzer.errors import UnreadableInput, UsageError
from .options.inputs import STANDARD_INPUT, check_terminal
from .options.parameter import Parameter
from .options.reading import READING, Reading


def tui(
    *files: Annotated[Path, Parameter(name="FILE")],
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    fabric: str | None = None,
) -> int:
    """Show captures in the terminal UI.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4.
    fabric
        A fabric, or a file, see rocescope fabric: its links tell the tap that should have seen a
        lost packet next, where no other packet tells it.
    """
    paths, tap_names = reading.captures(files)
    if STANDARD_INPUT in files:
        raise UsageError("the terminal UI reads keys from standard input: give a capture file")
    options = reading.options(paths, tap_names)
    if fabric is not None:
        from .options.fabric_links import fabric_links

        options = replace(options, fabric=fabric_links(fabric))
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

"""`rocescope tui`: captures in the terminal UI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..analyzer.errors import UnreadableInput, UsageError
from .inputs import STANDARD_INPUT, check_inputs
from .parameter import Parameter


def tui(
    *files: Annotated[Path, Parameter(required=True, name="FILE")],
    filter: str | None = None,
    concat: Annotated[bool, Parameter(show_default=False)] = False,
    follow: Annotated[bool, Parameter(show_default=False)] = False,
    udp_port: Annotated[list[int] | None, Parameter(negative="")] = None,
) -> int:
    """Look at captures in the terminal UI.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4.
    filter
        Read only packets that pass a filter in Wireshark's notation, see docs/filter.md.
    concat
        The files are one rotated capture; else each is a vantage point (tap).
    follow
        Go on as the file grows.
    udp_port
        Count this UDP destination port as RoCE besides 4791; may be repeated.
    """
    check_inputs(files)
    if STANDARD_INPUT in files:
        raise UsageError("the terminal UI reads files: standard input is the keyboard")
    if filter is not None:
        from ..analyzer.filtering import compile_filter

        compile_filter(filter)
    from ..analyzer.analyze import AnalyzeOptions
    from ..tui.app import RocescopeApp
    from ..tui.session import Session
    from ..tui.settings import load

    options = AnalyzeOptions(
        filter=filter, concat=concat, follow=follow, udp_ports=(4791, *(udp_port or ()))
    )
    app = RocescopeApp(Session.open([str(path) for path in files], options), load())
    app.run()
    if app.snapshot.source.error and not len(app.snapshot.flows):
        raise UnreadableInput(app.snapshot.source.error)
    return app.return_code or 0

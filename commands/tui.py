"""`rocescope tui`: captures in the terminal UI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ..analyzer.errors import UnreadableInput, UsageError
from .options.inputs import STANDARD_INPUT, check_inputs, check_terminal
from .options.parameter import Parameter
from .options.reading import reading_options


def tui(
    *files: Annotated[Path, Parameter(required=True, name="FILE")],
    filter: str | None = None,
    concat: Annotated[bool, Parameter(show_default=False)] = False,
    follow: Annotated[bool, Parameter(show_default=False)] = False,
    udp_port: Annotated[list[int] | None, Parameter(negative="")] = None,
    plane_by: str = "auto",
    usid: str = "32:16",
    flow_label: Literal["auto", "inner", "outer"] = "auto",
    trimmed_dscp: Annotated[list[int] | None, Parameter(negative="")] = None,
    clock: Literal["capture", "hardware"] = "capture",
    mirror_format: Literal["lumina"] | None = None,
    drop_duplicates: str | None = None,
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
    plane_by
        What tells planes of MRC apart: auto, tap, segment:N (SRv6) or ev:SHIFT:BITS.
    usid
        Bits of the block and of each uSID in SRv6 addresses.
    flow_label
        Of MRC in SRv6: auto asks SACKs whether the outer header's counts where the inner one is 0.
    trimmed_dscp
        DSCP that marks trimmed packets of MRC; may be repeated.
    clock
        Where times come from; hardware: the timestamps of mirrors (ERSPAN III, Arista).
    mirror_format
        Mirrors that write into the packets' own headers: lumina.
    drop_duplicates
        Drop packets that repeat one of at most this time before, such as 20us.
    """
    check_inputs(files)
    if STANDARD_INPUT in files:
        raise UsageError("the terminal UI reads files: standard input is the keyboard")
    options = reading_options(
        len(files),
        filter=filter,
        concat=concat,
        follow=follow,
        udp_port=udp_port,
        plane_by=plane_by,
        usid=usid,
        flow_label=flow_label,
        trimmed_dscp=trimmed_dscp,
        clock=clock,
        mirror_format=mirror_format,
        drop_duplicates=drop_duplicates,
    )
    check_terminal()
    from ..tui.app.app import RocescopeApp
    from ..tui.session.session import Session
    from ..tui.settings import load

    app = RocescopeApp(Session.open([str(path) for path in files], options), load())
    app.run()
    if app.snapshot.source.error and not len(app.snapshot.flows):
        raise UnreadableInput(app.snapshot.source.error)
    return app.return_code or 0

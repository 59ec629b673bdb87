"""`rocescope tui` and `rocescope live`: the terminal UI on captures, results or interfaces."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..analyzer.capture.stored import is_stored
from ..analyzer.errors import UnreadableInput, UsageError, require
from ..analyzer.words import parse_duration
from .options.capturing import CAPTURING, IDLE_AFTER, Capturing, said_if_slow
from .options.reading import (
    JOB_LOGS,
    JOB_RECORDS,
    READING,
    SELECTION,
    JobLogs,
    JobRecords,
    Reading,
    Selection,
)
from .options.taps import STANDARD_INPUT, check_terminal
from .table import Parameter, changed

if TYPE_CHECKING:
    from ..tui.session.placed import TracedOn
    from ..tui.session.session import Session


def tui(
    *files: Annotated[Path, Parameter(name="FILE")],
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    fabric: str | None = None,
    devices: str | None = None,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    records: Annotated[JobRecords, Parameter(name="*")] = JOB_RECORDS,
) -> int:
    """Show captures in the terminal UI.

    Parameters
    ----------
    files
        Captures: pcap or pcapng, also in gzip, zstd, xz or lz4; or one folder of results, as
        analyze -o FOLDER writes it.
    fabric
        A fabric spec or file, see rocescope fabric: its links show which tap should have seen a
        lost packet next, if no other packet shows it. With hash settings and seeds, the screens
        Fabric and Paths show the traced path of every flow.
    devices
        Follow the switches of --fabric, as trace --follow: an inventory, or netns:PREFIX. The
        screen Fabric then shows FIM over time.
    """
    for folder in files:
        if (folder / "summary.json").is_file():
            given = [*changed(reading, READING), *changed(logs, JOB_LOGS)]
            given += changed(records, JOB_RECORDS)
            given += ["--fabric"] * (fabric is not None) + ["--devices"] * (devices is not None)
            return _results(folder, len(files), given)
    paths, tap_names = reading.captures(files)
    if any(map(is_stored, paths)):
        raise UsageError(
            "the terminal UI shows single packets of files: copy the captures to files"
        )
    if STANDARD_INPUT in files:
        raise UsageError("the terminal UI reads keys from standard input: give a capture file")
    options = reading.options(paths, tap_names)
    if devices is not None and fabric is None:
        raise UsageError("--devices needs --fabric")
    traced_on = None if fabric is None else _traced_on(fabric, devices)
    if fabric is not None:
        from .options.reading import fabric_links

        options = replace(options, fabric=fabric_links(fabric))
    options = replace(records.added(options), job_logs=logs.patterns())
    check_terminal()
    from ..tui.session.session import Session

    return _shown(Session.open(paths, options), traced_on)


def _results(folder: Path, files: int, options: list[str]) -> int:
    """Show a folder of results."""
    if files > 1:
        raise UsageError(f"{folder} holds the results of an analysis: give it alone")
    if options:
        raise UsageError(f"{options[0]} needs captures: {folder} holds results without packets")
    require("pyarrow")
    check_terminal()
    from ..tui.session.results import ResultsSession

    return _shown(ResultsSession(folder), None)


def _shown(session: Session, traced_on: TracedOn | None) -> int:
    from ..tui.app import RocescopeApp
    from ..tui.settings import load

    app = RocescopeApp(session, load(), traced_on)
    app.run()
    shown = app.view.snapshot
    if shown.source.error and not len(shown.flows):
        raise UnreadableInput(shown.source.error)
    return app.return_code or 0


def _traced_on(fabric: str, devices: str | None) -> TracedOn | None:
    """The fabric to trace on; None if its hashes are not known and nothing is to be followed."""
    from ..discovery.collect import dialects_of, parse_devices
    from ..replay.fabrics.parse import parse_fabric
    from ..tui.session.placed import TracedOn, traceable

    if devices is not None:
        return TracedOn(fabric, parse_devices(devices), dialects_of(devices))
    return TracedOn(fabric, None, {}) if traceable(parse_fabric(fabric)) else None


# `rocescope live`: interfaces of this host live in the terminal UI.


def live(
    *interfaces: Annotated[str, Parameter(required=True, name="IFACE")],
    selection: Annotated[Selection, Parameter(name="*")] = SELECTION,
    capturing: Annotated[Capturing, Parameter(name="*")] = CAPTURING,
    sample: int = 1,
    record: Path | None = None,
    idle_after: str = IDLE_AFTER,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
) -> int:
    """Show interfaces live in the terminal UI, captured with eBPF.

    Parameters
    ----------
    interfaces
        Interfaces, or NETNS:IFACE in another network namespace.
    sample
        Keep one packet in N of each flow.
    record
        Also write the captured packets to this pcapng: packets, time windows and replays are then
        available during the capture.
    idle_after
        End flows without a packet for this time. The worst 1000 ended flows stay listed; the others
        are removed from memory.
    """
    from ..probes import live as privileges
    from ..probes.file_maker import maker_for
    from ..probes.file_maker_process import Use
    from ..probes.hooks.interfaces import find_interfaces
    from ..report.whole_file import made_by
    from ..tui.app import RocescopeApp
    from ..tui.exports import FORMATS
    from ..tui.session.live import open_live, open_recorded
    from ..tui.settings import load

    options = capturing.options(selection, sample)
    idle_ns = parse_duration(idle_after, "--idle-after")
    more: Any = {"idle_ns": idle_ns, "job_logs": logs.patterns(must_exist=False)}
    settings = load()
    # Errors of rights and names are printed before the UI takes the screen.
    privileges.check([capturing.netns, *(name.rpartition(":")[0] for name in interfaces)])
    find_interfaces(list(interfaces), capturing.netns)
    check_terminal()
    exports = rf".+({'|'.join(map(re.escape, FORMATS))})"
    with maker_for(Path.cwd(), exports, Use.NEW) or nullcontext() as maker, made_by(maker):
        with said_if_slow("still compiling kernels (first run only)"):
            session = (
                open_live(interfaces, options, attach_now=True, **more)
                if record is None
                else open_recorded(interfaces, options, record, attach_now=True, **more)
            )
        app = RocescopeApp(session, settings)
        app.run()
    return app.return_code or 0

"""`rocescope tui`: captures in the terminal UI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..analyzer.capture.stored import is_stored
from ..analyzer.errors import UnreadableInput, UsageError
from ..analyzer.packages import require
from .options.inputs import STANDARD_INPUT, check_terminal
from .options.logs import JOB_LOGS, JobLogs
from .options.parameter import Parameter, changed
from .options.reading import READING, Reading

if TYPE_CHECKING:
    from ..tui.session.replays.traced import TracedOn
    from ..tui.session.session import Session


def tui(
    *files: Annotated[Path, Parameter(name="FILE")],
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    fabric: str | None = None,
    devices: str | None = None,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
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
        from .options.fabric_links import fabric_links

        options = replace(options, fabric=fabric_links(fabric))
    options = replace(options, job_logs=logs.patterns())
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
    from ..tui.app.app import RocescopeApp
    from ..tui.settings import load

    app = RocescopeApp(session, load(), traced_on)
    app.run()
    shown = app.view.snapshot
    if shown.source.error and not len(shown.flows):
        raise UnreadableInput(shown.source.error)
    return app.return_code or 0


def _traced_on(fabric: str, devices: str | None) -> TracedOn | None:
    """The fabric to trace on; None if its hashes are not known and nothing is to be followed."""
    from ..discovery.remote.devices import dialects_of, parse_devices
    from ..replay.fabrics.parse import parse_fabric
    from ..tui.session.replays.traced import TracedOn, traceable

    if devices is not None:
        return TracedOn(fabric, parse_devices(devices), dialects_of(devices))
    return TracedOn(fabric, None, {}) if traceable(parse_fabric(fabric)) else None

"""`rocescope live`: interfaces of this host live in the terminal UI."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from ...analyzer.units import parse_duration
from ..options.capturing import CAPTURING, IDLE_AFTER, Capturing
from ..options.inputs import check_terminal
from ..options.logs import JOB_LOGS, JobLogs
from ..options.parameter import Parameter
from ..options.reading import SELECTION, Selection
from .capturing import said_if_slow


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
    from ...probes.hooks.interfaces import find_interfaces
    from ...probes.rights import privileges
    from ...probes.rights.file_maker import maker_for
    from ...probes.rights.file_maker_process import Use
    from ...report.whole_file import made_by
    from ...tui.app.app import RocescopeApp
    from ...tui.session.export import FORMATS
    from ...tui.session.live import open_live, open_recorded
    from ...tui.settings import load

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

"""`rocescope cluster`: the tasks of an analysis one by one, for SLURM and other queues."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ..analyzer.errors import UsageError, require
from ..analyzer.words import parse_duration, parse_rate
from .analyze import Severity, failed, write_analysis
from .options.output import REPORT_OUTPUT, ReportOutput, exit_code
from .options.progress import ProgressAs, shown, steps_shown
from .options.reading import READING_IN_TASKS, PathKey, ReadingInTasks

EXAMPLES = """\
Examples:
  rocescope cluster plan leaf*.pcap --work job --partitions 64
  rocescope cluster map 0 --work job
  rocescope cluster reduce 0 --work job
  rocescope cluster merge --work job -o results
  rocescope cluster sbatch --work job > job.sh
"""
PLAN_EXAMPLES = """\
Examples:
  rocescope cluster plan leaf*.pcap --work job --partitions 64
  rocescope cluster plan ring --tap 'ring/(?P<tap>[^/]+)/' --work job
"""
MAP_EXAMPLES = """\
Examples:
  rocescope cluster map 0 --work job
"""
REDUCE_EXAMPLES = """\
Examples:
  rocescope cluster reduce 0 --work job
"""
MERGE_EXAMPLES = """\
Examples:
  rocescope cluster merge --work job -o results
  rocescope cluster merge --work job --format json | jq '.diagnosis'
"""
SBATCH_EXAMPLES = """\
Examples:
  rocescope cluster sbatch --work job > job.sh && sh job.sh
  rocescope cluster sbatch --work job --command /opt/bin/rocescope > job.sh
"""

application = App(
    name="cluster",
    help="Run the tasks of an analysis on many machines, see docs/cluster.md.",
    help_epilogue=EXAMPLES,
    default_parameter=Parameter(negative=""),
)
Work = Annotated[Path, Parameter(name="--work")]
Number = Annotated[int, Parameter(name="N")]


@application.command(help_epilogue=PLAN_EXAMPLES)
def plan(
    *files: Annotated[Path, Parameter(name="FILE")],
    work: Work,
    partitions: int = 16,
    window: str = "100ms",
    path_by: PathKey = "auto",
    icrc: Annotated[bool, Parameter(show_default=False)] = False,
    link_rate: str | None = None,
    reading: Annotated[ReadingInTasks, Parameter(name="*")] = READING_IN_TASKS,
) -> int:
    """Scan captures and write the plan of their analysis.

    Parameters
    ----------
    files
        Captures, folders, patterns or s3://BUCKET/PREFIX, as of rocescope analyze; each is
        a vantage point (tap).
    work
        The folder of the plan, shared by all machines; no other user may have write access.
    partitions
        Number of partitions by host pair, which is the number of reduce tasks.
    window
        Length of the windows of the time series.
    path_by
        Path key of a flow: entropy (UDP source port, IPv6 flow label), tap, link (of a capture with
        several, which are taps then) or srv6 (segments); auto: tap where taps are parallel, else
        entropy.
    icrc
        Verify the invariant CRC of packets that are not truncated.
    link_rate
        Link rate for pause times, such as 400G, if the capture does not state it.
    """
    require("pyarrow")
    from dataclasses import replace

    from ..cluster.work import Work as Folder
    from ..cluster.work import make_plan, write_plan

    paths, tap_names = reading.captures(files)
    options = replace(
        reading.options(paths, tap_names),
        path_by=path_by,
        window_ns=parse_duration(window, "--window"),
        icrc=icrc,
        link_rate_bits_per_second=None
        if link_rate is None
        else parse_rate(link_rate, "--link-rate"),
    )
    made = make_plan(paths, options, partitions)
    write_plan(Folder(str(work)), made)
    print(
        f"rocescope: planned: map 0 to {len(made.sources) - 1},"
        f" then reduce 0 to {partitions - 1}, then merge",
        file=sys.stderr,
    )
    return 0


@application.command(help_epilogue=MAP_EXAMPLES)
def map(number: Number, /, *, work: Work, progress: ProgressAs = "auto") -> int:
    """Decode capture N of the plan and split it by host pair.

    Parameters
    ----------
    number
        Number of the capture, from 0.
    work
        The folder of the plan.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    require("pyarrow")
    from ..cluster.split import map_capture

    with shown(progress) as tell:
        map_capture(str(work), number, tell)
    return 0


@application.command(help_epilogue=REDUCE_EXAMPLES)
def reduce(number: Number, /, *, work: Work) -> int:
    """Track and measure partition N of the plan, after all map tasks.

    Parameters
    ----------
    number
        Number of the partition, from 0.
    work
        The folder of the plan.
    """
    require("pyarrow")
    from ..cluster.reduce import reduce_partition

    reduce_partition(str(work), number)
    return 0


@application.command(help_epilogue=MERGE_EXAMPLES)
def merge(
    *,
    work: Work,
    fail_on: Severity | None = None,
    top: int = 20,
    sort: str | None = None,
    fabric: str | None = None,
    dscp_priority: str | None = None,
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
) -> int:
    """Merge all partitions into one analysis, after all reduce tasks.

    -o without a suffix is a folder: flows, hops, findings, summary and an HTML report.

    Parameters
    ----------
    work
        The folder of the plan.
    fail_on
        Exit with code 1 when a finding has this severity or a worse one.
    top
        Rows of each table of the report.
    sort
        Sort flows by this column of the CSV output, largest first.
    fabric
        A fabric spec or file, see rocescope fabric: its links show which tap should have seen a
        lost packet next.
    dscp_priority
        Priorities of DSCPs in the switches, such as 26=3,48=6: which packets a PFC pause holds.
        Other DSCPs: DSCP / 8. A VLAN tag has its own priority.
    """
    require("pyarrow")
    if top < 1:
        raise UsageError("--top must be 1 or more")
    folder = to.folder()
    to.check_folder()
    if folder is None:
        to.chosen()
    from ..cluster.merge import merge as merged
    from ..report.files.tables import flow_order_by
    from .options.reading import fabric_links, parse_dscp_priorities

    priorities = None if dscp_priority is None else parse_dscp_priorities(dscp_priority)
    with steps_shown(to.progress) as tell:
        analysis = merged(
            str(work),
            flow_order=None if sort is None else flow_order_by(sort),
            fabric=None if fabric is None else fabric_links(fabric),
            dscp_priority=priorities,
            tell=tell or (lambda what, done, total: None),
        )
    if folder is not None:
        from ..report.out_folder import out_folder

        with out_folder(folder) as out:
            out.write(analysis, top, sort is not None)
    else:
        write_analysis(analysis, to, top, sort is not None, brief=False)
    return exit_code(analysis) or failed(analysis, fail_on)


@application.command(help_epilogue=SBATCH_EXAMPLES)
def sbatch(*, work: Work, command: str = "rocescope") -> int:
    """Print a script that submits all tasks of the plan to SLURM.

    Parameters
    ----------
    work
        The folder of the plan.
    command
        Command that starts rocescope on a node.
    """
    from ..cluster.work import Work as Folder
    from ..cluster.work import read_plan

    made = read_plan(Folder(str(work)))
    folder = shlex.quote(str(work.absolute()))
    run = f"{command} cluster"
    # Not in the folder of the captures, where users may not write. % begins a field in SLURM.
    submit = f"sbatch --output={folder.replace('%', '%%')}/slurm-%j.out"
    print(
        f"""\
#!/bin/sh
# Submits the tasks of an analysis. Run it again after failures: finished tasks are not repeated.
set -e
cd {shlex.quote(made.folder)}
map=$({submit} --parsable --requeue --array=0-{len(made.sources) - 1} \\
  --wrap='{_quoted(f"{run} map $SLURM_ARRAY_TASK_ID --work {folder}")}')
reduce=$({submit} --parsable --requeue --array=0-{made.partitions - 1} \\
  --dependency=afterany:$map \\
  --wrap='{_quoted(f"{run} reduce $SLURM_ARRAY_TASK_ID --work {folder}")}')
{submit} --dependency=afterany:$reduce \\
  --wrap='{_quoted(f"{run} merge --work {folder} -o {folder}/results")}'"""
    )
    return 0


def _quoted(text: str) -> str:
    """Text inside single quotes of a shell."""
    return text.replace("'", "'\\''")

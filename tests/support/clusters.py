"""Analyses in tasks, run in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captures import DATA

from rocescope.analyzer.pipeline.captures import group_files
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.cluster.merge import merge
from rocescope.cluster.reduce import reduce_partition
from rocescope.cluster.split import map_capture
from rocescope.cluster.work import Work, make_plan, write_plan

SPRAYED = sorted(
    str(path) for path in (DATA / "whole_leafspine" / "r09_packet_spray_h1").glob("*.pcap.xz")
)
"""Twelve taps, four hosts."""
REROUTED = sorted(
    str(path) for path in (DATA / "whole_leafspine" / "r03_link_down_reroute").glob("*.pcap.xz")
)


def planned(
    folder: Path, paths: Sequence[str], partitions: int, options: AnalyzeOptions | None = None
) -> str:
    """A work folder with a plan."""
    plan = make_plan(paths, options or AnalyzeOptions(), partitions)
    write_plan(Work(str(folder)), plan)
    return str(folder)


def mapped(folder: Path, paths: Sequence[str], partitions: int) -> str:
    """A work folder after stage map."""
    planned(folder, paths, partitions)
    for number in range(len(paths)):
        map_capture(str(folder), number)
    return str(folder)


def in_tasks(
    folder: Path, paths: Sequence[str], partitions: int, options: AnalyzeOptions | None = None
) -> Analysis:
    """The analysis, one task after the other."""
    planned(folder, paths, partitions, options)
    sources = group_files(paths, options or AnalyzeOptions())
    for number in range(len(sources)):
        map_capture(str(folder), number)
    for number in range(partitions):
        reduce_partition(str(folder), number)
    return merge(str(folder))

"""Options on how captures are read, common to `analyze` and `tui`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...analyzer.errors import UsageError
from .mirrors import mirror_options

if TYPE_CHECKING:
    from ...analyzer.analysis.analyze import AnalyzeOptions


def reading_options(
    files: int,
    *,
    filter: str | None,
    concat: bool,
    follow: bool,
    udp_port: Sequence[int] | None,
    plane_by: str,
    usid: str,
    flow_label: Literal["auto", "inner", "outer"],
    trimmed_dscp: Sequence[int] | None,
    clock: Literal["capture", "hardware"],
    mirror_format: Literal["lumina"] | None,
    drop_duplicates: str | None,
    switch_counters: Path | None = None,
) -> AnalyzeOptions:
    """UsageError for what makes no sense, before a file is opened. files: their number."""
    if follow and (files > 1 or concat):
        raise UsageError("--follow reads one growing file, without --concat")
    from ...analyzer.analysis.analyze import AnalyzeOptions
    from ...analyzer.decode.multipath.srv6 import parse_usid_format
    from ...analyzer.summary.mrc import parse_plane_by

    if filter is not None:
        from ...analyzer.filtering import compile_filter

        compile_filter(filter)
    return AnalyzeOptions(
        filter=filter,
        concat=concat,
        follow=follow,
        udp_ports=(4791, *(udp_port or ())),
        plane_by=parse_plane_by(plane_by),
        usid=parse_usid_format(usid),
        flow_label=flow_label,
        trimmed_dscps=tuple(trimmed_dscp or ()),
        mirror=mirror_options(clock, mirror_format, drop_duplicates, switch_counters),
    )

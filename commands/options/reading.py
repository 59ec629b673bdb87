"""Options for selecting packets and reading captures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from ...analyzer.errors import UsageError
from ...analyzer.wire.ports import ROCE_UDP_PORT
from .mirrors import mirror_options
from .parameter import Parameter
from .taps import Naming, check_uncombined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ...analyzer.pipeline.options import AnalyzeOptions


@dataclass(frozen=True)
class Ports:
    """UDP ports of RoCE.

    Parameters
    ----------
    udp_port
        Another UDP destination port that carries RoCE, besides 4791; may be repeated.
    """

    udp_port: Annotated[list[int] | None, Parameter(negative="")] = None

    @property
    def udp_ports(self) -> tuple[int, ...]:
        """All UDP destination ports that carry RoCE."""
        return (ROCE_UDP_PORT, *(self.udp_port or ()))


@dataclass(frozen=True)
class Selection(Ports):
    """Which packets are used.

    Parameters
    ----------
    filter
        Only packets that pass this filter, in Wireshark syntax, see docs/filter.md.
    """

    filter: str | None = None


@dataclass(frozen=True)
class ReadingInTasks(Naming, Selection):
    """How captures are read, as far as tasks can do it.

    Parameters
    ----------
    concat
        The files are parts of one rotated capture; without this option each file is a vantage point
        (tap).
    usid
        Number of bits of block and uSID in SRv6 addresses, BLOCK:USID.
    flow_label
        IPv6 header with the flow label of MRC entropy values in SRv6: inner, outer (if the inner
        label is 0), or auto: the header whose label the SACKs contain.
    """

    _takes_rings = True
    _takes_objects = True
    concat: Annotated[bool, Parameter(show_default=False)] = False
    usid: str = "32:16"
    flow_label: Literal["auto", "inner", "outer"] = "auto"

    def options(self, files: Sequence[object], tap_names: Mapping[str, str]) -> AnalyzeOptions:
        """The options for `analyze` of these files. UsageError before a file is opened."""
        check_uncombined(tap_names, self.concat)
        from ...analyzer.pipeline.options import AnalyzeOptions
        from ...analyzer.wire.segments import parse_usid_format

        if self.filter is not None:
            from ...analyzer.filtering.compiler import Filter

            Filter(self.filter)
        return AnalyzeOptions(
            filter=self.filter,
            concat=self.concat,
            tap_names=tap_names,
            rings=self.rings,
            udp_ports=self.udp_ports,
            usid=parse_usid_format(self.usid),
            flow_label=self.flow_label,
        )


@dataclass(frozen=True)
class Reading(ReadingInTasks):
    """How captures are read.

    Parameters
    ----------
    follow
        Wait for more packets at the end of a growing file until Ctrl-C.
    plane_by
        Plane key of MRC: auto, tap, segment:N (N-th uSID left) or ev:SHIFT:BITS.
    trimmed_dscp
        DSCP of trimmed MRC packets; may be repeated.
    clock
        Packet times: capture, or hardware: the timestamps that mirrors add (ERSPAN III, Arista).
    mirror_format
        Format of mirrors that overwrite packet headers: lumina.
    drop_duplicates
        Drop packets that repeat an earlier packet within this time, such as 20us.
    """

    follow: Annotated[bool, Parameter(show_default=False)] = False
    plane_by: str = "auto"
    trimmed_dscp: Annotated[list[int] | None, Parameter(negative="")] = None
    clock: Literal["capture", "hardware"] = "capture"
    mirror_format: Literal["lumina"] | None = None
    drop_duplicates: str | None = None

    def options(
        self,
        files: Sequence[object],
        tap_names: Mapping[str, str],
        switch_counters: Path | None = None,
    ) -> AnalyzeOptions:
        """The options for `analyze` of these files. UsageError before a file is opened."""
        if self.follow and (len(files) > 1 or self.concat):
            raise UsageError("--follow reads one growing file and cannot be combined with --concat")
        if self.follow and self.rings is not None:
            raise UsageError("--follow reads one file and cannot be combined with ring files")
        from ...analyzer.summary.options import parse_plane_by

        return replace(
            super().options(files, tap_names),
            follow=self.follow,
            plane_by=parse_plane_by(self.plane_by),
            trimmed_dscps=tuple(self.trimmed_dscp or ()),
            mirror=mirror_options(
                self.clock, self.mirror_format, self.drop_duplicates, switch_counters
            ),
        )


PORTS, SELECTION, READING = Ports(), Selection(), Reading()
READING_IN_TASKS = ReadingInTasks()

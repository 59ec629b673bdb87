"""Options on how packets are chosen and captures are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from ...analyzer.errors import UsageError
from ...analyzer.wire.ports import ROCE_UDP_PORT
from .mirrors import mirror_options
from .parameter import Parameter

if TYPE_CHECKING:
    from pathlib import Path

    from ...analyzer.analysis.options import AnalyzeOptions


@dataclass(frozen=True)
class Ports:
    """What counts as RoCE.

    Parameters
    ----------
    udp_port
        Count this UDP destination port as RoCE besides 4791; may be repeated.
    """

    udp_port: Annotated[list[int] | None, Parameter(negative="")] = None

    @property
    def udp_ports(self) -> tuple[int, ...]:
        """All UDP destination ports that carry RoCE."""
        return (ROCE_UDP_PORT, *(self.udp_port or ()))


@dataclass(frozen=True)
class Selection(Ports):
    """Which packets count.

    Parameters
    ----------
    filter
        Only packets that pass a filter in Wireshark's notation, see docs/filter.md.
    """

    filter: str | None = None


@dataclass(frozen=True)
class Reading(Selection):
    """How captures are read.

    Parameters
    ----------
    concat
        The files are one rotated capture; else each is a vantage point (tap).
    follow
        Wait for more at the end of a growing file; Ctrl-C ends it.
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

    concat: Annotated[bool, Parameter(show_default=False)] = False
    follow: Annotated[bool, Parameter(show_default=False)] = False
    plane_by: str = "auto"
    usid: str = "32:16"
    flow_label: Literal["auto", "inner", "outer"] = "auto"
    trimmed_dscp: Annotated[list[int] | None, Parameter(negative="")] = None
    clock: Literal["capture", "hardware"] = "capture"
    mirror_format: Literal["lumina"] | None = None
    drop_duplicates: str | None = None

    def options(self, files: int, switch_counters: Path | None = None) -> AnalyzeOptions:
        """UsageError for what makes no sense, before a file is opened. files: their number."""
        if self.follow and (files > 1 or self.concat):
            raise UsageError("--follow reads one growing file, without --concat")
        from ...analyzer.analysis.options import AnalyzeOptions
        from ...analyzer.summary.options import parse_plane_by
        from ...analyzer.wire.segments import parse_usid_format

        if self.filter is not None:
            from ...analyzer.filtering import compile_filter

            compile_filter(self.filter)
        return AnalyzeOptions(
            filter=self.filter,
            concat=self.concat,
            follow=self.follow,
            udp_ports=self.udp_ports,
            plane_by=parse_plane_by(self.plane_by),
            usid=parse_usid_format(self.usid),
            flow_label=self.flow_label,
            trimmed_dscps=tuple(self.trimmed_dscp or ()),
            mirror=mirror_options(
                self.clock, self.mirror_format, self.drop_duplicates, switch_counters
            ),
        )


PORTS, SELECTION, READING = Ports(), Selection(), Reading()

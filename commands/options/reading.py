"""Options of every command that reads captures: packets, mirrors, logs, fabric, priorities."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ...analyzer.errors import UsageError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...analyzer.words import parse_duration
from ..table import Parameter
from .taps import Naming, check_uncombined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...analyzer.decode.mirrors import MirrorOptions
    from ...analyzer.measures.hops.vantage import FabricLinks
    from ...analyzer.pipeline.options import AnalyzeOptions


PathKey: TypeAlias = Literal["auto", "tap", "link", "entropy", "srv6"]
"""`--path-by`."""

# --dscp-priority: the priorities of DSCPs in the switches.

_PAIR = re.compile(r"([0-9]{1,2})=([0-7])")
_DSCPS = 64


def parse_dscp_priorities(text: str) -> dict[int, int]:
    """`26=3,48=6` as {26: 3, 48: 6}; UsageError for anything else."""
    priorities: dict[int, int] = {}
    for pair in text.replace(" ", "").split(","):
        match = _PAIR.fullmatch(pair)
        if match is None or int(match[1]) >= _DSCPS:
            raise UsageError(
                f"--dscp-priority {text!r}: give DSCP=PRIORITY, such as 26=3,48=6, with DSCPs from"
                " 0 to 63 and priorities from 0 to 7"
            )
        if priorities.setdefault(int(match[1]), int(match[2])) != int(match[2]):
            raise UsageError(f"--dscp-priority {text!r}: DSCP {match[1]} has two priorities")
    return priorities


# `--fabric` of `analyze` and `tui`: the links of a fabric as the analyzer needs them.


def fabric_links(spec: str) -> FabricLinks:
    """The links that are up, and the hosts with their addresses. UsageError as `parse_fabric`."""
    from ...analyzer.measures.hops.vantage import FabricLinks
    from ...replay.fabrics.parse import parse_fabric

    fabric = parse_fabric(spec)
    names, links, plan = fabric.nodes.names, fabric.links, fabric.addresses
    networks: dict[IPv4Network | IPv6Network, str] = {
        network: fabric.host_name(host) for network, host in plan.subnets.items()
    }
    for host in range(fabric.hosts):
        given = plan.explicit.get(host) or [plan.address_of(host, ipv6) for ipv6 in (False, True)]
        networks |= {ip_network(address): fabric.host_name(host) for address in given}
    ends = zip(links.source[links.up].tolist(), links.target[links.up].tolist(), strict=True)
    return FabricLinks(
        links=[(names[source], names[target]) for source, target in ends],
        hosts=frozenset(names[fabric.switches :]),
        networks=networks,
        spec=spec,
    )


# The option for logs of jobs.


@dataclass(frozen=True)
class JobLogs:
    """Logs of the job.

    Parameters
    ----------
    nccl_log
        Logs of the job (NCCL, RCCL, UCX, perftest), such as 'logs/*' (quoted), which name the ranks
        of queue pairs; see docs/ranks.md; may be repeated.
    """

    nccl_log: Annotated[list[str] | None, Parameter(negative="")] = None

    def patterns(self, must_exist: bool = True) -> tuple[str, ...]:
        """Patterns of their names. UsageError for one without a file, unless logs may follow."""
        if self.nccl_log and must_exist:
            from ...analyzer.jobs.lines import named

            named(self.nccl_log)
        return tuple(self.nccl_log or ())


JOB_LOGS = JobLogs()


@dataclass(frozen=True)
class JobRecords:
    """Collectives that the job recorded.

    Parameters
    ----------
    flight_recorder
        Folder with dumps of PyTorch's flight recorder (nccl_trace_rank_0 ..., or JSON): who misses
        a collective, and collectives beside the steps; see docs/jobs.md. Pickles are not executed.
    nccl_inspector
        Folder with logs of NCCL Inspector or RCCL Inspector: who enters collectives last.
    """

    flight_recorder: Path | None = None
    nccl_inspector: Path | None = None

    def added(self, options: AnalyzeOptions) -> AnalyzeOptions:
        """Options with these folders. UsageError for one that is no folder or empty."""
        if self.flight_recorder is None and self.nccl_inspector is None:
            return options
        from ...analyzer.jobs.records import files_in

        for option, folder in (
            ("--flight-recorder", self.flight_recorder),
            ("--nccl-inspector", self.nccl_inspector),
        ):
            if folder is not None:
                files_in(folder, option)
        return replace(
            options,
            flight_recorder=_text(self.flight_recorder),
            nccl_inspector=_text(self.nccl_inspector),
        )


JOB_RECORDS = JobRecords()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


# Options for mirrors that overwrite packet headers, common to `analyze` and `check`.


def mirror_options(
    clock: Literal["capture", "hardware"],
    mirror_format: Literal["lumina"] | None,
    drop_duplicates: str | None,
    switch_counters: Path | None,
) -> MirrorOptions | None:
    """How to restore mirrored packets; None if packets are used as captured."""
    if switch_counters is not None and mirror_format is None:
        raise UsageError("--switch-counters needs --mirror-format lumina")
    if clock == "capture" and mirror_format is None and drop_duplicates is None:
        return None
    if clock == "hardware" and mirror_format is not None:
        raise UsageError("--clock hardware cannot be combined with --mirror-format lumina")
    from ...analyzer.decode.mirrors import MirrorOptions, read_switch_counters

    within = drop_duplicates and parse_duration(drop_duplicates, "--drop-duplicates")
    counters = None if switch_counters is None else read_switch_counters(switch_counters)
    return MirrorOptions(clock, mirror_format, within or None, counters)


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
        from ...analyzer.wire.registry import parse_usid_format

        if self.filter is not None:
            from ...analyzer.filtering.compiler import Filter

            Filter(self.filter)
        return AnalyzeOptions(
            filter=self.filter,
            concat=self.concat,
            tap_names=tap_names,
            ethers=self.addresses(),
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
        from ...analyzer.summary.names import parse_plane_by

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

"""The result of an analysis, of `check`, and the intervals of a live analysis.

Field names are those of the JSON output. Times are nanoseconds since the Unix
epoch, sizes bytes. A value that the capture cannot give is None; `notes` or the description of the
field gives the reason. No number is ever made up.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType

from .base import Event, Imbalance, Record, Series, about
from .captures import CaptureSummary, Ended, MirrorChecks
from .conformance import Conformance
from .diagnosis import Diagnosis
from .flow import Connection, Flow
from .hops import CaptureLoss, Hop, Ranks, TapClock
from .mrc import Mrc, SegmentList

# Results of live analyses only.


class LiveInterval(Record, frozen=True, kw_only=True):
    """Traffic of one interval. A line without `interval` is the Analysis of the whole run."""

    interval: Annotated[int, about("number of the interval, from 1")]
    end_time_ns: int
    duration_ns: int
    dropped_frames: Annotated[int, about("packets lost in this interval because a ring was full")]
    dropped_frames_total: Annotated[int, about("packets lost since the start")]
    too_short_frames: Annotated[int, about("frames too short to read")]
    merged_frames: Annotated[
        int, about("frames into which the kernel merged several packets (GRO or GSO)")
    ]
    frames: Annotated[int, about("frames of any kind seen by the probes")]
    packets: Annotated[int, about("RoCE packets; a packet seen at several taps counts once")]
    wire_bytes: int
    packets_per_second: float
    bits_per_second: float
    flows: Annotated[int, about("flows with packets in this interval")]
    flows_total: Annotated[int, about("flows since the start")]
    reordered_packets: int
    retransmitted_packets: int
    missing_packets_total: Annotated[int, about("PSNs not seen by the end of this interval")]
    ecn_marked_packets: int
    cnps: int
    naks: int
    rnr_naks: int
    interfaces_gone: Annotated[
        list[str], about("interfaces that have disappeared or lost their probes")
    ]


class RdmaPort(Record, frozen=True):
    """Growth of the counters of one RDMA port of this host during a live analysis."""

    device: str
    port: int
    counters: Annotated[
        dict[str, int], about("names as in the kernel; port_*_data count words of four bytes")
    ]
    hw_counters: Annotated[dict[str, int], about("counters of the adapter's driver")]
    restarted: Annotated[
        list[str], about("counters reset during the analysis: their growth is unknown")
    ]


SCHEMA_VERSION = "1.5"


class Analysis(Record, frozen=True, kw_only=True):
    """Everything `rocescope analyze` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, about("False when the analysis was interrupted")]
    captures: list[CaptureSummary]
    diagnosis: Diagnosis
    flows: list[Flow]
    connections: list[Connection]
    imbalance: list[Imbalance]
    hops: Annotated[list[Hop], about("from tap to tap, one direction each; empty with one tap")]
    capture_losses: list[CaptureLoss]
    clocks: list[TapClock]
    events: list[Event]
    events_omitted: int
    series: Series
    warnings: Annotated[
        list[str], about("what limits trust in these results, most important first")
    ]
    ended: Annotated[
        Ended | UnsetType,
        about(
            "only if flows were removed from memory (live or with --follow), or "
            "packets were beyond a limit"
        ),
    ] = UNSET
    rdma_ports: Annotated[
        list[RdmaPort] | UnsetType, about("only in a live analysis on a host with RDMA devices")
    ] = UNSET
    conformance: Annotated[Conformance | UnsetType, about("only with --conformance")] = UNSET
    mrc: Annotated[Mrc | UnsetType, about("only when the capture holds MRC")] = UNSET
    mirror_checks: Annotated[
        MirrorChecks | UnsetType, about("only with --mirror-format lumina")
    ] = UNSET
    ranks: Annotated[
        Ranks | UnsetType, about("only if both ranks of a flow are known, from logs")
    ] = UNSET
    segment_lists: Annotated[
        list[SegmentList] | UnsetType, about("only when the capture holds SRv6; bounded")
    ] = UNSET

    @property
    def left(self) -> Ended:
        """`ended`, with zeros where no flow left memory."""
        return self.ended if isinstance(self.ended, Ended) else Ended()


# The result of `rocescope check`.


class Check(Record, frozen=True, kw_only=True):
    """Everything `rocescope check` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, about("False when the check was interrupted")]
    captures: list[CaptureSummary]
    conformance: Conformance
    warnings: Annotated[
        list[str], about("what limits trust in these results, most important first")
    ]

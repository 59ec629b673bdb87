"""Results of live analyses only."""

from __future__ import annotations

from typing import Annotated

from .base import Record, about


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

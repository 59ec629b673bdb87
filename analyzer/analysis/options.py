"""The options of an analysis of captures."""

from __future__ import annotations

from dataclasses import dataclass

from ..decode.mirrors.restore import MirrorOptions
from ..decode.multipath.flow_labels import FlowLabelOf
from ..measures.conformance.options import ConformanceOptions
from ..measures.series import DEFAULT_WINDOW_NS
from ..summary.conclude import MAX_FLOWS
from ..summary.options import FlowOrder, PathBy, PlaneBy
from ..wire.ports import ROCE_UDP_PORT
from ..wire.segments import UsidFormat


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """How to analyse."""

    path_by: PathBy = "entropy"
    """What tells the paths of a flow apart."""
    window_ns: int = DEFAULT_WINDOW_NS
    """Width of the time series' windows."""
    filter: str | None = None
    """Packets to look at; all others are left out before tracking."""
    concat: bool = False
    """The files are a rotated series of one tap."""
    follow: bool = False
    """Wait for more at the end of a growing file."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    icrc: bool = False
    """Verify the ICRC of frames captured in full."""
    link_rate_bits_per_second: int | None = None
    """For pause times of taps that do not state their rate."""
    max_flows: int = MAX_FLOWS
    """More end the analysis with an error."""
    trimmed_dscps: tuple[int, ...] = ()
    """DSCPs that mark trimmed packets of MRC."""
    flow_label: FlowLabelOf = "auto"
    """Entropy values of MRC have the flow label of the outer IPv6 header where theirs is 0."""
    mirror: MirrorOptions | None = None
    """How mirrored packets are to be read, where not as they are."""
    usid: UsidFormat = UsidFormat()
    """How SRv6 carriers are cut."""
    plane_by: PlaneBy = PlaneBy()
    """What tells the planes of MRC apart."""
    flow_order: FlowOrder | None = None
    """Order of the flows in the result; that of their first packets unless given."""
    conformance: ConformanceOptions | None = None
    """Check the rules of the protocol too."""

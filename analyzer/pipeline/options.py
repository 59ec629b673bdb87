"""The options of an analysis; its reports of progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..decode.mirrors import MirrorOptions
from ..decode.mrc import FlowLabelOf
from ..filtering.compiler import Ranks
from ..measures.conformance.options import ConformanceOptions
from ..measures.hops.vantage import FabricLinks
from ..measures.series import DEFAULT_WINDOW_NS
from ..summary.names import FlowOrder, PathBy, PlaneBy
from ..wire.bth import ROCE_UDP_PORT
from ..wire.registry import UsidFormat

MAX_FLOWS = 100_000
"""Each flow takes about 25 KB with its results; reports of more flows are not readable."""


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """Options of one analysis."""

    path_by: PathBy = "auto"
    """Path key of flows."""
    window_ns: int = DEFAULT_WINDOW_NS
    """Width of the time series' windows."""
    filter: str | None = None
    """Packets to analyse; all others are dropped before tracking."""
    concat: bool = False
    """The files are a rotated series of one tap."""
    tap_names: Mapping[str, str] = field(default_factory=dict)
    """Names of the taps of captures, by path; others have the names of their files."""
    ethers: Mapping[int, str] = field(default_factory=dict)
    """Names of Ethernet addresses, see `registry.read_ethers`."""
    rings: str | None = None
    """The expression that named taps: files whose taps have the same name are its ring files."""
    follow: bool = False
    """Wait for more data at the end of a growing file."""
    idle_ns: int | None = None
    """With `follow`: end flows without a packet for this time of the capture, see
    `measures.ending`; None: never."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    icrc: bool = False
    """Verify the ICRC of frames captured in full."""
    link_rate_bits_per_second: int | None = None
    """Link rate for the pause times of taps that do not state their rate."""
    dscp_priority: Mapping[int, int] | None = field(default_factory=dict)
    """Priority of packets by DSCP in the switches, for pauses of one priority; others: DSCP / 8.
    None: as empty, and the user has no way to state it."""
    max_flows: int = MAX_FLOWS
    """More flows end the analysis; the result covers what was read."""
    trimmed_dscps: tuple[int, ...] = ()
    """DSCPs that mark trimmed packets of MRC."""
    flow_label: FlowLabelOf = "auto"
    """MRC entropy values use the flow label of the outer IPv6 header where the inner one is 0."""
    mirror: MirrorOptions | None = None
    """How to restore mirrored packets."""
    usid: UsidFormat = UsidFormat()
    """Structure of SRv6 carriers: locator block and uSID lengths."""
    plane_by: PlaneBy = PlaneBy()
    """Key of the MRC planes."""
    flow_order: FlowOrder | None = None
    """Order of the flows in the result; default: by first packet."""
    fabric: FabricLinks | None = None
    """Tells the next taps of lost packets where no other packet does."""
    job_logs: tuple[str, ...] = ()
    """Log files, or patterns of their names, that name the ranks of queue pairs."""
    flight_recorder: str | None = None
    """Folder with dumps of PyTorch's flight recorder."""
    nccl_inspector: str | None = None
    """Folder with logs of NCCL Inspector or RCCL Inspector."""
    ranks: Ranks | None = None
    """Ranks for a filter, as an earlier pass over the captures found them."""
    conformance: ConformanceOptions | None = None
    """Also check the rules of the protocol."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress report; the engine sends a few per second and one at the end."""

    path: str
    """The file being read."""
    bytes_done: int
    """Bytes of all input files read so far, as stored (possibly compressed)."""
    bytes_total: int | None
    """Bytes of all input files; None when unknown (standard input, a growing file)."""
    frames: int
    """Frames read so far."""
    packets: int
    """RoCE packets decoded so far."""
    compiling: bool = False
    """Kernels are being compiled; happens once per machine and takes some seconds."""

"""The data of screens: frozen columns with one entry per flow, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ...analyzer.results.base import Event, Fact
from ...analyzer.results.flow import Owner, counted_facts
from ...analyzer.results.mrc import MrcPortOutage
from ...analyzer.statistics.per_flow import Kept
from ...analyzer.words import printable
from ...kernels.kernel import Array, Bools, Bytes, Floats, Int32s, Ints, UInt32s
from .judged import Judged

UNKNOWN = -1
"""In a column of counts: not known from this capture."""
TRACED = "traced"
"""The trust in paths that `trace` found, and their name among strategies."""


class FlowKey(NamedTuple):
    """The identity of a flow across snapshots, independent of its index."""

    src: str
    dst: str
    qp: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """The source of the data and its limits of trust."""

    name: str
    kind: str
    """`capture`, `live` or `replay`."""
    running: bool = True
    compiling: bool = False
    error: str = ""
    """Reason why reading ended early, one line."""
    frames: int = 0
    packets: int = 0
    bytes_done: int = 0
    bytes_total: int | None = None
    dropped: int | None = None
    """Frames dropped by the capture; None if unknown."""
    truncated: int = 0
    undecodable: int = 0
    packets_per_second: float | None = None
    bits_per_second: float | None = None
    warnings: tuple[str, ...] = ()
    tap_names: tuple[str, ...] = ()
    stopped_early: bool = False
    """The user stopped the reading of a capture."""
    recording: str = ""
    """The file of the recording; empty if there is none."""
    behind_ns: int = 0
    """Age of this state in a live session; 0: live."""

    def __post_init__(self) -> None:
        """Names of files and interfaces may hold escape codes: no state of a session keeps them."""
        for text in ("name", "error", "recording"):
            object.__setattr__(self, text, printable(getattr(self, text)))
        object.__setattr__(self, "warnings", tuple(map(printable, self.warnings)))

    @property
    def progress(self) -> float | None:
        """0 to 1; None if the end is unknown."""
        if not self.bytes_total:
            return None
        return min(1.0, self.bytes_done / self.bytes_total)


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """One entry per flow; UNKNOWN for unknown counts."""

    src: UInt32s
    dst: UInt32s
    qp: UInt32s
    transport: Bytes
    peer: Int32s
    path_mtu: Ints
    packets: Ints
    wire_bytes: Ints
    data_packets: Ints
    ack_packets: Ints
    first_ns: Ints
    last_ns: Ints
    arrivals: Ints
    late: Ints
    max_extent: Ints
    retransmitted: Ints
    recovered: Ints
    duplicate: Ints
    missing: Ints
    rewinds: Ints
    naks: Ints
    rnr_naks: Ints
    cnps: Ints
    ecn_marked: Ints
    counted: Ints
    """[flows, counters]: in the order of `counted_facts`."""
    rate: Floats
    """Bits per second: of the last second in live sessions, else over the flow's lifetime."""

    def __len__(self) -> int:
        return len(self.qp)

    @classmethod
    def none(cls) -> FlowColumns:
        kinds = {"src": "u4", "dst": "u4", "qp": "u4", "transport": "u1", "peer": "i4"}
        kinds["rate"] = "f8"
        empty = {f.name: np.zeros(0, kinds.get(f.name, "i8")) for f in fields(cls)}
        return cls(**empty | {"counted": np.zeros((0, len(counted_facts())), np.int64)})

    def counts_of(self, fact: Fact) -> Ints:
        """The column of a field of `Flow` that declares a key."""
        if fact.measure:
            counted: Ints = self.counted[:, counted_facts().index(fact)]
            return counted
        column: Ints = getattr(self, fact.name.removesuffix("_packets"))
        return column


@dataclass(frozen=True, slots=True)
class PathColumns:
    """Counts of each path of each flow: the paths of flow f are rows starts[f]:starts[f+1]."""

    by: str
    """`entropy`, `tap`, `srv6`, `plane` (of MRC) or `fabric`."""
    starts: Ints
    key: Ints
    packets: Ints
    wire_bytes: Ints
    late: Ints
    marked: Ints
    width: Floats
    """Per flow: exp(entropy of bytes over paths), 0 without packets."""
    name: Callable[[int], str] = str
    """The text for a key."""
    fair: Floats | None = None
    """Bytes of each row if each flow were split evenly over the paths it could use; unused paths
    have rows too. None if only paths in use are known."""
    traced: bool = False
    """Links of a fabric: those that `trace` found, not those that a strategy would use."""
    counts: Ints | None = None
    """Paths per flow where the rows are not known; None: they are."""

    @property
    def inferred(self) -> bool:
        """Whether the path is inferred from the key."""
        return self.by in ("entropy", "plane")

    @property
    def trust(self) -> str:
        """Trust in the path: `inferred`, `predicted`, `traced` or `known`."""
        if self.inferred:
            return "inferred"
        if self.by == "fabric":
            return TRACED if self.traced else "predicted"
        return "known"

    def seen(self) -> Ints:
        """Paths per flow."""
        return np.diff(self.starts) if self.counts is None else self.counts

    def used(self) -> Ints:
        """Paths per flow with packets."""
        if self.counts is not None:
            return self.counts
        flow = np.repeat(np.arange(len(self.starts) - 1), self.seen())
        return np.bincount(flow[self.packets > 0], minlength=len(self.starts) - 1)

    def of(self, flow: int) -> slice:
        """The rows of one flow."""
        if flow + 1 >= len(self.starts):
            return slice(0, 0)
        return slice(int(self.starts[flow]), int(self.starts[flow + 1]))

    @classmethod
    def none(cls, by: str = "entropy") -> PathColumns:
        empty = np.zeros(0, np.int64)
        return cls(by, np.zeros(1, np.int64), empty, empty, empty, empty, empty, np.zeros(0))


@dataclass(frozen=True, slots=True)
class MrcPlaneState:
    """One MRC plane and the number of entropy values of all flows on it."""

    name: str
    values: int
    out_of_use: int
    """Retired ones: their flows continue without them."""
    may_be_out: int = 0
    """Possibly retired ones: a cause is known, but their flows ended too early to confirm it."""

    @property
    def is_avoided(self) -> bool:
        """Whether most of its entropy values are retired."""
        return 2 * self.out_of_use > self.values


@dataclass(frozen=True, slots=True)
class MrcColumns:
    """Columns of MRC flows only, one entry per flow; UNKNOWN for unknown values."""

    values: Ints
    """Entropy values it sent with."""
    fell_out: Ints
    """Retired ones, including those that returned."""
    planes: Ints
    resends: Ints
    """Packets with the RTX bit."""
    trimmed: Ints
    nacks: Ints
    """NACKs of its receiver; UNKNOWN if no answer was seen."""
    skips: Ints
    """SACKs with SKIP_ONCE or ALWAYS_SKIP."""
    depth: Ints
    """Largest distance from the cumulative PSN of a SACK to the highest PSN in its bitmap."""
    plane_states: tuple[MrcPlaneState, ...] = ()
    plane_by: str = ""
    """The key that distinguishes planes, a guess; empty if there is none."""
    outages: tuple[MrcPortOutage, ...] = ()
    """Ports that hosts declared unreachable."""

    COUNTS = ("fell_out", "resends", "trimmed", "nacks", "skips")
    """Columns that only grow."""


class MrcFact(NamedTuple):
    """What a column of `MrcColumns` is in the filter and on screen 2."""

    name: str
    key: str
    title: str
    width: int
    priority: int
    """On narrow terminals columns with the highest number are omitted first."""
    meaning: str
    is_trouble: bool = False
    """A value above 0 is a problem."""

    @property
    def filter(self) -> str:
        """Its name in filters."""
        return "sack" if self.key == "depth" else self.key


MRC_FACTS = (
    MrcFact("values", "evs", "EVs", 4, 2, "entropy values of the sender"),
    MrcFact("fell_out", "out", "OUT", 4, 6, "retired entropy values", True),
    MrcFact("planes", "planes", "PLANES", 6, 3, "planes it uses"),
    MrcFact("resends", "rtx", "RTX", 6, 1, "packets with the RTX bit", True),
    MrcFact("nacks", "nacks", "NACK", 5, 1, "NACKs of the receiver", True),
    MrcFact("trimmed", "trim", "TRIM", 5, 5, "trimmed packets", True),
    MrcFact("skips", "skip", "SKIP", 6, 4, "SACKs with SKIP_ONCE or ALWAYS_SKIP", True),
    MrcFact(
        "depth",
        "depth",
        "SACK",
        5,
        3,
        "largest distance from the cumulative to the highest PSN of a SACK",
    ),
)
"""In the order of the columns."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Totals of all flows in equal windows."""

    start_ns: int = 0
    window_ns: int = 1
    columns: dict[str, Ints] = field(default_factory=dict)
    tap_bytes: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Wire bytes, int64[windows, taps]; without columns for one tap, and for more than
    `columns.MOST_TAPS`."""

    def __getitem__(self, name: str) -> Ints:
        return self.columns.get(name, np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class FlowBins:
    """Counts of each flow in equal bins of time."""

    start_ns: int = 0
    bin_ns: int = 1
    values: UInt32s = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    """uint32[bins, flows]; later flows have no column."""

    def of(self, flow: int) -> list[int]:
        """The counts of one flow; empty without a column."""
        known = flow < self.values.shape[1]
        return self.values[:, flow].tolist() if known else []


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The data of all screens at one time."""

    source: SourceState
    addresses: tuple[str, ...] = ()
    flows: FlowColumns = field(default_factory=FlowColumns.none)
    paths: dict[str, PathColumns] = field(default_factory=lambda: {"entropy": PathColumns.none()})
    activity: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Wire bytes, int64[bins, flows]."""
    activity_bin_ns: int = 1
    activity_start_ns: int = 0
    late: FlowBins = field(default_factory=FlowBins)
    """Late packets."""
    timeline: Timeline = field(default_factory=Timeline)
    events: tuple[Event, ...] = ()
    events_omitted: int = 0
    owners: Mapping[int, Owner] = field(default_factory=dict)
    """By flow: the process of this host that owns its queue pair; live, if known."""
    mrc: MrcColumns | None = None
    """None without MRC."""
    judged: Judged = field(default_factory=Judged)
    """The latest diagnosis, also in the past of a live session."""
    start_ns: int = 0
    end_ns: int = 0

    def key(self, flow: int) -> FlowKey:
        """The identity of a flow."""
        f = self.flows
        return FlowKey(self.addresses[f.src[flow]], self.addresses[f.dst[flow]], int(f.qp[flow]))

    def find(self, key: FlowKey | None) -> int | None:
        """The index of a flow; None if it is not in this snapshot."""
        if key is None or not len(self.flows):
            return None
        candidates: Any = np.flatnonzero(self.flows.qp == key.qp)
        return next((int(f) for f in candidates if self.key(int(f)) == key), None)

    def trouble(self) -> Ints:
        """Per flow its place in the order of trouble, the worst flow has the largest number.

        First its worst finding, then packets that never arrived, retransmissions, late packets;
        flows without any of these by their rate.
        """
        flows = self.flows
        gone = np.maximum(flows.missing, 0) + np.maximum(flows.recovered, 0)
        ranks = self.judged.ranks(len(flows))
        order = np.lexsort((flows.rate, flows.late, flows.retransmitted, gone, ranks))
        places = np.empty(len(flows), np.int64)
        places[order] = np.arange(len(flows))
        return places

    def carries_data(self) -> Bools:
        """Per flow: whether it has requests or responses, not only ACKs or CNPs."""
        return self.flows.data_packets > 0


# Stored snapshots: their counts in the smallest types that hold them.

_NARROW = (np.int8, np.int16, np.int32)
_ALWAYS_NARROW = "peer"
"""The only column of another signed type than int64."""
_Columns = TypeVar("_Columns")


def packed(snapshot: Snapshot) -> Snapshot:
    """int64 columns of flows, paths and MRC in smaller types; only `unpacked` may read them."""
    return _changed(snapshot, _smallest)


def unpacked(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it was before `packed`."""
    return _changed(snapshot, _widest)


def _changed(snapshot: Snapshot, change: Callable[[Array], Array]) -> Snapshot:
    return replace(
        snapshot,
        flows=_columns(snapshot.flows, change),
        paths={by: _columns(paths, change) for by, paths in snapshot.paths.items()},
        mrc=None if snapshot.mrc is None else _columns(snapshot.mrc, change),
    )


def _columns(columns: _Columns, change: Callable[[Array], Array]) -> _Columns:
    of: Any = columns
    arrays = {
        f.name: change(value)
        for f in fields(of)
        if f.name != _ALWAYS_NARROW and isinstance(value := getattr(of, f.name), np.ndarray)
    }
    changed: _Columns = replace(of, **arrays)
    return changed


def _smallest(values: Array) -> Array:
    if values.dtype != np.int64:
        return values
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for narrow in _NARROW:
        limits = np.iinfo(narrow)
        if limits.min <= low and high <= limits.max:
            return values.astype(narrow)
    return values


def _widest(values: Array) -> Array:
    return values.astype(np.int64) if values.dtype in _NARROW else values


# Snapshots and events after flows left memory: only the others remain, with new numbers.


def kept_events(
    events: Iterable[Event], kept: Kept, renamed: dict[int, Event | None] | None = None
) -> Iterator[Event]:
    """The events of no flow, and those of kept flows.

    renamed: what became of an event, by its id(); snapshots share events.
    """
    renamed = {} if renamed is None else renamed
    for event in events:
        if id(event) not in renamed:
            renamed[id(event)] = _kept_event(event, kept)
        new = renamed[id(event)]
        if new is not None:
            yield new


def _kept_event(event: Event, kept: Kept) -> Event | None:
    if event.flow is None:
        return event
    number = int(kept.number[event.flow])
    return None if number < 0 else msgspec.structs.replace(event, flow=number)


def kept_snapshot(
    snapshot: Snapshot, kept: Kept, renamed: dict[int, Event | None] | None = None
) -> Snapshot:
    """A snapshot without time series, with the kept flows only. renamed: as `kept_events`."""
    flows = snapshot.flows
    rows = kept.of(len(flows))
    columns = {f.name: getattr(flows, f.name)[rows] for f in fields(flows)}
    peer = columns["peer"]
    columns["peer"] = np.where(kept.holds(peer), kept.number[peer], -1).astype(np.int32)
    return replace(
        snapshot,
        flows=FlowColumns(**columns),
        paths={by: _kept_paths(paths, kept) for by, paths in snapshot.paths.items()},
        owners={
            int(kept.number[flow]): owner
            for flow, owner in snapshot.owners.items()
            if kept.number[flow] >= 0
        },
        events=tuple(kept_events(snapshot.events, kept, renamed)),
        mrc=None if snapshot.mrc is None else _kept_mrc(snapshot.mrc, kept),
    )


def _kept_paths(paths: PathColumns, kept: Kept) -> PathColumns:
    known = len(paths.starts) - 1
    rows = kept.of(known)
    stays = kept.number[np.repeat(np.arange(known), paths.seen())] >= 0
    return replace(
        paths,
        starts=np.concatenate([[0], np.cumsum(paths.seen()[rows])]),
        width=paths.width[rows],
        fair=None if paths.fair is None else paths.fair[stays],
        **{
            name: getattr(paths, name)[stays]
            for name in ("key", "packets", "wire_bytes", "late", "marked")
        },
    )


def _kept_mrc(mrc: MrcColumns, kept: Kept) -> MrcColumns:
    rows = kept.of(len(mrc.values))
    columns: dict[str, Any] = {
        f.name: value[rows]
        for f in fields(mrc)
        if isinstance(value := getattr(mrc, f.name), np.ndarray)
    }
    return replace(mrc, **columns)

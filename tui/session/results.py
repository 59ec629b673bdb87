"""A folder of results in the terminal UI: what an analysis found, without its packets.

Rows of flows in Parquet files become the columns of a snapshot, in bounded memory.
"""

from __future__ import annotations

import mmap
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...analyzer.errors import RocescopeError, UnreadableInput, UsageError
from ...analyzer.results.analysis import SCHEMA_VERSION, CaptureLoss, Hop, Ranks, TapClock
from ...analyzer.results.base import Event
from ...analyzer.results.captures import CaptureSummary
from ...analyzer.results.diagnosis import Diagnosis
from ...analyzer.results.flow import Flow, counted_facts
from ...analyzer.results.jobs import TrainingJob
from ...analyzer.wire.bth import TRANSPORT_NAMES
from ...analyzer.words import printable
from ...kernels.kernel import Array, Ints
from ...report.out_folder import ENDED, LISTED, SUMMARY
from .judged import Judged
from .session import Session
from .snapshot import UNKNOWN, FlowColumns, FlowKey, PathColumns, Snapshot, SourceState

MOST_FLOWS = 100_000
_BATCH = 1 << 14
_TEXTS = ("src", "dst")
_COUNTS = (
    "id", "dest_qp", "connection", "path_mtu", "packets", "wire_bytes", "request_packets",
    "response_packets", "ack_packets", "first_time_ns", "last_time_ns", "reordered_packets",
    "reordering_max_extent", "retransmitted_packets", "recovered_packets", "duplicate_packets",
    "mirror_duplicates", "missing_packets", "recovery_rewinds", "naks", "recovery_rnr_naks", "cnps",
    "ecn_marked_packets", "entropy_values", "lost_between_taps",
    "reordered_between_taps",
    *(fact.name for fact in counted_facts()),
)  # fmt: skip
_AGAIN = ("retransmitted_packets", "duplicate_packets", "mirror_duplicates")
"""Packets that are not the first with their PSN, but for those that were recovered."""
_FLOATS = ("spraying_width",)
_ROW = np.dtype(
    [
        *((name, np.int64) for name in _COUNTS),
        *((name, np.float64) for name in _FLOATS),
        *((name, np.uint32) for name in _TEXTS),
        ("transport", np.uint8),
    ]
)
_TRANSPORTS = {name: number for number, name in enumerate(TRANSPORT_NAMES)}


@dataclass(frozen=True, slots=True)
class FlowRows:
    """The flows of a folder of results: all that are listed, then the worst of those that left."""

    addresses: tuple[str, ...]
    flows: FlowColumns
    paths: PathColumns
    """Widths and numbers of source ports, without the ports."""
    lost: Ints
    """Packets lost between taps; UNKNOWN if not known."""
    late: Ints
    """Packets overtaken between taps, likewise."""
    left_out: int
    """Flows beyond `most`."""


def read_flow_rows(folder: Path, listed: int, most: int = MOST_FLOWS) -> FlowRows:
    """Read `flows`; UnreadableInput if a file is missing or damaged, or has not `listed` flows."""
    addresses: dict[str, int] = {}
    own = np.zeros(0, _ROW)
    for rows in _rows(folder / Path(LISTED).name, addresses):
        own = np.concatenate([own, rows])
    own = own[np.argsort(own["id"], kind="stable")]
    if not np.array_equal(own["id"], np.arange(listed)):
        raise UnreadableInput(
            f"{folder / Path(LISTED).name} does not belong to summary.json: repeat the analysis"
        )
    left, count = np.zeros(0, _ROW), 0
    ended = folder / Path(ENDED).name
    if ended.exists():
        for rows in _rows(ended, addresses):
            count += len(rows)
            left = _worst(np.concatenate([left, rows]), max(0, most - listed))
    every = np.concatenate([own, left])
    used, numbers = np.unique(np.concatenate([every["src"], every["dst"]]), return_inverse=True)
    texts = list(addresses)
    every["src"], every["dst"] = numbers[: len(every)], numbers[len(every) :]
    return FlowRows(
        tuple(texts[number] for number in used.tolist()),
        _columns(every),
        _paths(every),
        every["lost_between_taps"].copy(),
        every["reordered_between_taps"].copy(),
        count - len(left),
    )


def _rows(path: Path, addresses: dict[str, int]) -> Iterator[Array]:
    """Records of `_ROW`; addresses: by text, grows."""
    wanted = [*_COUNTS, *_FLOATS, *_TEXTS, "transport"]
    try:
        if path.exists() and not path.is_file():  # a pipe may have no end
            raise ValueError("not a regular file")
        with pq.ParquetFile(path) as file:
            _check(file.schema_arrow)
            for batch in file.iter_batches(_BATCH, columns=wanted):
                rows = np.zeros(len(batch), _ROW)
                for name in _COUNTS:
                    rows[name] = pc.fill_null(batch[name], UNKNOWN).to_numpy(zero_copy_only=False)
                for name in _FLOATS:
                    rows[name] = pc.fill_null(batch[name], 0.0).to_numpy(zero_copy_only=False)
                for name in _TEXTS:
                    rows[name] = _numbers(
                        batch[name], lambda t: addresses.setdefault(t, len(addresses))
                    )
                rows["transport"] = _numbers(batch["transport"], lambda t: _TRANSPORTS[t])
                yield rows
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        why = printable(" ".join(str(error).split()))
        raise UnreadableInput(f"{path} cannot be read: {why}") from None


def _check(schema: Any) -> None:
    """ValueError if a column is not of the type that an analysis writes."""
    types = dict.fromkeys((*_TEXTS, "transport"), pa.string())
    types |= dict.fromkeys(_COUNTS, pa.int64()) | dict.fromkeys(_FLOATS, pa.float64())
    for name, type in types.items():
        if schema.field(name).type != type:
            raise ValueError(f"{name} is of type {schema.field(name).type}, not {type}")


def _numbers(texts: Any, number: Any) -> Array:
    if texts.null_count:
        raise ValueError("a flow without addresses or transport")
    found = texts.dictionary_encode()
    known = np.array([number(text) for text in found.dictionary.to_pylist()], np.uint32)
    return known[found.indices.to_numpy(zero_copy_only=False)]


def _worst(rows: Array, most: int) -> Array:
    """Maximum number of rows: those with the most trouble, as `Snapshot.trouble` orders them."""
    if len(rows) <= most:
        return rows
    gone = _known(rows, "missing_packets", "recovered_packets", "lost_between_taps")
    late = _known(rows, "reordered_packets", "reordered_between_taps")
    keys = (_rate(rows), late, rows["retransmitted_packets"], gone)
    kept = np.sort(np.lexsort(keys)[len(rows) - most :])
    return rows[kept]


def _known(rows: Array, *names: str) -> Array:
    """Sums of these numbers of packets, as far as they are known."""
    return sum(np.maximum(rows[name], 0) for name in names)


def _rate(rows: Array) -> Array:
    lived = rows["last_time_ns"] - rows["first_time_ns"]
    rate: Array = np.where(lived > 0, rows["wire_bytes"] * 8e9 / np.maximum(lived, 1), 0.0)
    return rate


def _peers(rows: Array) -> Array:
    """int32: the other flow of the connection; -1 if it is not known or not here."""
    peers = np.full(len(rows), -1, np.int32)
    order = np.argsort(rows["connection"], kind="stable")
    connection = rows["connection"][order]
    same = np.flatnonzero((connection[1:] == connection[:-1]) & (connection[1:] >= 0))
    peers[order[same]], peers[order[same + 1]] = order[same + 1], order[same]
    return peers


def _columns(rows: Array) -> FlowColumns:
    peers = _peers(rows)
    carried = rows["request_packets"] + rows["response_packets"]
    late, recovered = rows["reordered_packets"], np.maximum(rows["recovered_packets"], 0)
    refused = np.maximum(rows["recovery_rnr_naks"], 0)
    alone = np.where(refused > 0, 0, UNKNOWN)
    return FlowColumns(
        src=rows["src"].copy(),
        dst=rows["dst"].copy(),
        qp=rows["dest_qp"].astype(np.uint32),
        transport=rows["transport"].copy(),
        peer=peers,
        path_mtu=np.maximum(rows["path_mtu"], 0),
        packets=rows["packets"].copy(),
        wire_bytes=rows["wire_bytes"].copy(),
        data_packets=carried,
        ack_packets=rows["ack_packets"].copy(),
        first_ns=rows["first_time_ns"].copy(),
        last_ns=rows["last_time_ns"].copy(),
        arrivals=carried - sum(np.maximum(rows[name], 0) for name in _AGAIN) + recovered,
        late=late.copy(),
        max_extent=np.maximum(rows["reordering_max_extent"], 0),
        retransmitted=rows["retransmitted_packets"].copy(),
        recovered=rows["recovered_packets"].copy(),
        duplicate=rows["duplicate_packets"].copy(),
        missing=rows["missing_packets"].copy(),
        rewinds=rows["recovery_rewinds"].copy(),
        naks=np.where(peers >= 0, rows["naks"][peers], alone) if len(rows) else rows["naks"],
        rnr_naks=refused,
        cnps=np.where(peers >= 0, rows["cnps"][peers], UNKNOWN) if len(rows) else rows["cnps"],
        ecn_marked=rows["ecn_marked_packets"].copy(),
        counted=_counted(rows),
        rate=_rate(rows),
    )


def _counted(rows: Array) -> Array:
    """int64[rows, counters]"""
    counted = np.zeros((len(rows), len(counted_facts())), np.int64)
    for column, fact in enumerate(counted_facts()):
        counted[:, column] = rows[fact.name]
    return counted


def _paths(rows: Array) -> PathColumns:
    empty = np.zeros(0, np.int64)
    starts = np.zeros(len(rows) + 1, np.int64)
    width = np.where(rows["packets"] > 0, rows["spraying_width"], 0.0)
    counts = rows["entropy_values"].copy()
    return PathColumns("entropy", starts, empty, empty, empty, empty, empty, width, counts=counts)


if TYPE_CHECKING:
    from .feeds import Feed

SCREENS = ("diagnosis", "evidence", "qps", "hops", "events", "jobs", "doctor")
"""Those that need no packets."""


class Summary(msgspec.Struct):
    """What screens need of `summary.json`; flows stay as text until one is selected."""

    schema_version: str
    complete: bool
    captures: list[CaptureSummary]
    diagnosis: Diagnosis
    flows: list[msgspec.Raw]
    hops: list[Hop]
    capture_losses: list[CaptureLoss]
    clocks: list[TapClock]
    events: list[Event]
    events_omitted: int
    warnings: list[str]
    ranks: Ranks | None = None
    jobs: list[TrainingJob] = []


class ResultsSession(Session):
    """The results of an analysis that ended, read in its own thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_no_feed, folder.resolve().name, "results", ())
        self._folder = folder
        self._loaded: Snapshot | None = None
        self._summary_of: Summary | None = None

    def _read(self, generation: int) -> None:
        try:
            self._loaded = self._load()
        except RocescopeError as error:
            self._error = str(error)

    def _load(self) -> Snapshot:

        summary = read_summary(self._folder / SUMMARY)
        rows = read_flow_rows(self._folder / "flows", len(summary.flows))
        self._summary_of = summary
        warnings = list(summary.warnings)
        if rows.left_out:
            warnings.insert(
                0,
                f"{rows.left_out:,} of {len(rows.flows) + rows.left_out:,} flows are not shown: "
                "those with the fewest anomalies; flows/*.parquet has all flows",
            )
        taps = [tap for capture in summary.captures for tap in capture.taps]
        drops = [tap.dropped_frames for tap in taps]
        known = [count for count in drops if count is not None]
        first, last = rows.flows.first_ns, rows.flows.last_ns
        begins = [int(first.min())] if len(first) else []
        begins += [finding.from_ns for finding in summary.diagnosis.findings]
        judged = Judged.of_results(
            summary.diagnosis,
            _answered(rows.flows),
            summary.hops,
            end_ns=int(last.max(initial=0)),
            lost=_some(rows.lost),
            late=_some(rows.late),
            capture_losses=summary.capture_losses,
            clocks=summary.clocks,
            job_ranks=summary.ranks,
            jobs=summary.jobs,
        )
        return Snapshot(
            source=SourceState(
                name=self.name,
                kind=self.kind,
                running=False,
                frames=sum(capture.frames for capture in summary.captures),
                packets=sum(capture.roce_packets for capture in summary.captures),
                dropped=sum(known) if known else None,
                truncated=sum(capture.snapped_frames for capture in summary.captures),
                undecodable=sum(
                    sum(capture.undecodable_frames.values()) for capture in summary.captures
                ),
                warnings=tuple(warnings),
                tap_names=tuple(dict.fromkeys(tap.name for tap in taps)),
            ),
            addresses=rows.addresses,
            flows=rows.flows,
            paths={"entropy": rows.paths},
            events=tuple(summary.events),
            events_omitted=summary.events_omitted,
            judged=judged,
            start_ns=min(begins, default=0),
            end_ns=int(last.max()) if len(last) else 0,
        )

    def _snapshot(self) -> Snapshot:
        self._seen = self._reading()
        running, loaded = self.running, self._loaded
        if loaded is None:
            return Snapshot(replace(self._source, running=running, error=self._error))
        return replace(loaded, source=replace(loaded.source, running=running))

    def absent(self, screen: str) -> str:
        """Why a screen shows nothing; empty if it shows something."""
        if screen in SCREENS:
            return ""
        return "Results have no packets, which this screen needs: rocescope tui CAPTURE shows it."

    def diagnosis_due(self) -> bool:
        """Never: the results contain it."""
        return False

    def set_filter(self, text: str) -> bool:
        """Filter flows. UsageError if it is invalid, or of packets."""
        from .flow_filter import needs_packets

        if text.strip() and needs_packets(text.strip()):
            raise UsageError("results have no packets: filter by fields of flows")
        return super().set_filter(text)

    def _record(self, key: FlowKey) -> Flow | None:
        """The record of a listed flow; None of one that was removed from memory during the
        analysis."""
        summary, loaded = self._summary_of, self._loaded
        if summary is None or loaded is None:
            return None
        at = loaded.find(key)
        if at is None or at >= len(summary.flows):
            return None
        try:
            return msgspec.json.decode(summary.flows[at], type=Flow)
        except msgspec.MsgspecError:
            return None

    def command_line(self, key: FlowKey | None) -> str:
        """The command that shows the same."""
        return f"rocescope tui {shlex.quote(str(self._folder))}"


def _some(packets: Ints) -> dict[int, int]:
    """By flow: packets, of those flows that have some."""
    return {flow: count for flow, count in enumerate(packets.tolist()) if count > 0}


def _answered(flows: FlowColumns) -> dict[int, int]:
    """By flow of ACKs only: the flow that waits for them."""
    waited = np.flatnonzero((flows.data_packets == 0) & (flows.peer >= 0))
    return dict(zip(waited.tolist(), flows.peer[waited].tolist(), strict=True))


def read_summary(path: Path) -> Summary:
    """UnreadableInput if it is missing, damaged or of another version."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            summary = msgspec.json.decode(memoryview(data), type=Summary)
            summary.flows = [msgspec.Raw(bytes(flow)) for flow in summary.flows]
    except (OSError, ValueError, RecursionError) as error:
        why = printable(str(error))
        raise UnreadableInput(f"{path} is not the summary of an analysis: {why}") from None
    known = range(len(summary.flows))
    if any(flow not in known for finding in summary.diagnosis.findings for flow in finding.flows):
        raise UnreadableInput(f"{path} has findings of flows that it does not list")
    if summary.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        version = printable(summary.schema_version)
        raise UnreadableInput(
            f"{path} has schema version {version}: analyse the captures with this version"
        )
    return summary


def _no_feed(_: str | None) -> Feed:
    raise RocescopeError("a folder of results has no packets")

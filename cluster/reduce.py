"""Stage reduce: track and measure the rows of one partition, and store the state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
import numpy as np
import zstandard

from ..analyzer.decode.control import CmMessage
from ..analyzer.errors import RocescopeError, UsageError, too_many_flows
from ..analyzer.measures.congestion import CongestionArrays, CongestionMeasure
from ..analyzer.measures.hops.measure import HopMeasure, SampledTimes
from ..analyzer.measures.hops.state import Passing
from ..analyzer.measures.measuring import Counters, Measuring, PacketClock
from ..analyzer.measures.messages import GrantNames, MessageArrays, MessageLog, MessageStatistics
from ..analyzer.measures.mrc import EntropyValues, MrcMeasure
from ..analyzer.measures.mrc import State as MrcState
from ..analyzer.measures.path_table import LaneRecords, PathLanes, PathTable
from ..analyzer.measures.series import Activity, Idle, IdleArrays, Totals
from ..analyzer.measures.spraying import PathUsage
from ..analyzer.measures.troubles import TroubleArrays, Troubles
from ..analyzer.pipeline.options import AnalyzeOptions
from ..analyzer.pipeline.owners import read_owners
from ..analyzer.pipeline.pipeline import Pipeline
from ..analyzer.results.base import Series
from ..analyzer.results.captures import CaptureSummary, Ended
from ..analyzer.results.flow import Owner
from ..analyzer.statistics.density import Densities, DensityArrays
from ..analyzer.statistics.histogram import HistogramPool, Histograms
from ..analyzer.statistics.per_flow import CodeArrays, CodeCounts, PerFlow
from ..analyzer.statistics.windows import WindowedSums
from ..analyzer.summary.trust import check_read
from ..analyzer.track import state as st
from ..analyzer.track.batch import TrackedBatch
from ..analyzer.track.pairing import CmPairs, _Request
from ..analyzer.track.state import State
from ..analyzer.track.tracker import FlowTracker
from ..analyzer.wire.packets import PacketTable
from .captures import Captures
from .split import KEY, Outline, in_order
from .work import (
    ColumnWriter,
    Partitions,
    Plan,
    Work,
    analyze_options,
    damaged,
    opened,
    read_plan,
    record_head,
)

# The state of the measures as a file, without pickle: a table of classes, values and arrays.
#
# A file names classes by their number in `_CLASSES`; no other class is made, and no code runs.

_CLASSES: tuple[type[Any], ...] = (
    Activity, CmMessage, CmPairs, CodeArrays, CodeCounts, CongestionArrays, CongestionMeasure,
    Counters, Densities, DensityArrays, Ended, EntropyValues, FlowTracker, GrantNames,
    HistogramPool, Histograms, HopMeasure, Idle, IdleArrays, LaneRecords, Measuring,
    MessageArrays, MessageLog, MessageStatistics, MrcMeasure, MrcState, Outline, PacketClock,
    Passing, PathLanes, PathTable, PathUsage, SampledTimes, State, Totals, TroubleArrays, Troubles,
    WindowedSums, _Request,
)  # fmt: skip
_NUMBER = {kind: number for number, kind in enumerate(_CLASSES)}
_PIECE = 1 << 22
_LARGEST_HEADER = 1 << 28


def write_state(file: BinaryIO, value: object) -> None:
    """Write a value of these classes, Python's plain types and arrays; TypeError for others."""
    arrays: list[Any] = []
    tree = _described(value, arrays, {})
    header = msgspec.msgpack.encode((tree, [_form(array) for array in arrays]))
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    with compressor.stream_writer(file, closefd=False) as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for array in arrays:
            rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for start in range(0, len(rest), _PIECE):
                out.write(rest[start : start + _PIECE])


def read_state(file: BinaryIO, name: str) -> Any:
    """The value of a file that `write_state` wrote; UnreadableInput if it is damaged."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as source:
            size = int.from_bytes(_read(source, 8), "little")
            if size > _LARGEST_HEADER:
                raise damaged(name)
            tree, forms = msgspec.msgpack.decode(_read(source, size))
            arrays = []
            for form in forms:
                array = np.empty(form["shape"], _dtype(form["dtype"]))
                rest = array.reshape(-1).view(np.uint8).data
                while rest.nbytes:
                    count = source.readinto(rest[:_PIECE])
                    if not count:
                        raise damaged(name)
                    rest = rest[count:]
                arrays.append(array)
            if source.read(1):  # reads the checksum, too
                raise damaged(name)
        return _built(tree, arrays, {})
    except (zstandard.ZstdError, msgspec.DecodeError, EOFError, LookupError, TypeError, ValueError):
        raise damaged(name) from None


def _read(source: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.read(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _form(array: Any) -> dict[str, Any]:
    return {"dtype": _dtype_text(array.dtype), "shape": list(array.shape)}


def _dtype_text(dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return dtype.str
    fields = []
    for name in dtype.names:
        base, shape = dtype[name].base, dtype[name].shape
        fields.append([name, base.str, list(shape)])
    text = {"fields": fields, "align": dtype.isalignedstruct}
    if _dtype(text) != dtype:
        raise TypeError(f"no description of {dtype}")
    return text


def _dtype(text: Any) -> np.dtype[Any]:
    if isinstance(text, str):
        return np.dtype(text)
    fields = [(name, base, tuple(shape)) for name, base, shape in text["fields"]]
    return np.dtype(fields, align=text["align"])


def _described(value: Any, arrays: list[Any], known: dict[int, int]) -> Any:
    """A tree of [kind, ...]; an object or array that appears again is ["again", number]."""
    if value is None or type(value) in (bool, float, str):
        return value
    if type(value) is int:
        return value if abs(value) < 1 << 63 else ["int", str(value)]
    if isinstance(value, np.generic):
        return ["number", value.dtype.str, value.item()]
    if id(value) in known:
        return ["again", known[id(value)]]

    def inside(item: Any) -> Any:
        return _described(item, arrays, known)

    if isinstance(value, list | tuple | set | frozenset | dict) and type(value) in _CONTAINERS:
        items = list(value.items()) if isinstance(value, dict) else list(value)
        return [type(value).__name__, [inside(item) for item in items]]
    if isinstance(value, np.ndarray):
        known[id(value)] = len(known)
        arrays.append(value)
        return ["array", known[id(value)], len(arrays) - 1]
    if type(value) not in _NUMBER:
        raise TypeError(f"no place for {type(value)} in a file")
    number = _NUMBER[type(value)]
    if isinstance(value, tuple):
        return ["named", number, [inside(item) for item in value]]
    known[id(value)] = key = len(known)
    if isinstance(value, PerFlow):
        attributes = value.saved()
    else:
        attributes = {name: getattr(value, name) for name in _names(value)}
    return ["object", key, number, {name: inside(item) for name, item in attributes.items()}]


_CONTAINERS: dict[type[Any], Callable[[Any], Any]] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset, dict: dict,
}  # fmt: skip
_BY_NAME = {kind.__name__: make for kind, make in _CONTAINERS.items()}


def _names(value: Any) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(value, "__dict__", {}), *slots]


def _built(tree: Any, arrays: list[Any], known: dict[int, Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind == "int":
        return int(rest[0])
    if kind == "number":
        return np.dtype(rest[0]).type(rest[1])
    if kind == "again":
        return known[rest[0]]
    if kind == "array":
        known[rest[0]] = arrays[rest[1]]
        return arrays[rest[1]]
    if kind in _BY_NAME:
        return _BY_NAME[kind]([_built(item, arrays, known) for item in rest[0]])
    if kind == "named":
        made = _CLASSES[rest[0]]
        return made(*(_built(item, arrays, known) for item in rest[1]))
    key, number, fields = rest
    made = _CLASSES[number]
    if issubclass(made, msgspec.Struct):
        return made(**{name: _built(item, arrays, known) for name, item in fields.items()})
    built: Any = object.__new__(made)
    known[key] = built
    for name, item in fields.items():
        object.__setattr__(built, name, _built(item, arrays, known))
    if isinstance(built, PerFlow):
        built.restore()
    return built


TRACKED: dict[str, np.dtype[Any]] = {"flow": np.dtype(np.int32), "verdict": np.dtype(np.uint8)}
"""Columns of `tracked.parquet`: of each row, in order, the number of its flow and its verdict."""


class TaskPipeline(Pipeline):
    """The pipeline of the rows of stage map: of one partition, of several, or of the whole."""

    def __init__(
        self, plan: Plan, captures: Captures, options: AnalyzeOptions | None = None
    ) -> None:
        chosen = options or analyze_options(plan)
        super().__init__(chosen, captures.registry, many_taps=plan.many_taps)
        self.measuring.tracker.see_taps(captures.initial_taps)
        self.outline = Outline()
        self._plan, self._captures = plan, captures
        self._dated = 0
        """Taps that the tracker knows."""

    def read(self, numbers: Sequence[int], tracked: ColumnWriter | None = None) -> None:
        """Measure partitions; with `tracked` without hops, for which it takes the verdicts."""
        captures, measuring = self._captures, self.measuring
        measuring.follows = tracked is None
        for chunk, table, keys, messages in _chunks(self._plan, captures, numbers):
            self.date_taps(chunk)
            measuring.many_taps |= chunk >= captures.many_from
            batch = self.take_rows(table, keys, messages)
            if batch is not None and tracked is not None and measuring.many_taps:
                tracked.write({"flow": batch.flow, "verdict": batch.verdict})
            if len(measuring.tracker) > self.options.max_flows:
                raise RocescopeError(too_many_flows(self.options.max_flows, self.packets))
        self.date_taps(captures.chunks.count)
        self.outline.packets, self.outline.late_rows = self.packets, captures.late_rows

    def take_rows(
        self, table: PacketTable, keys: Any, messages: Sequence[CmMessage]
    ) -> TrackedBatch | None:
        """Measure the rows of one chunk, and note the places of new flows and events."""
        tracker, outline = self.measuring.tracker, self.outline
        flows, events = len(tracker), int(tracker.state.used[st.USED_EVENTS])
        batch = self.take(table, messages)
        if batch is None:
            return None
        if len(tracker) > flows:
            number, first = np.unique(batch.flow, return_index=True)
            first = first[number >= flows]
            outline.flow_keys = np.concatenate([outline.flow_keys, keys[first]])
        new = tracker.state.events[events : int(tracker.state.used[st.USED_EVENTS])]
        if len(new):
            places = [
                int(np.flatnonzero((table.frame_number == frame) & (table.tap == tap))[0])
                for frame, tap in zip(
                    new["frame_number"].tolist(), new["tap"].tolist(), strict=True
                )
            ]
            outline.event_keys = np.concatenate([outline.event_keys, keys[places]])
        return batch

    def date_taps(self, chunk: int) -> None:
        """Tell the tracker of the taps known before a chunk since when they run."""
        captures, measuring, taps = self._captures, self.measuring, self.registry.taps
        while self._dated < len(taps) and captures.known_taps[self._dated].chunk <= chunk:
            tap = self._dated
            if not measuring.filtered:
                if taps[tap].leaves_out_roce:
                    measuring.captured_in_part = True
                else:
                    first_ns = captures.known_taps[taps.clock(tap)].first_ns
                    if first_ns is not None:
                        measuring.tracker.see_taps(tap + 1)
                        measuring.tracker.ran(tap, first_ns)
            self._dated += 1
        if measuring.filtered:  # then rows show the taps, also those of other partitions
            seen = int(captures.taps_in_rows[chunk])
            measuring.tracker.see_taps(seen)
            for tap in range(seen):
                if (row_ns := captures.known_taps[tap].row_ns) is not None:
                    measuring.tracker.ran(tap, row_ns)

    def summarize_captures(self, complete: bool) -> list[CaptureSummary]:
        """Those of stage map, with the names of sessions and links, and the bytes that tracking
        counts."""
        tap_names = self.registry.tap_names
        series = self.measuring.totals.series(tap_names)
        summaries = [
            _of_whole(
                capture.summary, {name: tap_names[tap] for name, tap in tap_of_name.items()}, series
            )
            for capture, tap_of_name in zip(
                self._captures.captures, self._captures.tap_of_name, strict=True
            )
        ]
        check_read(summaries, complete)
        return summaries

    def find_host_owners(self) -> dict[int, Owner]:
        """Processes by flow index, as comments of the captures name them."""
        comments = (line for capture in self._captures.captures for line in capture.owner_comments)
        return read_owners(comments, self.measuring.tracker, self.registry.endpoints)

    def uses_outer_labels(self) -> bool:
        """Whether entropy values use the flow label of the outer header."""
        return any(capture.outer_labels for capture in self._captures.captures)


def reduce_partition(folder: str, number: int) -> None:
    """Task `number` of stage reduce, unless it is done. UsageError while map is not complete."""
    work = Work(folder)
    plan = read_plan(work)
    if not 0 <= number < plan.partitions:
        raise UsageError(f"reduce {number}: the plan has partitions 0 to {plan.partitions - 1}")
    if work.done(plan.digest, "reduce", number):
        return
    captures = Captures(work, plan)
    with work.task("reduce", str(number)) as into:
        tracked = ColumnWriter(os.path.join(into, "tracked.parquet"), TRACKED)
        pipeline = TaskPipeline(plan, captures)
        pipeline.read([number], tracked)
        tracked.close()
        outline, tracker = pipeline.outline, pipeline.measuring.tracker
        state = tracker.state
        outline.flows = tracker.flows
        outline.events = state.events[: len(outline.event_keys)]
        outline.used = state.used
        for name, value in (("outline", outline), ("state", pipeline.measuring)):
            with open(os.path.join(into, name), "xb") as file:
                file.write(record_head(plan.digest))
                write_state(file, value)
                file.flush()
                os.fsync(file.fileno())


def read_result(work: Work, plan: Plan, number: int, name: str) -> Any:
    """`outline` or `state` of a task of stage reduce. UsageError if there is none."""
    if not work.done(plan.digest, "reduce", number):
        raise UsageError(f"stage reduce is not complete: run reduce {number}")
    path = work.path("reduce", str(number), name)
    with opened(path, plan.digest) as file:
        return read_state(file, path)


def _chunks(
    plan: Plan, captures: Captures, numbers: Sequence[int]
) -> Iterator[tuple[int, PacketTable, Any, list[CmMessage]]]:
    """(chunk, rows, KEY[rows], CM messages) of partitions, in order."""
    partitions = Partitions(plan.partitions)
    messages: dict[int, list[CmMessage]] = {}
    if len(numbers) == plan.partitions:
        for chunk, message in captures.cm:
            messages.setdefault(chunk, []).append(message)
    else:
        for number in numbers:
            messages |= captures.messages_of(partitions, number)
    pending = sorted(messages)
    nothing = PacketTable.zeros(0)
    for chunk, table, keys in merged_rows([captures.rows(number) for number in numbers]):
        while pending and pending[0] < chunk:
            early = pending.pop(0)
            yield early, nothing, np.zeros(0, KEY), messages[early]
        if pending and pending[0] == chunk:
            pending.pop(0)
        yield chunk, table, keys, messages.get(chunk, [])
    for late in pending:
        yield late, nothing, np.zeros(0, KEY), messages[late]


def merged_rows(
    streams: Sequence[Iterator[tuple[int, PacketTable, Any]]],
) -> Iterator[tuple[int, PacketTable, Any]]:
    """Rows of several partitions in the order of one process."""
    heads = [next(stream, None) for stream in streams]
    while True:
        chunk = min((head[0] for head in heads if head is not None), default=None)
        if chunk is None:
            return
        of_chunk = []
        for index, head in enumerate(heads):
            if head is not None and head[0] == chunk:
                of_chunk.append(head)
                heads[index] = next(streams[index], None)
        if len(of_chunk) == 1:
            yield of_chunk[0]
            continue
        table = PacketTable.concatenate([table for _, table, _ in of_chunk])
        keys = np.concatenate([keys for _, _, keys in of_chunk])
        order = in_order(keys)
        yield chunk, table.take(order), keys[order]


def _of_whole(summary: CaptureSummary, names: Mapping[str, str], series: Series) -> CaptureSummary:
    """The summary with the names of sessions and links, and with the bytes that tracking counts."""
    taps = []
    for tap in summary.taps:
        name = names.get(tap.name, tap.name)
        wire_bytes = sum(series.tap_wire_bytes.get(name, series.wire_bytes))
        taps.append(msgspec.structs.replace(tap, name=name, wire_bytes=wire_bytes))
    return msgspec.structs.replace(summary, taps=taps)

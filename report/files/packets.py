"""The packet table as Arrow record batches, and Parquet and Arrow files of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...analyzer.capture.source import Capture, open_capture
from ...analyzer.decode.decoder import Decoder
from ...analyzer.decode.extensions import ExtensionTable, decode_extensions
from ...analyzer.decode.grants import GRANT_COLUMNS
from ...analyzer.decode.mrc import MRC_COLUMNS
from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.filtering.compiler import Ranks
from ...analyzer.pipeline.captures import find_ranks
from ...analyzer.pipeline.options import AnalyzeOptions, Progress
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...analyzer.wire.packets import COLUMNS, PacketTable
from ...analyzer.wire.registry import Registry
from ...kernels.kernel import Ints
from ...version import VERSION

if TYPE_CHECKING:
    from ...analyzer.filtering.compiler import Filter


_TEXT_COLUMNS = {
    "src": "source address",
    "dst": "destination address",
    "tap": "name of the vantage point",
}
"""Columns that are an index in the table and the text of that index in a file."""
_EXTENSION_COLUMNS = tuple(
    ("extensions_present" if field.name == "present" else field.name, field)
    for field in dataclasses.fields(ExtensionTable)
)


class BatchWriter(Protocol):
    """A Parquet or Arrow IPC writer of pyarrow."""

    def write_batch(self, batch: Any) -> None:
        """Write one record batch: one row group."""


_RANK_COLUMNS = {
    "src_rank": (pa.int32(), "sender", "rank that sends the packet, from logs; null: not known"),
    "dst_rank": (pa.int32(), "receiver", "rank that receives it, from logs; null: not known"),
    "comm": (pa.string(), "comm", "communicator, from logs; null: not known"),
}
"""Type, column of `Ranks` and meaning."""


def packet_schema(extensions: bool = False, ranks: bool = False) -> Any:
    """The pyarrow.Schema of exported packets; the metadata of each field has unit and meaning."""
    fields = []
    for c in COLUMNS:
        text = _TEXT_COLUMNS.get(c.name)
        kind = pa.string() if text else pa.from_numpy_dtype(c.dtype)
        fields.append(_field(c.name, kind, c.unit, text or c.meaning))
    if extensions:
        for name, field in _EXTENSION_COLUMNS:
            about = field.metadata
            kind = pa.from_numpy_dtype(about["dtype"])
            fields.append(_field(name, kind, about["unit"], about["meaning"]))
        for column in MRC_COLUMNS:
            kind = pa.from_numpy_dtype(np.dtype(column.dtype))
            meaning = f"MRC: {column.meaning}" + (f" [{column.source}]" if column.source else "")
            fields.append(_field(f"mrc_{column.name}", kind, column.unit, meaning))
        for grant in GRANT_COLUMNS:
            kind = pa.from_numpy_dtype(np.dtype(grant.dtype))
            meaning = f"NCCL's grant: {grant.meaning}; null: no grant, or not known"
            added = _field(f"grant_{grant.name}", kind, grant.unit, meaning)
            fields.append(added.with_nullable(True))
    if ranks:
        for name, (kind, _, meaning) in _RANK_COLUMNS.items():
            fields.append(_field(name, kind, "", meaning).with_nullable(True))
    return pa.schema(fields, metadata={"rocescope.version": VERSION})


def _field(name: str, kind: Any, unit: str, meaning: str) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"unit": unit, "meaning": meaning})


def record_batch(
    table: PacketTable,
    extensions: ExtensionTable | None,
    registry: Registry,
    ranks: Ranks | None = None,
) -> Any:
    """The rows of a table as a pyarrow.RecordBatch of `packet_schema`."""
    addresses = pa.array(registry.endpoints.texts(), pa.string())
    tap_names = pa.array(registry.tap_names, pa.string())
    texts = {"src": addresses, "dst": addresses, "tap": tap_names}
    arrays = []
    for name, values in table.columns():
        if name in texts:
            arrays.append(texts[name].take(pa.array(values)))
        else:
            arrays.append(pa.array(np.ascontiguousarray(values)))
    if extensions is not None:
        arrays += [pa.array(getattr(extensions, field.name)) for _, field in _EXTENSION_COLUMNS]
        arrays += _mrc_arrays(table)
        arrays += _grant_arrays(table)
    if ranks is not None:
        arrays += _rank_arrays(ranks, ranks.columns(table, registry))
    schema = packet_schema(extensions is not None, ranks is not None)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rank_arrays(ranks: Ranks, columns: dict[str, Ints]) -> Iterator[Any]:
    names = pa.array(ranks.comms, pa.string())
    for kind, column, _ in _RANK_COLUMNS.values():
        values = columns[column]
        numbers = pa.array(values, pa.int32(), mask=values < 0)
        yield names.take(numbers) if kind == pa.string() else numbers


def _mrc_arrays(table: PacketTable) -> list[Any]:
    """The fields of the MRC packets, 0 in all other rows."""
    arrays = []
    for column in MRC_COLUMNS:
        values = np.zeros(len(table), column.dtype)
        if table.mrc is not None:
            values[table.mrc["row"]] = table.mrc[column.name]
        arrays.append(pa.array(values))
    return arrays


def _grant_arrays(table: PacketTable) -> list[Any]:
    """The fields of grants, null in all other rows."""
    arrays = []
    for column in GRANT_COLUMNS:
        values = np.full(len(table), column.unknown, column.dtype)
        if table.grants is not None:
            values[table.grants["row"]] = table.grants[column.name]
        arrays.append(pa.array(values, mask=values == column.unknown))
    return arrays


@contextmanager
def batch_writer(
    file: BinaryIO, format: str, extensions: bool, ranks: bool = False
) -> Iterator[BatchWriter]:
    """A writer of record batches to `file`, as `parquet` or `arrow` (IPC file, Feather 2)."""
    schema = packet_schema(extensions, ranks)
    if format == "parquet":
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(file, schema, options=options) as writer:
            yield writer


# Packets of captures as a stream of Arrow record batches, in the memory of one batch.

_BATCH_FRAMES = 1 << 20


@dataclass(frozen=True, slots=True)
class PacketOptions:
    """Selection of packets and columns."""

    filter: str | None = None
    """Packets to keep, as a filter expression."""
    extensions: bool = False
    """Add a column for every field of the extension headers."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    icrc: bool = False
    """Verify the ICRC of frames captured in full; the result is the column icrc_state."""
    tap_names: Mapping[str, str] = field(default_factory=dict)
    """Names of the taps of captures, by path; others have the names of their files."""
    job_logs: tuple[str, ...] = ()
    """Logs of the job: they add columns of ranks, and filters may name these."""
    ethers: Mapping[int, str] = field(default_factory=dict)
    """Names of Ethernet addresses, see `registry.read_ethers`."""


class PacketStream:
    """The packets of captures, file by file; each iteration reads the files again.

    warnings and damaged_places belong to the last iteration.
    """

    def __init__(
        self,
        paths: Sequence[str],
        options: PacketOptions,
        columns: Sequence[str] | None = None,
        report: Callable[[Progress], None] | None = None,
    ) -> None:
        self._paths = paths
        self._options = options
        self._report = report
        self._filter: Filter | None = None
        if options.filter is not None:
            from ...analyzer.filtering.compiler import Filter

            self._filter = Filter(options.filter)
        self._ranks: Ranks | None = None
        self.schema: Any = packet_schema(options.extensions, bool(options.job_logs))
        self._columns = columns
        if columns is not None:
            for name in columns:
                if name not in self.schema.names:
                    raise UsageError(
                        f"no column {name!r}; columns are {', '.join(self.schema.names)}"
                    )
            self.schema = pa.schema([self.schema.field(name) for name in columns])
        self.warnings: list[str] = []
        self.damaged_places = 0

    def __iter__(self) -> Iterator[Any]:
        """pyarrow.RecordBatch objects; UnreadableInput if there was no RoCE packet."""
        options = self._options
        registry = Registry(ethers=options.ethers)
        decoder = Decoder(registry, udp_ports=options.udp_ports, check_icrc=options.icrc)
        taps = decoder.registry.taps
        self.warnings, self.damaged_places = [], 0
        self._learn_ranks()
        for path in self._paths:
            name = options.tap_names.get(path)
            with open_capture(path, taps, batch_frames=_BATCH_FRAMES, tap_name=name) as capture:
                yield from self._batches(capture, decoder)
                self.warnings += capture.warnings
                self.damaged_places += capture.damaged_places
        if not decoder.counters.roce_packets():
            found = ", ".join(f"{n} {what}" for what, n in decoder.counters.contents()[:6])
            raise UnreadableInput(
                f"no RoCE packet was found; the capture has {found or 'no frames'}"
            )

    def _learn_ranks(self) -> None:
        """Read the captures once for the ranks of their flows, if columns or the filter need it."""
        options = self._options
        field = None if self._filter is None else self._filter.of_job
        if self._ranks is not None or not (options.job_logs or field):
            return
        self._ranks, notes = find_ranks(
            self._paths,
            AnalyzeOptions(
                udp_ports=options.udp_ports, tap_names=options.tap_names, job_logs=options.job_logs
            ),
            self._report,
            needed_by=field,
        )
        self.warnings += notes

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches for any library that reads the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self, capture: Capture, decoder: Decoder) -> Iterator[Any]:
        for frames in capture.batches():
            table = decoder.decode(frames)
            if self._filter is not None:
                table = table.take(self._filter.mask(table, decoder.registry, self._ranks))
            more = None
            if self._options.extensions:
                more = decode_extensions(table, frames.data, frames.base_offset)
            if len(table):
                ranks = self._ranks if self._options.job_logs else None
                batch = record_batch(table, more, decoder.registry, ranks)
                yield batch if self._columns is None else batch.select(list(self._columns))
            if self._report:
                self._report(
                    Progress(
                        capture.name,
                        capture.bytes_read,
                        capture.total_bytes,
                        capture.frames,
                        decoder.counters.roce_packets(),
                    )
                )

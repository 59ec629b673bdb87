"""Packets of captures as a stream of Arrow record batches, in the memory of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...analyzer.capture.source import Capture, open_capture
from ...analyzer.decode.decoder import Decoder
from ...analyzer.decode.headers.extensions import decode_extensions
from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.filtering.ranks import Ranks
from ...analyzer.pipeline.captures import find_ranks
from ...analyzer.pipeline.options import AnalyzeOptions, Progress
from ...analyzer.wire.ports import ROCE_UDP_PORT
from ...analyzer.wire.registry import Registry
from .packets import packet_schema, record_batch

if TYPE_CHECKING:
    from ...analyzer.filtering.compiler import Filter

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
        decoder = Decoder(Registry(), udp_ports=options.udp_ports, check_icrc=options.icrc)
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

"""`rocescope export`: the packet table as a file for notebooks and databases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..analyzer.errors import UnreadableInput, UsageError
from .options.inputs import check_inputs, input_name
from .options.output import whole_file
from .options.parameter import Parameter
from .options.progress import ProgressAs, Report, shown

if TYPE_CHECKING:
    from ..analyzer.capture.source import Capture
    from ..analyzer.decode.decoder import Decoder
    from ..analyzer.filtering import Filter
    from ..analyzer.wire.endpoints import Endpoints
    from ..analyzer.wire.frames import Taps
    from ..report.files.packets import BatchWriter

_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_BATCH_FRAMES = 1 << 20


def export(
    *files: Annotated[Path, Parameter(required=True, name="FILE")],
    output: Annotated[Path, Parameter(alias="-o")],
    extensions: Annotated[bool, Parameter(show_default=False)] = False,
    filter: str | None = None,
    udp_port: Annotated[list[int] | None, Parameter(negative="")] = None,
    icrc: Annotated[bool, Parameter(show_default=False)] = False,
    progress: ProgressAs = "auto",
) -> int:
    """Write one row per RoCE packet to a Parquet or Arrow file.

    Parameters
    ----------
    files
        Captures, as for analyze; their packets follow each other file by file.
    output
        The file to write: .parquet, .arrow or .feather.
    extensions
        Add a column for every field of the extension headers.
    filter
        Export only packets that pass, see analyze.
    udp_port
        Count this UDP destination port as RoCE besides 4791; may be repeated.
    icrc
        Verify the invariant CRC: fills the column icrc_state.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    format = _FORMATS.get(output.suffix.lower())
    if format is None:
        raise UsageError(f"the name {output} has to end in .parquet, .arrow or .feather")
    check_inputs(files)

    from ..analyzer.capture.source import open_capture
    from ..analyzer.decode.decoder import Decoder
    from ..analyzer.filtering import compile_filter
    from ..analyzer.wire.endpoints import Endpoints
    from ..analyzer.wire.frames import Taps
    from ..report.files.packets import batch_writer

    keep = compile_filter(filter) if filter is not None else None
    endpoints, taps = Endpoints(), Taps()
    decoder = Decoder(endpoints, taps, udp_ports=(4791, *(udp_port or ())), check_icrc=icrc)
    warnings: list[str] = []
    damaged = False
    with (
        shown(progress) as report,
        whole_file(output) as file,
        batch_writer(file, format, extensions) as writer,
    ):
        run = _Export(decoder, endpoints, taps, keep, extensions, writer, report)
        for path in files:
            with open_capture(input_name(path), taps, batch_frames=_BATCH_FRAMES) as capture:
                run.add(capture)
                warnings += capture.warnings
                damaged = damaged or capture.damaged_places > 0
        if not decoder.counters.roce_packets():
            found = ", ".join(f"{n} {what}" for what, n in decoder.counters.contents()[:6])
            raise UnreadableInput(f"no RoCE packet was found; there are: {found or 'no frames'}")
    for warning in warnings:
        print(f"rocescope: {warning}", file=sys.stderr)
    return UnreadableInput.exit_code if damaged else 0


class _Export:
    """What all files of one export share."""

    def __init__(
        self,
        decoder: Decoder,
        endpoints: Endpoints,
        taps: Taps,
        keep: Filter | None,
        extensions: bool,
        writer: BatchWriter,
        report: Report | None,
    ) -> None:
        self._decoder = decoder
        self._endpoints = endpoints
        self._taps = taps
        self._keep = keep
        self._extensions = extensions
        self._writer = writer
        self._report = report

    def add(self, capture: Capture) -> None:
        """Write the packets of a capture."""
        from ..analyzer.analysis.progress import Progress
        from ..analyzer.decode.headers.extensions import decode_extensions
        from ..report.files.packets import record_batch

        for frames in capture.batches():
            table = self._decoder.decode(frames)
            if self._keep is not None:
                table = table.take(self._keep.mask(table, self._endpoints, self._taps))
            more = None
            if self._extensions:
                more = decode_extensions(table, frames.data, frames.base_offset)
            if len(table):
                batch = record_batch(table, more, self._endpoints, self._taps)
                self._writer.write_batch(batch)
            if self._report:
                packets = self._decoder.counters.roce_packets()
                self._report(
                    Progress(
                        capture.name,
                        capture.bytes_read,
                        capture.total_bytes,
                        capture.frames,
                        packets,
                    )
                )

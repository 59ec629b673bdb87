"""`rocescope export`: the packet table as a file for notebooks and databases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from ..analyzer.errors import UnreadableInput, UsageError
from ..analyzer.words import printable
from ..report.whole_file import whole_file
from .options.parameter import Parameter
from .options.progress import ProgressAs, shown
from .options.reading import SELECTION, Selection
from .options.taps import NAMING, Naming

_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}


def export(
    *files: Annotated[Path, Parameter(name="FILE")],
    output: Annotated[Path, Parameter(alias="-o")],
    extensions: Annotated[bool, Parameter(show_default=False)] = False,
    selection: Annotated[Selection, Parameter(name="*")] = SELECTION,
    naming: Annotated[Naming, Parameter(name="*")] = NAMING,
    icrc: Annotated[bool, Parameter(show_default=False)] = False,
    progress: ProgressAs = "auto",
) -> int:
    """Write one row per RoCE packet to a Parquet or Arrow file.

    Parameters
    ----------
    files
        Captures, as for analyze; packets are written file by file.
    output
        The file to write: .parquet, .arrow or .feather.
    extensions
        Add a column for every field of the extension headers.
    icrc
        Verify the invariant CRC and fill the column icrc_state.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    format = _FORMATS.get(output.suffix.lower())
    if format is None:
        raise UsageError(f"--output {output} must end in .parquet, .arrow or .feather")
    paths, tap_names = naming.captures(files)

    from ..report.files.packet_stream import PacketOptions, PacketStream
    from ..report.files.packets import batch_writer

    options = PacketOptions(selection.filter, extensions, selection.udp_ports, icrc, tap_names)
    with (
        shown(progress) as report,
        whole_file(output) as file,
        batch_writer(file, format, extensions) as writer,
    ):
        packets = PacketStream(paths, options, report=report)
        for batch in packets:
            writer.write_batch(batch)
    for warning in packets.warnings:
        print(f"rocescope: {printable(warning)}", file=sys.stderr)
    return UnreadableInput.exit_code if packets.damaged_places else 0

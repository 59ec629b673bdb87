"""`rocescope export` and `schema`: packets as a table, frames with comments, JSON Schemas."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from ..analyzer.errors import UnreadableInput, UsageError
from ..analyzer.words import printable
from ..report.whole_file import whole_file
from .options.progress import ProgressAs, shown
from .options.reading import JOB_LOGS, SELECTION, JobLogs, Selection
from .options.taps import NAMING, Naming
from .table import Parameter

_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}


def export(
    *files: Annotated[Path, Parameter(name="FILE")],
    output: Annotated[Path, Parameter(alias="-o")],
    pcapng: Annotated[bool, Parameter(show_default=False)] = False,
    extensions: Annotated[bool, Parameter(show_default=False)] = False,
    selection: Annotated[Selection, Parameter(name="*")] = SELECTION,
    naming: Annotated[Naming, Parameter(name="*")] = NAMING,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    icrc: Annotated[bool, Parameter(show_default=False)] = False,
    progress: ProgressAs = "auto",
) -> int:
    """Write packets as a table, or frames with findings as comments for Wireshark.

    Parameters
    ----------
    files
        Captures, as for analyze; packets are written in the order of the files.
    output
        The file to write: .parquet, .arrow or .feather; with --pcapng any name.
    pcapng
        Write all frames with comments on late, lost and retransmitted packets, see
        docs/wireshark.md.
    extensions
        Add a column for every field of the extension headers.
    icrc
        Verify the invariant CRC and fill the column icrc_state.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    if pcapng:
        if extensions or icrc:
            raise UsageError("--extensions and --icrc are columns: --pcapng writes frames")
        return _pcapng(files, output, selection, naming, logs.patterns(), progress)
    format = _FORMATS.get(output.suffix.lower())
    if format is None:
        raise UsageError(
            f"--output {output} must end in .parquet, .arrow or .feather; frames need --pcapng"
        )
    paths, tap_names = naming.captures(files)

    from ..report.files.packets import PacketOptions, PacketStream, batch_writer

    options = PacketOptions(
        selection.filter,
        extensions,
        selection.udp_ports,
        icrc,
        tap_names,
        logs.patterns(),
        naming.addresses(),
    )
    with (
        shown(progress) as report,
        whole_file(output) as file,
        batch_writer(file, format, extensions, bool(options.job_logs)) as writer,
    ):
        packets = PacketStream(paths, options, report=report)
        for batch in packets:
            writer.write_batch(batch)
    for warning in packets.warnings:
        print(f"rocescope: {printable(warning)}", file=sys.stderr)
    return UnreadableInput.exit_code if packets.damaged_places else 0


def _pcapng(
    files: Sequence[Path],
    output: Path,
    selection: Selection,
    naming: Naming,
    logs: tuple[str, ...],
    progress: ProgressAs,
) -> int:
    paths, tap_names = naming.captures(files)
    if any(output.exists() and output.samefile(path) for path in paths if path != "-"):
        raise UsageError(f"--output {output} is one of the captures: give another name")

    from ..analyzer.pipeline.options import AnalyzeOptions
    from ..report.wireshark.export import export_pcapng

    options = AnalyzeOptions(
        filter=selection.filter,
        udp_ports=selection.udp_ports,
        tap_names=tap_names,
        ethers=naming.addresses(),
        job_logs=logs,
    )
    with shown(progress) as report, whole_file(output) as file:
        done = export_pcapng(paths, options, file, report)
    for warning in done.warnings:
        print(f"rocescope: {printable(warning)}", file=sys.stderr)
    print(f"rocescope: {done.outcome}", file=sys.stderr)
    return UnreadableInput.exit_code if done.damaged_places else 0


# `rocescope schema`: the JSON Schema of the results.


def schema(
    command: Annotated[
        Literal[
            "analyze",
            "analyze-live",
            "check",
            "compare",
            "replay",
            "sweep",
            "recover-seed",
            "discover",
            "trace",
            "trace-follow",
            "aggregate",
        ],
        Parameter(name="COMMAND"),
    ] = "analyze",
    /,
) -> None:
    """Print the JSON Schema of the results of a command.

    Parameters
    ----------
    command
        Command of the results; analyze-live is one interval of `analyze --live`, trace-follow one
        event of `trace --follow`.
    """
    import msgspec

    from ..report.files.results import json_schema

    text = msgspec.json.format(msgspec.json.encode(json_schema(command)), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()

"""Writing the results of replay, sweep and recover-seed in the format asked for."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from ...analyzer.errors import UsageError
from .inputs import STANDARD_OUTPUT
from .output import whole_file, write_results

if TYPE_CHECKING:
    from ...report.files.replay import Result

Format: TypeAlias = Literal["table", "json", "csv", "parquet", "arrow"]
ColorWhen: TypeAlias = Literal["auto", "always", "never"]
_SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "table",
}


def chosen_format(format: Format | None, output: Path | None) -> Format:
    """The format, by the suffix of the file unless it is given. UsageError when neither tells,
    or binary data would go to a terminal."""
    to_file = output is not None and output != STANDARD_OUTPUT
    if format is None:
        if output is None or not to_file:
            return "table"
        if output.suffix.lower() not in _SUFFIXES:
            raise UsageError(
                f"the suffix of {output} does not tell a format: "
                "give --format table, json, csv, parquet or arrow"
            )
        return _SUFFIXES[output.suffix.lower()]
    if format in ("parquet", "arrow") and not to_file and sys.stdout.isatty():
        raise UsageError(f"--format {format} is not text: give -o FILE or redirect it")
    return format


def write_result(
    result: Result, format: Format, output: Path | None, table: Callable[[TextIO], None]
) -> None:
    """Write a result; `table` prints it for people."""
    if output == STANDARD_OUTPUT:
        output = None
    if format != "table":
        from ...report.files.replay import encode

        write_results(encode(result, format), output)
        if format != "json":  # a table has no place for them
            for warning in result.warnings:
                print(f"rocescope: {warning}", file=sys.stderr)
    else:
        write_table(output, table)


def write_table(output: Path | None, table: Callable[[TextIO], None]) -> None:
    """Let `table` print to a file that appears whole, or to standard output."""
    if output is None:
        table(sys.stdout)
        return
    with whole_file(output) as file:
        text = io.TextIOWrapper(file, "utf-8", write_through=True)
        table(text)
        text.detach()

"""Where results go: standard output, or a file that appears complete or not at all."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO, TypeAlias

from ...analyzer.errors import UsageError
from ...analyzer.words import printable
from ...report.whole_file import whole_file
from .inputs import STANDARD_OUTPUT
from .parameter import Parameter
from .progress import ProgressAs

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
_BINARY = ("parquet", "arrow")


@dataclass(frozen=True)
class Output:
    """How a command prints its results.

    Parameters
    ----------
    format
        table: the report for people; json: everything; csv, parquet, arrow: rows for other tools.
    output
        Write to this file; its suffix selects the format unless --format is given.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    color
        Colour in the report; auto follows the terminal, NO_COLOR and FORCE_COLOR.
    """

    format: Annotated[Format | None, Parameter(alias="-f")] = None
    output: Annotated[Path | None, Parameter(alias="-o")] = None
    progress: ProgressAs = "auto"
    color: ColorWhen = "auto"

    @property
    def file(self) -> Path | None:
        """The file to write; None is standard output."""
        return None if self.output == STANDARD_OUTPUT else self.output

    def chosen(self) -> Format:
        """The format. UsageError if neither option selects it, or for binary data on a terminal."""
        if self.format is not None:
            if self.format in _BINARY and self.file is None and sys.stdout.isatty():
                raise UsageError(f"--format {self.format} is binary: give -o FILE or redirect it")
            return self.format
        if self.file is None:
            return "table"
        suffix = self.file.suffix.lower()
        if suffix not in _SUFFIXES:
            raise UsageError(
                f"the suffix of {self.file} is not that of a format: "
                "give --format table, json, csv, parquet or arrow"
            )
        return _SUFFIXES[suffix]

    def write(
        self,
        table: Callable[[TextIO], None],
        encode: Callable[[Format], bytes],
        warnings: Sequence[str] = (),
    ) -> None:
        """Print with `table`, or write what `encode` returns for the other formats.

        warnings go to standard error with formats of rows, which cannot contain them.
        """
        format = self.chosen()
        if format == "table":
            write_table(table, self.file)
            return
        write_results(encode(format), self.file)
        if format != "json":
            for warning in warnings:
                print(f"rocescope: {printable(warning)}", file=sys.stderr)

    def write_replay(self, result: Result, table: Callable[[TextIO], None]) -> None:
        """`write` of a result of a replay, sweep, trace or recovered seed."""

        def encoded(format: Format) -> bytes:
            from ...report.files.replay import encode

            return encode(result, format)

        self.write(table, encoded, result.warnings)


OUTPUT = Output()


def write_results(data: bytes, output: Path | None) -> None:
    """Write encoded results to a file, or to standard output."""
    if output is not None:
        with whole_file(output) as file:
            file.write(data)
        return
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED a write may take only a part
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def write_table(table: Callable[[TextIO], None], output: Path | None) -> None:
    """Print with `table` to a file that appears complete, or to standard output."""
    if output is None:
        table(sys.stdout)
        return
    with whole_file(output) as file:
        text = io.TextIOWrapper(file, "utf-8", write_through=True)
        table(text)
        text.detach()

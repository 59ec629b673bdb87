"""Where results go, and how an analysis ends."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ...analyzer.errors import UnreadableInput, UsageError, require
from ...analyzer.summary.trust import ENDED_EARLY
from ...analyzer.words import printable
from ...report.whole_file import whole_file
from ..table import Parameter
from .progress import ProgressAs
from .taps import STANDARD_OUTPUT

if TYPE_CHECKING:
    from ...analyzer.results.analysis import Analysis
    from ...report.files.results import Result
    from ...report.terminal.page import Page


# How an analysis ends: the exit code and the message on standard error.

_INTERRUPTED = 130
_LIMITED = 1


def exit_code(analysis: Analysis) -> int:
    """The exit code of a complete, interrupted or damaged input, with a message if not complete."""
    limits = [w for w in analysis.warnings if w.startswith(ENDED_EARLY)]
    if limits:
        print(f"rocescope: {limits[0]}; the report covers what was read", file=sys.stderr)
        return _LIMITED
    if not analysis.complete:
        print("rocescope: interrupted; the report covers the packets read so far", file=sys.stderr)
        return _INTERRUPTED
    damaged = [printable(capture.name) for capture in analysis.captures if capture.damaged_places]
    if damaged:
        print(
            f"rocescope: {', '.join(damaged)} could not be read completely; "
            "the report covers the rest",
            file=sys.stderr,
        )
        return UnreadableInput.exit_code
    return 0


Format: TypeAlias = Literal["table", "json", "csv", "parquet", "arrow"]
ReportFormat: TypeAlias = Literal["table", "html", "json", "csv", "parquet", "arrow"]
ColorWhen: TypeAlias = Literal["auto", "always", "never"]
_MOST_WARNINGS = 20
_SUFFIXES: dict[str, ReportFormat] = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "table",
    ".html": "html",
    ".htm": "html",
}
_BINARY = ("parquet", "arrow")


@dataclass(frozen=True)
class ReportOutput:
    """How a command with an HTML report prints its results.

    Parameters
    ----------
    format
        table: the report for people; html: the report with charts, one file for a browser; json:
        everything; csv, parquet, arrow: rows for other tools.
    output
        Write to this file; its suffix selects the format unless --format is given.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    color
        Colour in the report; auto follows the terminal, NO_COLOR and FORCE_COLOR.
    """

    format: Annotated[ReportFormat | None, Parameter(alias="-f")] = None
    output: Annotated[Path | None, Parameter(alias="-o")] = None
    progress: ProgressAs = "auto"
    color: ColorWhen = "auto"

    @property
    def file(self) -> Path | None:
        """The file to write; None is standard output."""
        return None if self.output == STANDARD_OUTPUT else self.output

    def chosen(self) -> ReportFormat:
        """The format.

        UsageError if neither option selects it, for binary data on a terminal, and if the package
        that writes the format is missing.
        """
        chosen = self._chosen()
        if chosen in _BINARY:
            require("pyarrow")
        return chosen

    def _chosen(self) -> ReportFormat:
        if self.format is not None:
            if self.format in _BINARY and self.file is None and sys.stdout.isatty():
                raise UsageError(f"--format {self.format} is binary: give -o FILE or redirect it")
            return self.format
        if self.file is None:
            return "table"
        suffix = self.file.suffix.lower()
        return self._of_suffix(suffix, "table, html, json, csv, parquet or arrow")

    def _of_suffix(self, suffix: str, formats: str) -> ReportFormat:
        if suffix not in _SUFFIXES:
            raise UsageError(
                f"the suffix of {self.file} is not that of a format: give --format {formats}"
            )
        return _SUFFIXES[suffix]

    def folder(self) -> Path | None:
        """The folder of results that `-o` names: without a suffix and without --format."""
        file = self.file if self.format is None else None
        return file if file is not None and not file.suffix else None

    def check_folder(self) -> None:
        """UsageError for a suffix that is not that of a format: it may have been meant as that of a
        folder."""
        if self.format is None and self.file is not None and self.file.suffix:
            suffix = self.file.suffix.lower()
            if suffix not in _SUFFIXES:
                raise UsageError(
                    f"-o {self.file}: {suffix} is not the suffix of a format; a folder of results"
                    f" has a name without one: -o {self.file.with_suffix('')}"
                )

    def write(
        self,
        fill: Callable[[Page], object],
        encode: Callable[[ReportFormat], bytes],
        warnings: Sequence[str] = (),
    ) -> None:
        """Print a page that `fill` fills, or write what `encode` returns for the other formats.

        warnings go to standard error with formats of rows, which cannot contain them.
        """
        format = self.chosen()
        if format == "table":
            write_page(fill, self.file, self.color)
            return
        write_results(encode(format), self.file)
        if format not in ("json", "html"):
            for warning in warnings[:_MOST_WARNINGS]:
                print(f"rocescope: {printable(warning)}", file=sys.stderr)
            if (left := len(warnings) - _MOST_WARNINGS) > 0:
                print(f"rocescope: and {left:,} more: --format json has all", file=sys.stderr)

    def write_replay(
        self,
        result: Result,
        fill: Callable[[Page], object],
        html: Callable[[], bytes] | None = None,
    ) -> None:
        """`write` of a result of a replay, sweep, trace or recovered seed; html: its report."""

        def encoded(format: ReportFormat) -> bytes:
            if format == "html" and html is not None:
                return html()
            from ...report.files.results import encode

            return encode(result, format)

        self.write(fill, encoded, result.warnings)


@dataclass(frozen=True)
class Output(ReportOutput):
    """How a command without an HTML report prints its results.

    Parameters
    ----------
    format
        table: the report for people; json: everything; csv, parquet, arrow: rows for other tools.
    """

    format: Annotated[Format | None, Parameter(alias="-f")] = None

    def chosen(self) -> Format:
        kind = super().chosen()
        assert kind != "html"
        return kind

    def _of_suffix(self, suffix: str, formats: str) -> ReportFormat:
        formats = formats.replace("html, ", "")
        return super()._of_suffix("" if _SUFFIXES.get(suffix) == "html" else suffix, formats)


OUTPUT, REPORT_OUTPUT = Output(), ReportOutput()


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


def write_page(fill: Callable[[Page], object], output: Path | None, color: ColorWhen) -> None:
    """Write a page to a file that appears complete, or to standard output."""
    from ...report.terminal.page import page_on  # loads rich

    if output is None:
        fill(page_on(sys.stdout, color))
        return
    with whole_file(output) as file:
        text = io.TextIOWrapper(file, "utf-8", write_through=True)
        fill(page_on(text, color))
        text.detach()

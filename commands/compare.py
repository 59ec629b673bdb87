"""`rocescope compare`: what changed from one analysis to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..analyzer.errors import UnreadableInput, UsageError
from ..analyzer.words import printable
from .options.output import REPORT_OUTPUT, ReportFormat, ReportOutput, exit_code
from .options.progress import shown
from .options.taps import NAMING, Naming, captures_in, input_name
from .table import Parameter

if TYPE_CHECKING:
    from ..analyzer.results.analysis import Analysis
    from ..report.terminal.page import Page

_WORSE = 1


def compare(
    before: Annotated[Path, Parameter(name="BEFORE")],
    after: Annotated[Path, Parameter(name="AFTER")],
    /,
    *,
    fail_on: Literal["worse"] | None = None,
    top: int = 20,
    naming: Annotated[Naming, Parameter(name="*")] = NAMING,
    to: Annotated[ReportOutput, Parameter(name="*")] = REPORT_OUTPUT,
) -> int:
    """Compare two analyses: findings that are new, worse, better or gone, and key figures.

    Parameters
    ----------
    before
        The JSON of rocescope analyze, a capture, or a folder of captures of several taps.
    after
        The later analysis, in the same forms as BEFORE.
    fail_on
        worse: exit with code 1 when a critical finding or warning is new or worse, or a figure of
        all flows is worse. Lower goodput alone does not count if findings are only better or gone.
    top
        Rows of the table of flows.
    """
    chosen = to.chosen()
    if chosen not in ("table", "html", "json"):
        raise UsageError(f"compare prints table, html or json, not {chosen}")
    if top < 1:
        raise UsageError("--top must be 1 or more")
    sides = [_captures(path) for path in (before, after)]
    names = naming.of_each(sides)
    first, second = (
        _read(*each, naming, to) for each in zip((before, after), sides, names, strict=True)
    )

    from ..report.compare import compare as compared

    result = compared(first, second, (str(before), str(after)))

    def fill(page: Page) -> None:
        from ..report.terminal.compare import fill_comparison

        fill_comparison(page, result, top)

    def encoded(format: ReportFormat) -> bytes:
        if format == "html":
            from ..report.html.documents import comparison_html

            return comparison_html(result, top)
        from ..report.files import encode_json

        return encode_json(result)

    to.write(fill, encoded)
    code = max(exit_code(first), exit_code(second))
    return code or (_WORSE if fail_on and result.change == "worse" else 0)


def _captures(path: Path) -> list[Path]:
    """The captures of an input; none for JSON."""
    if not path.is_dir():
        return [] if _is_json(path) else [path]
    return captures_in(path, "*")


def _read(
    path: Path, captures: list[Path], tap_names: dict[str, str], naming: Naming, to: ReportOutput
) -> Analysis:
    """The analysis of captures, or that in a JSON file."""
    if not captures:
        return _decoded(path)
    from ..analyzer.pipeline import captures as engine
    from ..analyzer.pipeline.options import AnalyzeOptions

    paths, options = (
        [input_name(file) for file in captures],
        AnalyzeOptions(tap_names=tap_names, ethers=naming.addresses()),
    )
    with shown(to.progress) as report:
        return engine.analyze(paths, options, report)


def _is_json(path: Path) -> bool:
    if not path.is_file():  # a pipe: reading from it would take its start away
        return False
    with path.open("rb") as file:
        return file.read(1) == b"{"


def _decoded(path: Path) -> Analysis:
    import msgspec

    from ..analyzer.results.analysis import SCHEMA_VERSION, Analysis

    try:
        analysis = msgspec.json.decode(path.read_bytes(), type=Analysis)
    except msgspec.MsgspecError as error:
        reason = f"{path} is not the JSON of rocescope analyze, schema version {SCHEMA_VERSION}"
        raise UnreadableInput(f"{reason}: {error}") from None
    if analysis.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        version = printable(analysis.schema_version)
        raise UnreadableInput(
            f"{path} has schema version {version}: analyse the captures with this version"
        )
    return analysis

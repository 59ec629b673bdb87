"""The results of an analysis as a folder, for what does not fit into one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..analyzer.errors import RocescopeError
from ..analyzer.results.analysis import Analysis, Hop
from ..analyzer.results.flow import Flow
from .files import encode, encode_json, versions
from .files.tables import (
    ParquetRecords,
    encode_records,
    flow_columns,
    record_columns,
    step_columns,
    step_rows,
)
from .html.documents import analysis_html
from .whole_file import whole_file

SUMMARY, LISTED, ENDED, HOPS, STEPS = (
    "summary.json",
    "flows/0.parquet",
    "flows/ended.parquet",
    "hops.parquet",
    "steps.parquet",
)


class OutFolder:
    """Collects the results of one analysis."""

    def __init__(self, folder: Path, spill: ExitStack) -> None:
        self._folder, self._spill = folder, spill
        self._rows: ParquetRecords | None = None

    def ended(self, flows: Iterable[Flow]) -> None:
        """Write the rows of flows that leave memory."""
        if self._rows is None:
            file = self._spill.enter_context(whole_file(self._folder / ENDED))
            self._rows = rows = ParquetRecords(file, flow_columns(), versions())
            self._spill.push(lambda *_: _give_up(rows))
        self._rows.write(flows)

    def write(self, analysis: Analysis, top: int = 20, sort: bool = False) -> None:
        """Write the result. top, sort: of the tables of the report."""
        with ExitStack() as files:  # they get their names in reverse order
            files.enter_context(whole_file(self._folder / SUMMARY)).write(encode_json(analysis))
            contents = {
                LISTED: encode(analysis, "parquet"),
                HOPS: encode_records(record_columns(Hop), analysis.hops, "parquet"),
                STEPS: encode_records(step_columns(), step_rows(analysis.jobs), "parquet"),
                "findings.json": encode_json(analysis.diagnosis),
                "report.html": analysis_html(analysis, top, sort),
            }
            for name, data in contents.items():
                files.enter_context(whole_file(self._folder / name)).write(data)
            if self._rows is None:
                (self._folder / ENDED).unlink(missing_ok=True)
            else:
                self._rows.close()
            self._spill.close()


def _give_up(rows: ParquetRecords) -> None:
    with suppress(OSError):
        rows.close()


@contextmanager
def out_folder(folder: Path) -> Iterator[OutFolder]:
    """A folder of results: `summary.json` (all that `--format json` has), `findings.json`,
    `flows/0.parquet`, `hops.parquet`, `steps.parquet` (of training jobs) and `report.html`; with
    flows removed from memory, their rows as `flows/ended.parquet`.

    The files get their names when all are written, `summary.json` last. RocescopeError if they
    cannot be written.
    """
    try:
        (folder / "flows").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RocescopeError(f"cannot write {folder}: {reason}") from None
    with ExitStack() as spill:
        yield OutFolder(folder, spill)

"""The results of an analysis as a folder, for what does not fit into one file."""

from __future__ import annotations

from pathlib import Path

from ..analyzer.errors import RocescopeError
from ..analyzer.results.analysis import Analysis
from ..analyzer.results.hops import Hop
from .files import encode, encode_json
from .files.columns import record_columns
from .files.rows import encode_records
from .html.documents.analysis import analysis_html
from .whole_file import whole_file


def write_folder(analysis: Analysis, folder: Path, top: int = 20, sort: bool = False) -> None:
    """Write `summary.json` (all that `--format json` has), `findings.json`, `flows/0.parquet`,
    `hops.parquet` and `report.html`; each appears complete, `summary.json` last.

    top, sort: of the tables of the report. RocescopeError if the folder cannot be written.
    """
    try:
        (folder / "flows").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RocescopeError(f"cannot write {folder}: {reason}") from None
    contents = {
        "flows/0.parquet": encode(analysis, "parquet"),
        "hops.parquet": encode_records(record_columns(Hop), analysis.hops, "parquet"),
        "findings.json": encode_json(analysis.diagnosis),
        "report.html": analysis_html(analysis, top, sort),
        "summary.json": encode_json(analysis),
    }
    for name, data in contents.items():
        with whole_file(folder / name) as file:
            file.write(data)

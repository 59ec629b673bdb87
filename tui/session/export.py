"""Export files: tables, the report, the whole analysis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ...analyzer.errors import RocescopeError
from ...report.whole_file import whole_file
from .session import Session


def save(path: Path, write: Callable[[BinaryIO], object]) -> Path:
    """Write a whole file or none. RocescopeError names the reason."""
    if not path.parent.is_dir():
        raise RocescopeError(f"there is no folder {path.parent}")
    with whole_file(path) as file:
        write(file)
    return path


def analysis_file(session: Session, suffix: str) -> bytes:
    """The whole analysis as `.json`, `.parquet`, `.csv` or `.arrow`; its report as `.html`."""
    analysis = session.analysis()
    if suffix == ".html":
        from ...report.html.documents.analysis import analysis_html

        return analysis_html(analysis)
    from ...report.files import encode

    return encode(analysis, suffix.removeprefix("."))


FORMATS: dict[str, str] = {
    ".pcapng": "packets with comments: those shown, or of the marked or selected flows",
    ".json": "the whole analysis, for programs",
    ".parquet": "one row per flow",
    ".csv": "one row per flow",
    ".html": "the report with charts, for a browser",
}

"""Export files: tables, pictures, the whole analysis."""

from __future__ import annotations

import html
import io
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
    """The whole analysis as `.json`, `.parquet`, `.csv` or `.arrow`."""
    from ...report.files import encode

    analysis = session.analysis()
    return encode(analysis, suffix.removeprefix("."))


def html_page(session: Session, picture: str) -> bytes:
    """One page without scripts: the screen and the report of `rocescope analyze`."""
    from rich.console import Console

    from ...report.terminal.report import print_report

    text = io.StringIO()
    print_report(session.analysis(), text, color="never")
    console = Console(file=io.StringIO(), record=True, width=110, highlight=False)
    console.print(text.getvalue(), markup=False)
    report = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    title = html.escape(session.name)
    style = "body{background:#10141a;color:#d7dde5;margin:2em}svg{max-width:100%}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}</style><h1>{title}</h1>{picture}{report}</html>\n"
    ).encode()


FORMATS: dict[str, str] = {
    ".pcapng": "packets with comments: those shown, or of the marked or selected flows",
    ".json": "the whole analysis, for programs",
    ".parquet": "one row per flow",
    ".csv": "one row per flow",
    ".svg": "this screen as a picture",
    ".html": "this screen and the report, for a browser",
}

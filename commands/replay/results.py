"""Results of replay, sweep and recover-seed in the chosen format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from ..options.output import Format, Output

if TYPE_CHECKING:
    from ...report.files.replay import Result


def write_result(result: Result, to: Output, table: Callable[[TextIO], None]) -> None:
    """Write a result; `table` prints the report."""

    def encoded(format: Format) -> bytes:
        from ...report.files.replay import encode

        return encode(result, format)

    to.write(table, encoded, result.warnings)

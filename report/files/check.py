"""Results of `rocescope check`: everything as JSON, the violations as CSV, Parquet or Arrow."""

from __future__ import annotations

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.check import Check
from ...analyzer.results.conformance import Conformance, Violation
from . import encode_json
from .columns import record_columns
from .rows import encode_records


def encode_check(analysis: Analysis, format: str) -> bytes:
    """The part of an analysis that `check` prints.

    `json`, or a row per violation as `csv`, `parquet` or `arrow`.
    """
    assert isinstance(analysis.conformance, Conformance)
    if format != "json":
        return encode_records(record_columns(Violation), analysis.conformance.violations, format)
    return encode_json(
        Check(
            version=analysis.version,
            complete=analysis.complete,
            captures=analysis.captures,
            conformance=analysis.conformance,
            warnings=analysis.warnings,
        )
    )

"""Results for other programs: JSON, CSV, Parquet and Arrow."""

from __future__ import annotations

from ...analyzer.results.analysis import Analysis


def encode(analysis: Analysis, format: str) -> bytes:
    """The analysis as `json`, `csv`, `parquet` or `arrow`; ValueError for anything else."""
    match format:
        case "json":
            from .text import encode_json as encoder
        case "csv":
            from .text import encode_csv as encoder
        case "parquet":  # pyarrow takes longer to load than most captures take to analyse
            from .arrow import encode_parquet as encoder
        case "arrow":
            from .arrow import encode_arrow as encoder
        case _:
            raise ValueError(f"unknown format {format!r}")
    return encoder(analysis)

"""`rocescope schema`: what the JSON output looks like, for programs."""

from __future__ import annotations

import sys


def schema() -> None:
    """Print the JSON Schema of the results of analyze."""
    import msgspec

    from ..analyzer.report.text import json_schema

    text = msgspec.json.format(msgspec.json.encode(json_schema()), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()

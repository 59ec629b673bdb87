"""`rocescope schema`: the JSON Schema of the results."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from .options.parameter import Parameter


def schema(
    command: Annotated[
        Literal[
            "analyze",
            "analyze-live",
            "check",
            "compare",
            "replay",
            "sweep",
            "recover-seed",
            "discover",
            "trace",
            "trace-follow",
            "aggregate",
        ],
        Parameter(name="COMMAND"),
    ] = "analyze",
    /,
) -> None:
    """Print the JSON Schema of the results of a command.

    Parameters
    ----------
    command
        Command of the results; analyze-live is one interval of `analyze --live`, trace-follow one
        event of `trace --follow`.
    """
    import msgspec

    from ..report.files.schemas import json_schema

    text = msgspec.json.format(msgspec.json.encode(json_schema(command)), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()

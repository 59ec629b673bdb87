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
        ],
        Parameter(name="COMMAND"),
    ] = "analyze",
    /,
) -> None:
    """Print the JSON Schema of the results of a command.

    Parameters
    ----------
    command
        Command of the results; analyze-live is one interval of `analyze --live`.
    """
    import msgspec

    if command == "analyze":
        from ..report.files.text import json_schema

        found = json_schema()
    elif command == "analyze-live":
        from ..report.files.text import interval_schema

        found = interval_schema()
    elif command == "check":
        from ..report.files.check import check_schema

        found = check_schema()
    elif command == "compare":
        from ..report.files.text import comparison_schema

        found = comparison_schema()
    else:
        from ..report.files.replay import json_schemas

        found = json_schemas()[command]
    text = msgspec.json.format(msgspec.json.encode(found), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()

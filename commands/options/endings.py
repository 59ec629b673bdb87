"""How an analysis ends: the exit code and the message on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...analyzer.errors import UnreadableInput

if TYPE_CHECKING:
    from ...analyzer.results.analysis import Analysis

_INTERRUPTED = 130


def exit_code(analysis: Analysis) -> int:
    """The exit code of a complete, interrupted or damaged input, with a message if not complete."""
    if not analysis.complete:
        print("rocescope: interrupted; the report covers the packets read so far", file=sys.stderr)
        return _INTERRUPTED
    damaged = [capture.name for capture in analysis.captures if capture.damaged_places]
    if damaged:
        print(
            f"rocescope: {', '.join(damaged)} could not be read completely; "
            "the report covers the rest",
            file=sys.stderr,
        )
        return UnreadableInput.exit_code
    return 0

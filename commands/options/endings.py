"""How an analysis ends: the exit code and the message on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...analyzer.errors import UnreadableInput
from ...analyzer.summary.trust import ENDED_EARLY
from ...analyzer.words import printable

if TYPE_CHECKING:
    from ...analyzer.results.analysis import Analysis

_INTERRUPTED = 130
_LIMITED = 1


def exit_code(analysis: Analysis) -> int:
    """The exit code of a complete, interrupted or damaged input, with a message if not complete."""
    limits = [w for w in analysis.warnings if w.startswith(ENDED_EARLY)]
    if limits:
        print(f"rocescope: {limits[0]}; the report covers what was read", file=sys.stderr)
        return _LIMITED
    if not analysis.complete:
        print("rocescope: interrupted; the report covers the packets read so far", file=sys.stderr)
        return _INTERRUPTED
    damaged = [printable(capture.name) for capture in analysis.captures if capture.damaged_places]
    if damaged:
        print(
            f"rocescope: {', '.join(damaged)} could not be read completely; "
            "the report covers the rest",
            file=sys.stderr,
        )
        return UnreadableInput.exit_code
    return 0

"""Files as arguments."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ...analyzer.errors import UnreadableInput, UsageError

STANDARD_INPUT = Path("/dev/stdin")
STANDARD_OUTPUT = Path("/dev/stdout")
_CAPTURE = re.compile(r".*\.(pcap|pcapng|cap)\d*(\.(gz|zst|xz|lz4))?")
"""Names of captures; tcpdump -C puts a number behind."""


def input_name(path: Path) -> str:
    """The name of an input for the reader; - is standard input."""
    return "-" if path == STANDARD_INPUT else str(path)


def captures_in(folder: Path, pattern: str = "**/*") -> list[Path]:
    """The captures in a folder, by their names, sorted; UnreadableInput without any."""
    found = [p for p in sorted(folder.glob(pattern)) if _CAPTURE.fullmatch(p.name) and p.is_file()]
    if not found:
        raise UnreadableInput(f"{folder} contains no capture (*.pcap, *.pcapng, *.cap)")
    return found


def expanded(files: Sequence[Path]) -> list[Path]:
    """Files, with the captures of folders, and those that patterns such as 'ring/*/*.pcap' name."""
    found: list[Path] = []
    for path in files:
        if os.path.isdir(path):  # Path.is_dir() fails in a folder that may not be searched
            found += captures_in(path)
        elif glob.has_magic(str(path)) and not os.path.exists(path):
            matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
            found += expanded(matches) if matches else [path]
        else:
            found.append(path)
    return found


def check_inputs(files: Sequence[Path]) -> None:
    """UsageError when a file is given twice: its packets would count as copies."""
    repeated = {path for path in files if files.count(path) > 1}
    if repeated:
        raise UsageError(f"{min(repeated)} is given twice; its packets would count as copies")


def check_terminal() -> None:
    """UsageError if standard input or output is not a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "the terminal UI needs a terminal for input and output; rocescope analyze"
            " works without one"
        )

"""Files as arguments."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ...analyzer.capture.stored import SCHEME, is_stored, objects_at
from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.words import printable

STANDARD_INPUT = Path("/dev/stdin")
STANDARD_OUTPUT = Path("/dev/stdout")
_STORED = str(Path(SCHEME)) + "/"
"""How the address of an object begins as a path."""
_CAPTURE = re.compile(r".*\.(pcap|pcapng|cap)\d*(\.(gz|zst|xz|lz4))?", re.IGNORECASE | re.DOTALL)
"""Names of captures; tcpdump -C puts a number behind."""


def input_name(path: Path) -> str:
    """The name of an input for the reader; - is standard input."""
    if (text := str(path)).startswith(_STORED):
        return SCHEME + text.removeprefix(_STORED)
    return "-" if path == STANDARD_INPUT else text


def captures_in(folder: Path, pattern: str = "**/*") -> list[Path]:
    """The captures in a folder, by their names, sorted; how many other files are left out is said.

    UnreadableInput without any capture, or for a folder that cannot be read.
    """
    try:
        os.listdir(folder)
        files = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    except OSError as error:
        raise UnreadableInput(f"{printable(str(folder))}: {error.strerror}") from None
    return _captures_of(files, str(folder))


def _captures_of(files: Sequence[Path], folder: str) -> list[Path]:
    captures = [path for path in files if _CAPTURE.fullmatch(path.name)]
    shown = printable(folder)
    if not captures:
        raise UnreadableInput(f"{shown} contains no capture (*.pcap, *.pcapng, *.cap)")
    if others := len(files) - len(captures):
        what = "1 file is" if others == 1 else f"{others} files are"
        print(f"rocescope: {shown}: {what} not named like a capture: ignored", file=sys.stderr)
    return captures


def expanded(files: Sequence[Path]) -> list[Path]:
    """Files, with the captures of folders and of prefixes in an object store, and those that
    patterns such as 'ring/*/*.pcap' name."""
    inputs: list[Path] = []
    for path in files:
        if is_stored(name := input_name(path)):
            objects = objects_at(name)
            inputs += [path] if objects == [name] else _captures_of([*map(Path, objects)], name)
        elif os.path.isdir(path):  # Path.is_dir() fails in a folder that may not be searched
            inputs += captures_in(path)
        elif glob.has_magic(str(path)) and not os.path.exists(path):
            matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
            inputs += expanded(matches) if matches else [path]
        else:
            inputs.append(path)
    return inputs


def check_inputs(files: Sequence[Path]) -> None:
    """UsageError when a file is given twice, also by a link: its packets would count as copies."""
    known: dict[Path | tuple[int, int], Path] = {}
    for path in files:
        identity = _identity(path)
        if (other := known.get(identity)) is not None:
            what = f"{path} is" if other == path else f"{other} and {path} are one file, which is"
            raise UsageError(f"{what} given twice; its packets would count as duplicates")
        known[identity] = path


def _identity(path: Path) -> Path | tuple[int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return path
    return status.st_dev, status.st_ino


def check_terminal() -> None:
    """UsageError if standard input or output is not a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "the terminal UI needs a terminal for input and output; rocescope analyze"
            " works without one"
        )

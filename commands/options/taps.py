"""Capture files as arguments, and the names of their taps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ...analyzer.errors import UsageError
from .inputs import check_inputs, input_name
from .parameter import Parameter


@dataclass(frozen=True)
class Naming:
    """Names of taps.

    Parameters
    ----------
    tap
        NAME=FILE: the name of the tap of a capture, such as leaf1-spine3=up3.pcap; may be repeated.
    """

    tap: Annotated[list[str] | None, Parameter(negative="")] = None

    def captures(
        self, files: Sequence[Path], none_needed: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """The captures `files` and those that only --tap gives, and the names of taps by capture.

        A FILE of --tap without a folder is also the capture with this file name. UsageError for
        a file that is given twice or is not there, for a name of two taps, and for no capture
        unless none is needed.
        """
        check_inputs(files)
        every, names = list(files), dict[Path, str]()
        for name, given in map(_parsed, self.tap or ()):
            path = next(iter(_fitting(given, files)), given)
            if not path.exists():
                raise UsageError(f"--tap {name}={given}: there is no file {given}")
            if path not in every:
                every.append(path)
            _add(names, path, name)
        _check_different(every, names)
        if not every and not none_needed:
            raise UsageError("no capture is given: name one or more files")
        return [input_name(path) for path in every], _by_input(names)

    def of_each(self, sides: Sequence[Sequence[Path]]) -> list[dict[str, str]]:
        """The names of taps by capture for each side of a comparison.

        A FILE without a folder is the capture with this file name on each side. UsageError for
        a file that no side has, and for a name of two taps of one side.
        """
        found: list[dict[Path, str]] = [{} for _ in sides]
        for name, given in map(_parsed, self.tap or ()):
            fitting = [_fitting(given, files) for files in sides]
            if not any(fitting):
                raise UsageError(f"--tap {name}={given}: no capture that is compared has this name")
            for names, paths in zip(found, fitting, strict=True):
                for path in paths:
                    _add(names, path, name)
        for names, files in zip(found, sides, strict=True):
            _check_different(files, names)
        return [_by_input(names) for names in found]


NAMING = Naming()


def check_uncombined(names: Mapping[str, str], concat: bool) -> None:
    """UsageError for names of taps with --concat."""
    if names and concat:
        raise UsageError("--tap cannot be combined with --concat: all files are one tap")


def _parsed(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name.strip() and equals and file):
        raise UsageError(f"--tap {text} is not NAME=FILE: write --tap leaf1-spine3=up3.pcap")
    return name.strip(), Path(file)


def _fitting(given: Path, files: Sequence[Path]) -> list[Path]:
    """The capture with this path or file name; UsageError for several."""
    if given in files:
        return [given]
    named = [path for path in files if path.name == str(given)]
    if len(named) > 1:
        raise UsageError(f"--tap: {given} is {named[0]} or {named[1]}: give it with its folder")
    return named


def _add(names: dict[Path, str], path: Path, name: str) -> None:
    if path in names:
        raise UsageError(f"--tap {name}={path}: the tap of this file is already {names[path]}")
    names[path] = name


def _by_input(names: Mapping[Path, str]) -> dict[str, str]:
    return {input_name(path): name for path, name in names.items()}


def _check_different(files: Sequence[Path], names: Mapping[Path, str]) -> None:
    """UsageError when a name that was given is also the name of another tap."""
    taken: dict[str, Path] = {path.name: path for path in files if path not in names}
    for path, name in names.items():
        if name in taken:
            raise UsageError(f"--tap: {taken[name]} and {path} have the same name {name}")
        taken[name] = path

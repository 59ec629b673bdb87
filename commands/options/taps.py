"""Capture files as arguments, and the names of their taps."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ...analyzer.capture.stored import is_stored
from ...analyzer.errors import UsageError
from .inputs import check_inputs, expanded, input_name
from .parameter import Parameter


@dataclass(frozen=True)
class Naming:
    """Names of taps.

    Parameters
    ----------
    tap
        NAME=FILE: the name of the tap of a capture, such as leaf1-spine3=up3.pcap; may be repeated.
        Or a regular expression with the group tap, such as 'ring/(?P<tap>[^/]+)/' (quoted): files
        with the same tap in their paths are the ring files of this tap.
    """

    tap: Annotated[list[str] | None, Parameter(negative="")] = None
    _takes_rings = False
    _takes_objects = False

    @property
    def rings(self) -> str | None:
        """The expression that names the taps of ring files; UsageError for a wrong one."""
        texts = [text for text in self.tap or () if _TAP in text]
        if not texts:
            return None
        if len(self.tap or ()) > 1:
            raise UsageError(f"--tap {texts[0]} names all taps: give no other --tap")
        try:
            with warnings.catch_warnings(action="ignore"):  # of what may mean something else later
                re.compile(texts[0])
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"--tap {texts[0]} is not a regular expression: {error}") from None
        return texts[0]

    def captures(
        self, files: Sequence[Path], none_needed: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """The captures `files` and those that only --tap gives, and the names of taps by capture.

        Of folders, the captures in them; of patterns, the files with such names. A FILE of --tap
        without a folder is also the capture with this file name. UsageError for a file that is
        given twice or is not there, for a name of two taps, for a file that the expression of
        `rings` does not name, and for no capture unless none is needed.
        """
        if not self._takes_objects and any(is_stored(input_name(path)) for path in files):
            raise UsageError("s3:// is for analyze and cluster plan: copy the captures to files")
        files = expanded(files)
        check_inputs(files)
        if (rings := self.rings) is not None:
            if not self._takes_rings:
                raise UsageError(
                    "--tap with an expression is for analyze, tui and cluster plan: give NAME=FILE"
                )
            if not files:
                raise UsageError("no capture is given: name files, folders or patterns")
            return [input_name(path) for path in files], _by_expression(rings, files)
        every, names = list(files), dict[Path, str]()
        for name, given in map(_parsed, self.tap or ()):
            path = next(iter(_fitting(given, files)), given)
            if not path.exists() and not is_stored(input_name(path)):
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
        if self.rings is not None:
            raise UsageError("compare takes --tap NAME=FILE, not an expression")
        by_side: list[dict[Path, str]] = [{} for _ in sides]
        for name, given in map(_parsed, self.tap or ()):
            fitting = [_fitting(given, files) for files in sides]
            if not any(fitting):
                raise UsageError(f"--tap {name}={given}: no capture that is compared has this name")
            for names, paths in zip(by_side, fitting, strict=True):
                for path in paths:
                    _add(names, path, name)
        for names, files in zip(by_side, sides, strict=True):
            _check_different(files, names)
        return [_by_input(names) for names in by_side]


NAMING = Naming()
_TAP = "(?P<tap>"


def check_uncombined(names: Mapping[str, str], concat: bool) -> None:
    """UsageError for names of taps with --concat."""
    if names and concat:
        raise UsageError("--tap cannot be combined with --concat: all files are one tap")


def _by_expression(rings: str, files: Sequence[Path]) -> dict[str, str]:
    names: dict[str, str] = {}
    for path in files:
        match = re.search(rings, input_name(path))
        if match is None and not path.exists():
            raise UsageError(f"there is no file {path}")
        if match is None or not match["tap"]:
            raise UsageError(
                f"--tap {rings} names no tap of {path}: change the expression, or omit the file"
            )
        names[input_name(path)] = _text(match["tap"])
    return names


def _parsed(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name.strip() and equals and file):
        raise UsageError(
            f"--tap {text} is not NAME=FILE, such as leaf1-spine3=up3.pcap, "
            "nor an expression with a group tap, such as 'ring/(?P<tap>[^/]+)/'"
        )
    return _text(name.strip()), Path(file)


def _text(name: str) -> str:
    """Results are UTF-8; other bytes of names stay different."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


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

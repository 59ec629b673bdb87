"""Options of captures: taps, names of addresses, and how addresses map to the hosts of a fabric."""

from __future__ import annotations

import glob
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ...analyzer.capture.stored import SCHEME, is_stored, objects_at
from ...analyzer.errors import UnreadableInput, UsageError
from ...analyzer.words import printable
from ..table import Parameter

# Files as arguments.

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


@dataclass(frozen=True)
class Naming:
    """Names of taps and links.

    Parameters
    ----------
    tap
        NAME=FILE: the name of the tap of a capture, such as leaf1-spine3=up3.pcap; may be repeated.
        Or a regular expression with the group tap, such as 'ring/(?P<tap>[^/]+)/' (quoted): files
        with the same tap in their paths are the ring files of this tap.
    ethers
        Names of Ethernet addresses, as in ethers(5): a line has an address and a device, or
        DEVICE:PORT. They name the links of a capture with several.
    """

    tap: Annotated[list[str] | None, Parameter(negative="")] = None
    ethers: Path | None = None
    _takes_rings = False
    _takes_objects = False

    def addresses(self) -> dict[int, str]:
        """The names in the file of `--ethers`. UsageError as `read_ethers`."""
        if self.ethers is None:
            return {}
        from ...analyzer.wire.registry import read_ethers

        return read_ethers(str(self.ethers))

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


if TYPE_CHECKING:
    from ...replay.compare.request import ReplayRequest


@dataclass(frozen=True)
class Mapped:
    """How captures are read and mapped to hosts.

    Parameters
    ----------
    map
        How addresses of the capture map to hosts: exact, order, subnets, or a YAML file.
    filter
        Only packets that pass this filter, in Wireshark syntax, see docs/filter.md.
    concat
        The files are parts of one rotated capture; without this option each file is a vantage point
        (tap).
    """

    map: str = "exact"
    filter: str | None = None
    concat: Annotated[bool, Parameter(show_default=False)] = False


@dataclass(frozen=True)
class Offered(Naming, Mapped):
    """Captured or generated traffic.

    Parameters
    ----------
    pattern
        Generated traffic in place of captures: permutation:qps=4,message-size=1MiB,acks=no.
    """

    pattern: str | None = None

    def request(self, fabric: str, files: Sequence[Path], **options: Any) -> ReplayRequest:
        """The request of a replay with this traffic. UsageError as `Naming.captures`."""
        from ...replay.compare.request import ReplayRequest

        captures, tap_names = self.captures(files, none_needed=True)
        check_uncombined(tap_names, self.concat)
        return ReplayRequest(
            fabric,
            captures=tuple(captures),
            pattern=self.pattern or "",
            tap_names=tap_names,
            ethers=self.addresses(),
            map=self.map,
            filter=self.filter,
            concat=self.concat,
            **options,
        )


@dataclass(frozen=True)
class Captured(Naming, Mapped):
    """Captured traffic on the hosts of a fabric."""


MAPPED, OFFERED, CAPTURED = Mapped(), Offered(), Captured()

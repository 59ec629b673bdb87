"""Answers of devices that the project never met: strict parsers, and what they could not read.

Every answer is read on its own. One that is not as documented becomes a line that names the
command and what was expected; what the other answers show is kept. An odd row costs this row: rows
are counted, and the first is told. A route whose next hops are odd leads nowhere: without it, a
shorter prefix would give wrong paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import MAX_BYTES, check_size, read_saved
from ...analyzer.words import printable
from ...replay.fabrics.devices import (
    Advertised,
    Device,
    Interface,
    NextHop,
    Resolved,
    Route,
    Routes,
    limits_of,
)
from ...replay.fabrics.fabric import Address, Network, parse_address, parse_interface, parse_network
from ...replay.fabrics.sources import Source, load_json
from .dialect import Question

_T = TypeVar("_T")
_MOST_SHOWN = 240
_PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9/:._-]{0,47}")
_MAC = re.compile(r"[0-9a-f]{12}")
_MOST_WEIGHT = 65536
_MOST_RATE = 10**15
"""Bits per second; a port of more does not exist, and int64 holds it."""
_MOST_LINES = 4_000_000
"""Of a text: of 256 MiB, lines of a table have 70 characters."""
_MOST_CHARACTERS = 1000
"""Of a line."""
_MOST_ODD = 100_000
"""Rows; an answer with more is another thing than its command prints, and is not used."""
_DIGITS = re.compile(r"[0-9]{1,18}")
UNKNOWN_HOP = NextHop(None, "", weight=-1)
"""Of a row that is not as documented: a group without one of its members would give wrong paths, so
that its route leads nowhere."""
Table: TypeAlias = tuple[Sequence[Route], Sequence[str]]
"""Routes, and remarks on them."""


class Told(NamedTuple):
    """What the answers of a device tell; None where nothing was answered or readable."""

    interfaces: Sequence[Interface] | None = None
    table: Table | None = None
    """Of IPv4."""
    table6: Table | None = None
    advertised: Sequence[Advertised] | None = None
    resolved: Sequence[Resolved] | None = None
    system: str = ""
    """Its own name, which its LLDP neighbours hear."""
    chassis: str = ""
    """Its own chassis id."""
    hash_in_words: str = ""
    default_table: bool = False
    """Whether the routes are those of the default table alone, and ports do not show their VRF."""


class Rows:
    """Counts the rows of an answer: `with rows:` reads one, and a row that is not as documented
    costs this row alone."""

    def __init__(self) -> None:
        self.read, self.odd = 0, 0
        self.first = ""
        """The error of the first odd row."""
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        self._depth -= 1
        if error is None:
            self.read += not self._depth  # parts of a row are no rows
        elif isinstance(error, UsageError):
            self.add(error)
            return True
        return False

    def add(self, error: UsageError) -> None:
        """Count a row that is not as documented."""
        self.first = self.first or str(error)
        self.odd += 1
        if self.odd > _MOST_ODD:
            raise UsageError(f"{self.first}; more than {_MOST_ODD:,} odd rows")

    def each(self, items: Iterable[Source], parse: Callable[[Entry], _T]) -> list[_T]:
        """What `parse` makes of every object that is as documented."""
        contents = []
        for item in items:
            with self:
                contents.append(parse(Entry(item)))
        return contents

    def named(
        self, items: Iterable[tuple[str, Source]], parse: Callable[[str, Entry], _T]
    ) -> list[_T]:
        """The same of objects with names."""
        contents = []
        for name, item in items:
            with self:
                contents.append(parse(name, Entry(item)))
        return contents

    def value(self, parse: Callable[[], _T], unknown: _T) -> _T:
        """A value without which its row still has a meaning; `unknown` if it is odd."""
        with self:
            return parse()
        return unknown


class Reader:
    """Reads the answers of one device."""

    def __init__(
        self,
        folder: Path,
        name: str,
        questions: Sequence[Question],
        most_bytes: int = MAX_BYTES,
    ) -> None:
        """most_bytes: of an answer."""
        self._folder, self._name, self._most_bytes = folder, name, most_bytes
        self._commands = {question.suffix: question.command for question in questions}
        self._problems: list[str] = []

    def json(self, suffix: str, parse: Callable[[Source], _T]) -> _T | None:
        """What `parse` makes of a JSON answer; None without one, or if it is not as expected."""
        return self.json_rows(suffix, lambda top, _: parse(top))

    def text(self, suffix: str, parse: Callable[[Lines], _T]) -> _T | None:
        """The same for an answer in lines of text."""
        return self.text_rows(suffix, lambda lines, _: parse(lines))

    def json_rows(self, suffix: str, parse: Callable[[Source, Rows], _T]) -> _T | None:
        """The same for an answer whose rows are read one by one; None too if all are odd."""
        return self._read(suffix, lambda file, rows: parse(load_json(file), rows))

    def text_rows(self, suffix: str, parse: Callable[[Lines, Rows], _T]) -> _T | None:
        """The same for an answer in lines of text."""
        return self._read(suffix, lambda file, rows: parse(_lines(file), rows))

    def _read(self, suffix: str, parse: Callable[[Path, Rows], _T]) -> _T | None:
        file = self._folder / f"{self._name}.{suffix}"
        if not file.exists():
            return None
        rows = Rows()
        try:
            check_size(file, self._most_bytes)
            contents = parse(file, rows)
        except UsageError as error:
            self._problem(suffix, str(error))
            return None
        if rows.odd and not rows.read:
            self._problem(suffix, rows.first)
            return None
        if rows.odd:
            more = f" and {rows.odd - 1:,} more" if rows.odd > 1 else ""
            self._problem(suffix, rows.first, f"; this row{more} left out")
        return contents

    def _problem(self, suffix: str, text: str, after: str = "") -> None:
        text = printable(text.removeprefix(f"{self._folder}/"))[:_MOST_SHOWN]
        self._problems.append(f"`{self._commands[suffix]}`: {text}{after}")

    @property
    def problems(self) -> tuple[str, ...]:
        """One line per answer that is not as expected."""
        return tuple(self._problems)

    def device(self, contents: Told) -> Device:
        """The device. UsageError if no answer is readable."""
        known = (contents.interfaces, contents.table, contents.advertised, contents.resolved)
        if all(part is None for part in known):
            raise UsageError(self._problems[0] if self._problems else "no command was answered")
        ports = contents.interfaces
        tables = {4: contents.table, 6: contents.table6}
        read = {version: part for version, part in tables.items() if part is not None}
        routes = [route for part in read.values() for route in part[0]] if 4 in read else []
        if contents.default_table and ports is not None:
            ports = _with_vrfs(ports, {route.network for route in routes}, read.keys())
        return Device(
            self._name,
            Routes(_with_source(route, ports or ()) for route in routes),
            ipv4_only=6 not in read,
            forwards=True,
            interfaces=None if ports is None else tuple(ports),
            advertised=None if contents.advertised is None else tuple(contents.advertised),
            resolved=None if contents.resolved is None else tuple(contents.resolved),
            remarks=(
                *dict.fromkeys(text for part in read.values() for text in part[1]),
                *limits_of(ports or ()),
            ),
            tables_read=4 in read,
            system=contents.system,
            chassis=contents.chassis,
            hash_in_words=contents.hash_in_words,
            unexpected=self.problems,
        )


VRF_NOT_TOLD = "(not stated)"


def _with_vrfs(
    ports: Sequence[Interface], networks: set[Network], versions: Container[int]
) -> list[Interface]:
    """The ports; those with link and addresses of whose networks the default table has none are
    in another VRF.

    versions: IP versions whose default table was read.
    """
    marked = []
    for port in ports:
        own_networks = {
            address.network
            for address in port.addresses
            if address.version in versions
            and address.network.num_addresses > 1
            and not address.is_link_local
        }
        elsewhere = port.up and own_networks and not own_networks & networks and not port.vrf
        marked.append(port._replace(vrf=VRF_NOT_TOLD) if elsewhere else port)
    return marked


def _with_source(route: Route, ports: Sequence[Interface]) -> Route:
    """A connected route with the device's own address, as its interfaces show."""
    if not route.connected or route.source is not None:
        return route
    addresses = (a.ip for p in ports if p.name == route.hops[0].device for a in p.addresses)
    in_network = (a for a in addresses if a.version == route.network.version and a in route.network)
    return replace(route, source=next(in_network, None))


class Line(NamedTuple):
    """One line of text with its place."""

    text: str
    where: str

    def wrong(self, message: str) -> UsageError:
        """An error about this line."""
        return UsageError(f"{self.where}: {message}")


class Lines:
    """The lines of a text: objects only while they are read, since an answer may have a million."""

    def __init__(self, texts: Sequence[str], file: Path) -> None:
        self._texts, self._file = texts, file

    def __iter__(self) -> Iterator[Line]:
        return map(self._line, range(len(self._texts)))

    def __reversed__(self) -> Iterator[Line]:
        return map(self._line, reversed(range(len(self._texts))))

    @property
    def first(self) -> Line:
        """The first line, for errors about the whole; it may be missing."""
        return self._line(0) if self._texts else Line("", str(self._file))

    def _line(self, i: int) -> Line:
        return Line(self._texts[i].rstrip(), f"{self._file}:{i + 1}")


def _lines(file: Path) -> Lines:
    data = read_saved(file)
    if data and not data.endswith(b"\n"):
        raise UsageError(f"{file}: ends within a line: half an answer")
    if data.count(b"\n") > _MOST_LINES:
        raise UsageError(f"{file} has more than {_MOST_LINES:,} lines")
    texts = data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []
    for i, text in enumerate(texts, 1):
        if len(text) > _MOST_CHARACTERS:
            raise UsageError(f"{file}:{i}: more than {_MOST_CHARACTERS:,} characters in a line")
    return Lines(texts, file)


Place = Source | Line
"""Where a value is, for the error."""


def part(entry: Mapping[str, Source], key: str, place: Source) -> Source:
    """A value without which an entry at `place` means nothing."""
    if key not in entry:
        raise place.wrong(f"expected the key {key!r}")
    return entry[key]


def one_of(text: str, known: Container[str], what: str, place: Place) -> str:
    """A text that is one of the documented values."""
    if text not in known:
        raise place.wrong(f"unknown {what} {text[:60]!r}")
    return text


_DOWN = re.compile(
    r"down|standby|dormant|testing|unknown|not_?present|disabled|inactive|suspended|err-?disabled"
)


def is_up(text: str, place: Place) -> bool:
    """Whether a port has a link, of its state with whatever reason it has."""
    words = text.lower()
    if _DOWN.search(words):
        return False
    if not re.match(r"\W*up\b", words):
        raise place.wrong(f"unknown state {text.strip()[:60]!r}")
    return True


def address(text: str, place: Place) -> Address:
    """An address."""
    try:
        return parse_address(text)
    except ValueError:
        raise place.wrong(f"expected an address, found {text[:60]!r}") from None


def network(text: str, place: Place) -> Network:
    """A network, without bits beyond its length."""
    try:
        return parse_network(text)
    except ValueError:
        raise place.wrong(f"expected a network, found {text[:60]!r}") from None


def own_address(text: str, length: str | int, place: Place) -> IPv4Interface | IPv6Interface:
    """An address of a port with the length (or mask) of its network."""
    try:
        return parse_interface(f"{text}/{length}")
    except ValueError:
        raise place.wrong(f"expected an address with a length, found {text[:60]!r}") from None


def port_name(text: str, place: Place) -> str:
    """The name of a port, as far as it may become part of a command."""
    if not _PORT.fullmatch(text):
        raise place.wrong(f"expected the name of a port, found {text[:60]!r}")
    return text


def mac(text: str, place: Place) -> str:
    """A MAC address in any of the common forms, as aa:bb:cc:dd:ee:ff; empty stays empty."""
    digits = re.sub(r"[:.-]", "", text.strip().lower())
    if not digits:
        return ""
    if not _MAC.fullmatch(digits):
        raise place.wrong(f"expected a MAC address, found {text[:60]!r}")
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def mac_or_text(text: str) -> str:
    """A chassis or port id, whose MAC addresses are written in the same way on all systems."""
    digits = re.sub(r"[:.-]", "", text.strip().lower())
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2)) if _MAC.fullmatch(digits) else text


def weight(place: Source | None) -> int:
    """The weight of a next hop, 1 if none is given."""
    return 1 if place is None else place.integer("a weight", 1, _MOST_WEIGHT)


def rate(place: Source | None, unit: int = 1) -> int:
    """Bits per second of a port; 0 if it does not tell. unit: bits per second of its figure."""
    return 0 if place is None else place.integer("a rate", 0, _MOST_RATE // unit) * unit


def rate_in_text(figure: str, unit: int, place: Place) -> int:
    """The same of a figure within a text."""
    return number(figure, "a rate", _MOST_RATE // unit, place) * unit


def number(text: str, what: str, most: int, place: Place) -> int:
    """An integer from 0 to `most` in a text."""
    if not _DIGITS.fullmatch(text) or int(text) > most:
        raise place.wrong(f"expected {what} up to {most:,}, found {text[:60]!r}")
    return int(text)


def octets(place: Source) -> int:
    """A counter of bytes."""
    return place.integer("a counter", 0, (1 << 63) - 1)


class Entry:
    """An object of JSON, with the errors of missing and odd values."""

    def __init__(self, place: Source) -> None:
        self.place = place
        self.values = place.mapping("an object")
        if not place.is_mapping:
            raise place.wrong("expected an object, found nothing")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def at(self, key: str) -> Source:
        """A value that must be there."""
        return part(self.values, key, self.place)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; must be there unless there is a default."""
        return default if default is not None and key not in self else self.at(key).text("a text")

    def inner(self, key: str) -> Entry:
        """An object that must be there."""
        return Entry(self.at(key))

    def items(self, key: str, default: bool = True) -> list[Source]:
        """The items of a list; default: none if there is no such list."""
        if default and key not in self:
            return []
        return self.at(key).items("objects")

    def each(self, key: str, default: bool = True) -> list[Entry]:
        """The same as objects."""
        return [Entry(item) for item in self.items(key, default)]

    def named(self, key: str) -> Iterable[tuple[str, Source]]:
        """(name, value) of an object that must be there."""
        return self.inner(key).values.items()


def match_whole(pattern: re.Pattern[bytes], output: bytes) -> str | None:
    """The one group of a pattern that is the whole answer."""
    match = pattern.fullmatch(output)
    return match[1].decode() if match else None


def match_only(pattern: re.Pattern[bytes], output: bytes) -> str | None:
    """What the one group of a pattern finds in an answer, if it is the same everywhere."""
    values = set(pattern.findall(output))
    return values.pop().decode() if len(values) == 1 else None

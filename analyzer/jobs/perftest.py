"""Queue pairs in the output of perftest: of one program after another, or of several at once.

perftest prints a header with its device and its number of queue pairs, then its own end of each
queue pair, then the other ends, each with its GID on the next line. It does not print who it is.
Launchers write the same text before each line of one program, apart from times: this text tells
programs apart. Lines of several programs without it, or with the same, may be mixed; then the order
of the lines is not evidence.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

INTERESTING: Final = rb" address: LID |GID: |Dual-port |Number of qps "

_COMPLETE = r'(?=\s*$|\\n")'
"""The end of a line, or of its text in JSON: a part of an address is another address."""
_END = re.compile(r"\b(local|remote) address: LID \S{1,8} QPN 0x([0-9a-f]{1,6}) PSN 0x")
_GID = re.compile(rf"\bGID: ((?:\d{{2,3}}:){{15}}\d{{2,3}}){_COMPLETE}")
_HEADER = re.compile(
    rf"\bDual-port {{1,12}}: \w{{1,4}}\s{{1,4}}Device {{1,12}}: ([\w.\-]{{1,64}}){_COMPLETE}"
)
_NUMBER = re.compile(r"\bNumber of qps {1,12}: (\d{1,7})\b")
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_TIME = re.compile(
    rf"\d{{4}}[-/]\d\d[-/]\d\d[T _]{_CLOCK}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|(?:\b[A-Z][a-z]{2} )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    rf" {{1,2}}\d{{1,2}} {_CLOCK}(?: \d{{4}})?"
    rf"|\b{_CLOCK}|\b\d{{10}}\.\d{{1,9}}\b"
)
"""ISO 8601, ctime and syslog, times of day, seconds since 1970."""
_MOST_PREFIXES = 10_000


def without_times(text: str) -> str:
    """A text without the times that programs write before lines, such as `kubectl --timestamps`."""
    return _TIME.sub("", text)


def written(gid: bytes) -> str:
    """The address of a GID."""
    address = ipaddress.IPv6Address(gid)
    return str(address.ipv4_mapped or address)


class PerftestPair(NamedTuple):
    """A queue pair of perftest at its own end."""

    qpn: int
    address: str | None
    device: str | None
    remote_qpn: int | None
    remote_address: str | None


@dataclass(slots=True)
class _End:
    qpn: int
    address: str | None = None


@dataclass(slots=True)
class _Programs:
    """What one program printed, or several at once if there are several headers."""

    devices: list[str] = field(default_factory=list)
    """One of each header; empty for a program whose header is not in the file."""
    numbers: list[int] = field(default_factory=list)
    """Queue pairs by the headers, whose next line has them."""
    ends: dict[bool, list[_End]] = field(default_factory=lambda: {True: [], False: []})
    """Own ends (True) and the other ends."""
    without_gid: list[_End] = field(default_factory=list)
    """Ends whose GID line has not come yet."""
    gids: list[str] = field(default_factory=list)
    """GIDs of which it is not certain to which of these ends they belong."""
    has_a_gid_too_many: bool = False
    """The end of one of the GIDs is not in the file."""

    @property
    def is_complete(self) -> bool:
        """Whether all ends are printed; of a file that begins within them, the other ends.

        Each has a GID, or none has, as on InfiniBand.
        """
        own, others = len(self.ends[True]), len(self.ends[False])
        if len(self.without_gid) not in (0, own + others):
            return False
        if not self.devices:
            return 0 < others >= own
        headers = len(self.numbers) in (0, len(self.devices))
        return headers and 0 < own == others >= sum(self.numbers)

    @property
    def has_begun(self) -> bool:
        return bool(self.ends[True] or self.numbers or self.has_a_gid_too_many)

    @property
    def are_several(self) -> bool:
        """Whether there are more headers, or more ends, than one program prints."""
        ends = max(map(len, self.ends.values()))
        return max(len(self.devices), len(self.numbers)) > 1 or ends > sum(self.numbers) > 0

    def add_end(self, is_own: bool, qpn: int) -> None:
        end = _End(qpn)
        self.ends[is_own].append(end)
        self.without_gid.append(end)

    def add_gid(self, address: str) -> bool:
        """False if the GID belongs to no end."""
        if not self.without_gid:
            self.has_a_gid_too_many = True
            return False
        self.gids.append(address)
        if len(self.gids) == len(self.without_gid):
            if len(set(self.gids)) == 1:
                for end in self.without_gid:
                    end.address = address
            self.gids, self.without_gid = [], []
        return True

    def pairs(self) -> list[PerftestPair]:
        """The ends of one program are printed in the same order on both sides."""
        own, others = self.ends[True], self.ends[False]
        if self.has_a_gid_too_many:
            own = [_End(end.qpn) for end in own]
        names = set(self.devices)
        is_known = len(names) == 1 and (len(self.devices) > 1 or not self.are_several)
        device = names.pop() if is_known else None
        if len(self.devices) != 1 or self.are_several or len(own) != len(others):
            return [PerftestPair(end.qpn, end.address, device, None, None) for end in own]
        return [
            PerftestPair(end.qpn, end.address, device, other.qpn, other.address)
            for end, other in zip(own, others, strict=True)
        ]


class PerftestLog:
    """The lines of perftest in one file.

    most_ends: how many ends are kept; `dropped` counts the others.
    """

    def __init__(self, most_ends: int) -> None:
        self.dropped = 0
        self.unmatched_lines = 0
        """Lines that belong to no other line."""
        self.mixed = 0
        """Queue pairs of programs whose lines are mixed."""
        self._room = 2 * most_ends
        self._programs: dict[str, _Programs] = {}
        """By the text before their lines, without times."""
        self._pairs: list[PerftestPair] = []

    def hear(self, line: str) -> bool:
        """Take a line; False if it is not one of perftest."""
        if match := _END.search(line):
            programs = self._of(line[: match.start()])
            if programs is None or self._room <= 0:
                self.dropped += match[1] == "local"
            else:
                self._room -= 1
                programs.add_end(match[1] == "local", int(match[2], 16))
            return True
        if match := _GID.search(line):
            numbers = [int(part) for part in match[1].split(":")]
            if max(numbers) > 255:
                return False
            programs = self._of(line[: match.start()])
            if programs is None or not programs.add_gid(written(bytes(numbers))):
                self.unmatched_lines += 1
            return True
        if match := _HEADER.search(line):
            self._begin(line[: match.start()], match[1])
            return True
        if match := _NUMBER.search(line):
            programs = self._of(line[: match.start()])
            if programs is not None:
                programs.numbers.append(int(match[1]))
            return True
        return False

    def finish(self) -> list[PerftestPair]:
        """All queue pairs of the file."""
        for programs in self._programs.values():
            self._keep(programs)
        self._programs = {}
        return self._pairs

    def _of(self, before: str) -> _Programs | None:
        prefix = without_times(before).strip()
        programs = self._programs.get(prefix)
        if programs is None and len(self._programs) < _MOST_PREFIXES:
            programs = self._programs[prefix] = _Programs()
        return programs

    def _begin(self, before: str, device: str) -> None:
        """The header of another program: the earlier ones have printed all their ends, or lines of
        several are mixed from here on."""
        programs = self._of(before)
        if programs is None:
            return
        if programs.is_complete:
            self._keep(programs)
            programs = self._programs[without_times(before).strip()] = _Programs()
        elif not programs.devices and programs.has_begun:
            programs.devices.append("")
        programs.devices.append(device)

    def _keep(self, programs: _Programs) -> None:
        pairs = programs.pairs()
        self._pairs += pairs
        self.mixed += len(pairs) if programs.are_several else 0

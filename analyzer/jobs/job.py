"""What the logs of a job say about its queue pairs, processes, communicators and errors."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import BinaryIO, TypeAlias

from ..errors import RocescopeError
from .lines import (
    INTERESTING,
    LONGEST_LINE_BYTES,
    UCX_INTERESTING,
    ChannelLine,
    CommunicatorLine,
    DevicesLine,
    EndLine,
    ErrorLine,
    GidLine,
    Heard,
    QueuePairLine,
    Said,
    Speaker,
    UcxLog,
    decoded,
    lines,
    oldest_first,
    readable,
    said,
    suspect,
    suspect_ucx,
)
from .perftest import INTERESTING as PERFTEST_INTERESTING
from .perftest import PerftestLog

_INTERESTING = re.compile(b"|".join((INTERESTING.pattern, UCX_INTERESTING, PERFTEST_INTERESTING)))
"""Only lines with one of these can say something; the others are not decoded."""
MPI_WORLD = "MPI_COMM_WORLD"
MOST_QUEUE_PAIRS = 1_000_000
MOST_CHANNELS = 1_000_000
MOST_ERRORS = 10_000
MOST_GIDS = 100_000
_MOST_SPEAKERS = 100_000
_MOST_NAMES = 1_000_000
_COMMUNICATORS_EACH = 1000
_PAST_SEARCHED = 1000
"""How many earlier queue pairs with a number an error may belong to."""


@dataclass(slots=True)
class LoggedPair:
    """A queue pair as a log names it."""

    qpn: int
    speaker: Speaker | None
    """None for perftest, which does not say who it is."""
    sends: bool = True
    number: int | None = None
    device: str | None = None
    address: str | None = None
    comm: str | None = None
    rank: int | None = None
    has_several_ranks: bool = False
    """Whether the process has several ranks, and no line shows which is meant."""
    time_ns: int | None = None
    ended_ns: int | None = None
    """When it, or its communicator, was destroyed or aborted."""
    remote_qpn: int | None = None
    remote_address: str | None = None
    channel: int | None = None
    """By the order of lines only."""

    @property
    def remote(self) -> tuple[str, int] | None:
        """Address and queue pair number at the other end, if both are known."""
        if self.remote_address is None or self.remote_qpn is None:
            return None
        return self.remote_address, self.remote_qpn


@dataclass(slots=True)
class LoggedError:
    """A completion with an error."""

    speaker: Speaker
    time_ns: int | None
    qpn: int | None
    status: int | None = None
    local: str | None = None
    remote: str | None = None
    remote_qpn: int | None = None
    device: str | None = None


@dataclass(slots=True)
class _Process:
    """What one process said so far."""

    communicators: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Name and rank by pointer."""
    beginning: list[str] = field(default_factory=list)
    """Pointers of communicators that are not ready yet."""
    channels: dict[tuple[str | None, int, int], None] = field(default_factory=dict)
    """(communicator, channel, peer) in the order of the lines that name a sender."""
    pairs: dict[int, LoggedPair] = field(default_factory=dict)
    past: dict[int, list[LoggedPair]] = field(default_factory=dict)
    """Queue pairs whose number the process uses again."""
    open_on: dict[str, dict[int, LoggedPair]] = field(default_factory=dict)
    """Those of `pairs` without an end, by device: a log may end devices again and again."""
    open_in: dict[str, dict[int, LoggedPair]] = field(default_factory=dict)
    """Those of `pairs` without an end, by communicator."""

    def put(self, pair: LoggedPair, device: str | None) -> None:
        """The queue pair is on this device; None: on none, or it ended."""
        if pair.device is not None and (others := self.open_on.get(pair.device)) is not None:
            others.pop(pair.qpn, None)
            if not others:
                del self.open_on[pair.device]
        if device is not None:
            pair.device = device
            self.open_on.setdefault(device, {})[pair.qpn] = pair

    def join(self, pair: LoggedPair, comm: str | None) -> None:
        """The queue pair is in this communicator; None: in none, or it ended."""
        if pair.comm is not None and (others := self.open_in.get(pair.comm)) is not None:
            others.pop(pair.qpn, None)
            if not others:
                del self.open_in[pair.comm]
        if comm is not None:
            self.open_in.setdefault(comm, {})[pair.qpn] = pair

    def end(self, pair: LoggedPair, time_ns: int | None) -> None:
        """The queue pair ended, unless it already has."""
        self.put(pair, None)
        self.join(pair, None)
        if pair.ended_ns is None:
            pair.ended_ns = time_ns

    def all_pairs(self) -> list[LoggedPair]:
        """The queue pairs of the process, past ones first."""
        return [*chain.from_iterable(self.past.values()), *self.pairs.values()]

    @property
    def has_several_ranks(self) -> bool:
        """Whether a line may be about more than one rank."""
        return len(self.communicators) > 1 and self.current()[1] is None

    def current(self) -> tuple[str | None, int | None]:
        """The communicator that a line is about, and the rank in it; None where not certain."""
        known = self.communicators
        if len(self.beginning) == 1:
            return known[self.beginning[0]]
        ranks = {rank for _, rank in known.values()}
        names = {name for name, _ in known.values()}
        return (
            names.pop() if len(names) == 1 else None,
            ranks.pop() if len(ranks) == 1 else None,
        )


class Job:
    """The logs of a job, read once."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.files = 0
        self.unknown_lines = 0
        self.dropped = 0
        """Queue pairs, channels, errors and processes beyond what is kept."""
        self.errors: list[LoggedError] = []
        self.neighbours: dict[tuple[str | None, int], set[int]] = defaultdict(set)
        """Ranks that a rank has network channels with, by communicator."""
        self.hosts: dict[tuple[str | None, int], str] = {}
        """Host of a rank, by communicator."""
        self._processes: dict[Speaker, _Process] = {}
        self._perftest: list[LoggedPair] = []
        self._devices: dict[tuple[str, int | None, int], set[str]] = defaultdict(set)
        """Devices by host, process and number in it; None: in any process of the host."""
        self._gids: set[tuple[str, str, int, str | None]] = set()
        """Host, device, index and address of a GID; an address of None: the index is used."""
        self._failed: dict[Speaker, LoggedError] = {}
        """The last error of each process in one file."""
        self._names: dict[tuple[object, ...], str] = {}
        """Names of communicators without an identifier."""
        self._named: Counter[str] = Counter()
        """How many of them have this pointer."""
        self.unmatched_perftest_lines = 0
        """Lines of perftest that belong to no other line."""
        self.mixed_perftest_pairs = 0
        """Queue pairs of programs of perftest whose lines are mixed."""
        self._ucx = UcxLog()
        self._labels: dict[int, Speaker | None] = {}
        """Processes by the rank that mpirun or srun wrote before their lines; None: several, or
        a process with several ranks."""
        self._label_of: dict[Speaker, int] = {}
        self._kept = 0
        for path in paths:
            self.read(lines(path))

    def read(self, log: Iterable[bytes], known: bool = False) -> None:
        """Read one file, or what is new in a `known` one; then call `pairs` for all of them."""
        self.files += not known
        self._failed = {}
        perftest = PerftestLog(max(0, MOST_QUEUE_PAIRS - self._kept))
        for raw in map(readable, log):
            if _INTERESTING.search(raw) is None:
                continue
            line = decoded(raw)
            if (spoken := said(line)) is not None:
                self._hear(*spoken)
            elif (heard := self._ucx.said(line)) is not None:
                self._hear_ucx(heard)
            elif perftest.hear(line):
                continue
            elif suspect(line) or suspect_ucx(line):
                self.unknown_lines += 1
        self._keep_perftest(perftest)

    def pairs(self) -> list[LoggedPair]:
        """All queue pairs, with the device and address that other lines of their host tell."""
        for process in self._processes.values():
            _infer_channels(process)
        for rank, speaker in self._labels.items():
            if speaker is not None:
                for pair in self._processes[speaker].all_pairs():
                    pair.comm, pair.rank = MPI_WORLD, rank
                self.hosts[MPI_WORLD, rank] = speaker.host
        pairs = [pair for process in self._processes.values() for pair in process.all_pairs()]
        spoken = [(pair, pair.speaker) for pair in pairs if pair.speaker is not None]
        for pair, speaker in spoken:
            if pair.device is None and pair.number is not None:
                own = self._devices.get((speaker.host, speaker.pid, pair.number))
                pair.device = _only(own or self._devices.get((speaker.host, None, pair.number)))
        addresses: dict[tuple[str, str | int], set[str]] = defaultdict(set)
        for pair, speaker in spoken:
            if pair.address is not None and pair.number is not None:
                addresses[speaker.host, pair.device or pair.number].add(pair.address)
        used = self._used_addresses()
        for pair, speaker in spoken:
            if pair.address is None and pair.device is not None:
                pair.address = _only(used.get((speaker.host, pair.device)))
            if pair.address is None and pair.number is not None:
                of_device = addresses.get((speaker.host, pair.device or pair.number))
                pair.address = _only(of_device or addresses.get((speaker.host, pair.number)))
        return pairs + self._perftest

    def _used_addresses(self) -> dict[tuple[str, str], set[str]]:
        """By host and device: the addresses whose GIDs the queue pairs of the device use."""
        used: dict[tuple[str, str], set[str]] = defaultdict(set)
        for host, device, index, address in self._gids:
            if address is not None and (host, device, index, None) in self._gids:
                used[host, device].add(address)
        return used

    @property
    def doubtful_labels(self) -> int:
        """Ranks that labels give to several processes, or to a process with other ranks, as of
        several jobs: not used."""
        return sum(speaker is None for speaker in self._labels.values())

    def pair_of(self, speaker: Speaker, qpn: int, time_ns: int | None) -> LoggedPair | None:
        """The queue pair of a process at a time, or its last with this number."""
        process = self._processes.get(speaker)
        last = None if process is None else process.pairs.get(qpn)
        if process is None or last is None or None in (last.time_ns, time_ns):
            return last
        for pair in (last, *process.past.get(qpn, ())[: -_PAST_SEARCHED - 1 : -1]):
            if pair.time_ns is not None and pair.time_ns <= (time_ns or 0):
                return pair
        return last

    def _hear_ucx(self, heard: Heard) -> None:
        if heard.what is None:
            return
        self._hear(heard.speaker, heard.time_ns, heard.what)
        if heard.label is not None and heard.speaker in self._processes:
            speaker = self._labels.setdefault(heard.label, heard.speaker)
            if speaker != heard.speaker:
                self._labels[heard.label] = None
            label = self._label_of.setdefault(heard.speaker, heard.label)
            if label != heard.label:
                self._labels[label] = self._labels[heard.label] = None

    def _hear(self, speaker: Speaker, time_ns: int | None, what: Said) -> None:
        if isinstance(what, CommunicatorLine):
            speaker = speaker._replace(gpu=what.gpu)
        if speaker not in self._processes and len(self._processes) >= _MOST_SPEAKERS:
            self.dropped += 1
            return
        process = self._processes.setdefault(speaker, _Process())
        if isinstance(what, QueuePairLine):
            self._pair(speaker, process, time_ns, what)
        elif isinstance(what, CommunicatorLine):
            self._communicator(speaker, process, time_ns, what)
        elif isinstance(what, ChannelLine):
            self._channel(process, what)
        elif isinstance(what, DevicesLine):
            for number, name, _port in what.devices:
                for pid in (speaker.pid, None):
                    self._devices[speaker.host, pid, number].add(name)
        elif isinstance(what, GidLine):
            self._gid(speaker.host, what)
        elif isinstance(what, EndLine):
            _end(process, time_ns, what)
        else:
            self._error(speaker, time_ns, what)

    def _pair(
        self, speaker: Speaker, process: _Process, time_ns: int | None, what: QueuePairLine
    ) -> None:
        known = process.pairs.get(what.qpn)
        other = known is not None and what.remote not in (None, known.remote)
        if known is not None and (other or known.ended_ns is not None):
            process.end(known, time_ns)
            process.past.setdefault(what.qpn, []).append(process.pairs.pop(what.qpn))
            known = None
        comm, rank = process.current()
        if known is not None:
            known.address = what.address or known.address
            if what.device is not None:
                process.put(known, what.device)
            if known.comm != comm:
                process.join(known, None)
                known.comm = None
            if known.rank != rank:
                known.has_several_ranks |= process.has_several_ranks or None not in (
                    known.rank,
                    rank,
                )
                known.rank = None
            return
        if self._kept >= MOST_QUEUE_PAIRS:
            self.dropped += 1
            return
        self._kept += 1
        process.pairs[what.qpn] = made = LoggedPair(
            what.qpn,
            speaker,
            what.sends,
            what.number,
            what.device,
            what.address,
            comm,
            rank,
            process.has_several_ranks,
            time_ns,
            remote_address=None if what.remote is None else what.remote[0],
            remote_qpn=None if what.remote is None else what.remote[1],
        )
        process.put(made, what.device)
        process.join(made, comm)

    def _gid(self, host: str, what: GidLine) -> None:
        if len(self._gids) >= MOST_GIDS:
            self.dropped += 1
            return
        self._gids.add((host, what.device, what.gid_index, what.address))

    def _communicator(
        self, speaker: Speaker, process: _Process, time_ns: int | None, what: CommunicatorLine
    ) -> None:
        begins = what.step == "Init START"
        if what.pointer in process.beginning:
            process.beginning.remove(what.pointer)
        if what.step in ("Destroy COMPLETE", "Abort COMPLETE"):
            name, _ = process.communicators.pop(what.pointer, (what.name, what.rank))
            for pair in [] if time_ns is None else [*process.open_in.pop(name or "", {}).values()]:
                process.end(pair, time_ns)
            return
        full = len(process.communicators) >= _COMMUNICATORS_EACH or len(self._names) >= _MOST_NAMES
        if full:
            self.dropped += 1
            return
        name = what.name or self._name(speaker, process, what)
        process.communicators[what.pointer] = (name, what.rank)
        self.hosts[name, what.rank] = speaker.host
        if begins:
            process.beginning.append(what.pointer)

    def _name(self, speaker: Speaker, process: _Process, what: CommunicatorLine) -> str:
        """A name for a communicator without an identifier: the pointer in the first process that
        names it. Processes call it the same if it was split from the same communicator, with the
        same number and colour, of which NCCL itself makes its identifier."""
        known = process.communicators.get(what.pointer)
        if known is not None and what.step != "Init START":
            return known[0]
        parent = None if what.split is None else process.communicators.get(what.split[0])
        key: tuple[object, ...] = (speaker, what.pointer)
        if parent is not None and what.split is not None:
            key = (parent[0], *what.split[1:])
        if key not in self._names:
            same = self._named[what.pointer]
            self._names[key] = f"{what.pointer}/{same + 1}" if same else what.pointer
            self._named[what.pointer] += 1
        return self._names[key]

    def _channel(self, process: _Process, what: ChannelLine) -> None:
        comm, rank = process.communicators.get(what.comm or "", process.current())
        near, peer = (what.sender, what.receiver) if what.sends else (what.receiver, what.sender)
        if rank is not None and rank != near:
            return
        if len(self.neighbours) >= MOST_CHANNELS or len(process.channels) >= MOST_CHANNELS:
            self.dropped += 1
            return
        self.neighbours[comm, near].add(peer)
        if what.sends:
            process.channels[comm, what.channel, peer] = None

    def _error(self, speaker: Speaker, time_ns: int | None, what: ErrorLine) -> None:
        failed = self._failed.get(speaker)
        if what.qpn is None and failed is not None and failed.status is None:
            failed.status, failed.local, failed.remote = what.status, what.local, what.remote
            return
        if len(self.errors) >= MOST_ERRORS:
            self.dropped += 1
            return
        self._failed[speaker] = LoggedError(speaker, time_ns, *what)
        self.errors.append(self._failed[speaker])

    def _keep_perftest(self, perftest: PerftestLog) -> None:
        """Keep the queue pairs of one file."""
        pairs = perftest.finish()
        room = max(0, MOST_QUEUE_PAIRS - self._kept)
        self._perftest += (
            LoggedPair(
                pair.qpn,
                None,
                device=pair.device,
                address=pair.address,
                remote_qpn=pair.remote_qpn,
                remote_address=pair.remote_address,
            )
            for pair in pairs[:room]
        )
        self._kept += len(pairs[:room])
        self.dropped += perftest.dropped + len(pairs[room:])
        self.unmatched_perftest_lines += perftest.unmatched_lines
        self.mixed_perftest_pairs += perftest.mixed


def _only(values: set[str] | None) -> str | None:
    """The value, if there is exactly one."""
    return next(iter(values)) if values is not None and len(values) == 1 else None


def _end(process: _Process, time_ns: int | None, what: EndLine) -> None:
    """Queue pairs without a time of their end could still be there: they stay open."""
    if time_ns is None:
        return
    if what.qpn is not None:
        pair = process.pairs.get(what.qpn)
        ended = [] if pair is None or pair.ended_ns is not None else [pair]
    else:
        ended = list(process.open_on.get(what.device or "", {}).values())
    for pair in ended:
        process.end(pair, time_ns)


def _infer_channels(process: _Process) -> None:
    """Channels by order: NCCL names neither the channel of a queue pair nor its peer's rank."""
    pairs = [pair for pair in process.pairs.values() if pair.sends and pair.comm is not None]
    channels = [channel for comm, channel, _ in process.channels if comm is not None]
    if not channels or len({pair.comm for pair in pairs}) != 1 or len(pairs) % len(channels):
        return
    each = len(pairs) // len(channels)
    for at, pair in enumerate(pairs):
        pair.channel = channels[at // each]


# Logs that grow while a job runs: what is new in them, again and again.

_PIECE_BYTES = 1 << 20
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"\x04\x22\x4d\x18", b"BZh")


_MOST_OPEN = 256
"""Files that stay open: what is written to them before and after they are renamed is still read."""
_QUIET_ROUNDS = 3
"""A file without a name that matches is closed when it has not grown for this many updates."""
_TAIL_BYTES = 64

_Key: TypeAlias = tuple[int, int]
"""Device and inode: a file that is renamed stays the same."""


@dataclass(slots=True)
class _Place:
    """Where reading a file continues."""

    position: int = 0
    within_long_line: bool = False
    tail: bytes = b""
    """The last bytes before the position: a file that was emptied and grew again has others."""
    kept: BinaryIO | None = None
    quiet: int = 0


class FollowedLogs:
    """The logs of a running job. Files may appear, grow, be rotated and become unreadable."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.job = Job()
        self._patterns = tuple(patterns)
        self._places: dict[_Key, _Place] = {}
        self._unreadable: dict[str, str] = {}
        self.update()

    def update(self) -> bool:
        """Read what is new; whether there was anything."""
        changed = False
        self._unreadable = {}
        seen: set[_Key] = set()
        for pattern in self._patterns:
            for path in oldest_first(glob.glob(pattern, recursive=True)) or [pattern]:
                try:
                    changed = self._read(path, seen) or changed
                except (OSError, RocescopeError) as error:
                    self._unreadable[path] = getattr(error, "strerror", None) or str(error)
        for key, place in self._places.items():
            if key not in seen and place.kept is not None:
                changed = self._read_renamed(place) or changed
        return changed

    def notes(self) -> list[str]:
        """What cannot be read now, in one line."""
        if not self._unreadable:
            return []
        path, why = next(iter(self._unreadable.items()))
        more = len(self._unreadable) - 1
        return [f"job logs: {path}: {why}" + (f", and {more:,} more files" if more else "")]

    def _read(self, path: str, seen: set[_Key]) -> bool:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):
            return False
        key = (state.st_dev, state.st_ino)
        seen.add(key)
        place = self._places.get(key)
        if place is not None and state.st_size == place.position:
            return False
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            key = (state.st_dev, state.st_ino)
            seen.add(key)
            known = key in self._places
            place = self._places.setdefault(key, _Place())
            if file.read(8).startswith(_COMPRESSED):
                place.position = state.st_size  # as a whole, and again if it grows
                self.job.read(lines(path), known)
                return True
            _begin_anew_if_emptied(file, place, state.st_size)
            if place.kept is None and sum(p.kept is not None for p in self._places.values()) < (
                _MOST_OPEN
            ):
                place.kept = open(os.dup(file.fileno()), "rb")
            before = place.position
            self.job.read(_new_lines(file, place), known)
            return place.position > before

    def _read_renamed(self, place: _Place) -> bool:
        """What is new in a file that no pattern names any longer."""
        file = place.kept
        assert file is not None
        before = place.position
        self.job.read(_new_lines(file, place), known=True)
        place.quiet = 0 if place.position > before else place.quiet + 1
        if place.quiet > _QUIET_ROUNDS:
            file.close()
            place.kept = None
        return place.position > before


def _begin_anew_if_emptied(file: BinaryIO, place: _Place, size: int) -> None:
    """Begin anew when the file is not the one that was read up to the place."""
    begin = place.position - len(place.tail)
    file.seek(begin)
    if size < place.position or file.read(len(place.tail)) != place.tail:
        place.position, place.within_long_line, place.tail = 0, False, b""


def _new_lines(file: BinaryIO, place: _Place) -> Iterator[bytes]:
    """Complete lines after the place, as `files.lines`; an incomplete one is read later."""
    file.seek(place.position)
    while piece := file.read(_PIECE_BYTES):
        end = piece.rfind(b"\n") + 1
        if not end:
            if len(piece) <= LONGEST_LINE_BYTES:
                return
            _go_on(place, piece)
            place.within_long_line = True
            continue
        _go_on(place, piece[:end])
        file.seek(place.position)
        complete = piece[: end - 1].split(b"\n")
        if place.within_long_line:
            place.within_long_line = False
            complete = complete[1:]
        yield from (line for line in complete if len(line) <= LONGEST_LINE_BYTES)


def _go_on(place: _Place, read: bytes) -> None:
    place.position += len(read)
    place.tail = (place.tail + read)[-_TAIL_BYTES:]

"""Collectives that PyTorch's flight recorder kept, read without executing the pickle.

A pickle is a program. `pickle.load` runs what the file names: whoever writes the file runs code
here. The reader here has no instruction that names, imports or calls anything, and refuses a
file at the first instruction that it does not have.

Form: versions 2.0 to 2.10 of FlightRecorder.hpp in PyTorch. A dump holds the newest collectives of
a process, 2,000 by default, of all its process groups.
"""

from __future__ import annotations

import os
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias
from zlib import crc32

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ...kernels.kernel import Records
from .records import (
    COLLECTIVE,
    COMPLETED,
    SCHEDULED,
    STARTED,
    UNKNOWN,
    GroupKey,
    RankLog,
    Recorded,
    RefusedRecord,
    Texts,
    content,
    each,
    files_in,
    nothing_read,
)

Plain: TypeAlias = (
    bool | int | float | str | list["Plain"] | tuple["Plain", ...] | dict[str, "Plain"] | None
)

MAGIC: Final = 0x80
"""Every pickle since protocol 2 begins with this byte."""
MOST_OPENED: Final = 100
"""Containers that are open at once."""
_LONGEST_INTEGER_BYTES: Final = 8

_U1: Final = struct.Struct("<B").unpack_from
_U2: Final = struct.Struct("<H").unpack_from
_U4: Final = struct.Struct("<I").unpack_from
_I4: Final = struct.Struct("<i").unpack_from
_U8: Final = struct.Struct("<Q").unpack_from
_F8: Final = struct.Struct(">d").unpack_from

_NAMES: Final = {
    ord("c"): "GLOBAL", 0x93: "STACK_GLOBAL", ord("R"): "REDUCE", ord("i"): "INST",
    ord("o"): "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", ord("b"): "BUILD", 0x82: "EXT1",
    0x83: "EXT2", 0x84: "EXT4", ord("P"): "PERSID", ord("Q"): "BINPERSID",
}  # fmt: skip
"""Instructions that name, make or call something, for the text of the refusal."""


class RefusedPickle(ValueError):
    """A pickle that is not plain data, or is damaged; says what and where."""


def plain(data: bytes) -> Plain:
    """The value in a pickle of protocol 2 to 5; bytes after its end are ignored.

    Time and memory are bounded by the length of `data`. Values that the pickle mentions several
    times are one object: who walks through the value bounds that walk.
    """
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, struct.error):
        raise RefusedPickle(f"it ends within an instruction, at byte {machine.at}") from None


class _Machine:
    """The stack, the memory and the place in the program."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._stack: list[Plain] = []
        self._opened: list[list[Plain]] = []
        """The stacks below each open mark."""
        self._memory: list[Plain] = []

    def run(self) -> Plain:
        data, values, others = self.data, _VALUES, _OTHERS
        if not data or data[0] != MAGIC:
            raise RefusedPickle("it does not begin as a pickle of protocol 2 to 5")
        while True:
            code = data[self.at]
            self.at += 1
            if (push := values.get(code)) is not None:
                value = push(self)
                self._stack.append(value)
            elif (other := others.get(code)) is not None:
                other(self)
            elif code == _STOP:
                return self._result()
            else:
                name = _NAMES.get(code, f"instruction 0x{code:02x}")
                raise RefusedPickle(f"it holds {name} at byte {self.at - 1}: not plain data")

    def _result(self) -> Plain:
        if self._opened or len(self._stack) != 1:
            raise RefusedPickle(f"it ends with {len(self._stack)} values, not 1")
        return self._stack[0]

    # --- what instructions are followed by ---------------------------------------------------

    def number(self, read: Callable[[bytes, int], tuple[int]], size: int) -> int:
        (value,) = read(self.data, self.at)
        self.at += size
        return value

    def real(self) -> float:
        (value,) = _F8(self.data, self.at)
        self.at += 8
        assert isinstance(value, float)
        return value

    def bytes(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise IndexError
        part = self.data[self.at : end]
        self.at = end
        return part

    def text(self, count: int) -> str:
        return self.bytes(count).decode("utf-8", "replace")

    def integer(self, count: int) -> int:
        if count > _LONGEST_INTEGER_BYTES:
            raise RefusedPickle(f"it holds an integer of {count} bytes at byte {self.at}")
        return int.from_bytes(self.bytes(count), "little", signed=True)

    # --- what instructions do ----------------------------------------------------------------

    def open(self) -> None:
        if len(self._opened) >= MOST_OPENED:
            raise RefusedPickle(f"more than {MOST_OPENED} containers are open at byte {self.at}")
        self._opened.append(self._stack)
        self._stack = []

    def closed(self) -> list[Plain]:
        """The values since the last mark, which they leave with it."""
        if not self._opened:
            raise RefusedPickle(f"a container ends that did not begin, at byte {self.at}")
        values, self._stack = self._stack, self._opened.pop()
        return values

    def popped(self, count: int) -> list[Plain]:
        if len(self._stack) < count:
            raise RefusedPickle(f"a value is missing at byte {self.at}")
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def extend(self, values: list[Plain]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise RefusedPickle(f"something is appended to what is no list, at byte {self.at}")
        target += values

    def set(self, values: list[Plain]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(values) % 2:
            raise RefusedPickle(f"keys are set in what is no dictionary, at byte {self.at}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str):
                raise RefusedPickle(f"a key is no text, at byte {self.at}")
            target[key] = value

    def put(self, place: int | None = None) -> None:
        value = self._top()
        if place is None or place == len(self._memory):
            self._memory.append(value)
        elif place < len(self._memory):
            self._memory[place] = value
        else:
            raise RefusedPickle(f"it skips places of its memory, at byte {self.at}")

    def get(self, place: int) -> Plain:
        if place >= len(self._memory):
            raise RefusedPickle(f"it reads memory that was never written, at byte {self.at}")
        return self._memory[place]

    def _top(self) -> Plain:
        if not self._stack:
            raise RefusedPickle(f"a value is missing at byte {self.at}")
        return self._stack[-1]


_STOP: Final = ord(".")

_VALUES: Final[dict[int, Callable[[_Machine], Plain]]] = {
    ord("N"): lambda machine: None,
    0x88: lambda machine: True,
    0x89: lambda machine: False,
    ord("K"): lambda machine: machine.number(_U1, 1),
    ord("M"): lambda machine: machine.number(_U2, 2),
    ord("J"): lambda machine: machine.number(_I4, 4),
    0x8A: lambda machine: machine.integer(machine.number(_U1, 1)),
    ord("G"): lambda machine: machine.real(),
    0x8C: lambda machine: machine.text(machine.number(_U1, 1)),
    ord("X"): lambda machine: machine.text(machine.number(_U4, 4)),
    0x8D: lambda machine: machine.text(machine.number(_U8, 8)),
    ord("]"): lambda machine: [],
    ord("}"): lambda machine: {},
    ord(")"): lambda machine: (),
    ord("t"): lambda machine: tuple(machine.closed()),
    0x85: lambda machine: tuple(machine.popped(1)),
    0x86: lambda machine: tuple(machine.popped(2)),
    0x87: lambda machine: tuple(machine.popped(3)),
    ord("h"): lambda machine: machine.get(machine.number(_U1, 1)),
    ord("j"): lambda machine: machine.get(machine.number(_U4, 4)),
}
"""Instructions that push a value."""

_OTHERS: Final[dict[int, Callable[[_Machine], object]]] = {
    0x80: lambda machine: machine.number(_U1, 1),  # protocol
    0x95: lambda machine: machine.number(_U8, 8),  # length of a frame
    ord("("): lambda machine: machine.open(),
    ord("a"): lambda machine: machine.extend(machine.popped(1)),
    ord("e"): lambda machine: machine.extend(machine.closed()),
    ord("s"): lambda machine: machine.set(machine.popped(2)),
    ord("u"): lambda machine: machine.set(machine.closed()),
    ord("q"): lambda machine: machine.put(machine.number(_U1, 1)),
    ord("r"): lambda machine: machine.put(machine.number(_U4, 4)),
    0x94: lambda machine: machine.put(),
}


OPTION: Final = "--flight-recorder"
_RANK: Final = re.compile(r"(\d{1,9})(?:\.(?:json|pkl|pickle|gz|zst|xz|bz2|lz4))*$")
_RANKS: Final = re.compile(r"\s*\d{1,9}\s*(?:,\s*\d{1,9}\s*)*")
_VERSION: Final = re.compile(r"2\.\d{1,4}")
_MOST_ENTRIES: Final = 1_000_000
_MOST_GROUPS: Final = 100_000
_MOST_MEMBERS: Final = 20_000_000
"""Ranks of all groups of one file, and numbers in the sizes of all its tensors."""
_MOST_DIMENSIONS: Final = 64
"""As in PyTorch."""
_SHOWN: Final = 4
"""Tensors whose sizes are written out."""
_LONGEST_NAME: Final = 512
_STATES: Final = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
_TYPE_BYTES: Final = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "BFloat16": 2,
    "Float": 4, "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
    "Float8_e8m0fnu": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8,
}  # fmt: skip
"""As c10::toString names them."""

_Count = Annotated[int, Meta(ge=0, le=1 << 46)]
_Time = Annotated[int, Meta(ge=0, le=1 << 62)]
_Name = Annotated[str, Meta(max_length=_LONGEST_NAME)]
_Status = Annotated[int, Meta(ge=-1, le=1 << 46)]


class _Dump(Struct):
    version: _Name
    pg_config: Annotated[dict[str, Any], Meta(max_length=_MOST_GROUPS)] = {}
    pg_status: Annotated[dict[str, Any], Meta(max_length=_MOST_GROUPS)] = {}
    entries: list[Any] = []
    """JSON without a collective has none."""


class _Config(Struct):
    ranks: str | list[int]
    desc: _Name = ""


class _GroupStatus(Struct):
    last_enqueued_collective: _Status = UNKNOWN


class _Entry(Struct):
    record_id: _Count
    process_group: tuple[_Name, _Name]
    collective_seq_id: _Count
    profiling_name: _Name
    time_created_ns: _Time
    state: Literal["scheduled", "started", "completed"]
    pg_id: _Count | None = None
    is_p2p: bool = False
    input_sizes: Any = ()
    output_sizes: Any = ()
    input_dtypes: Any = ()
    output_dtypes: Any = ()
    time_discovered_started_ns: _Time | None = None
    time_discovered_completed_ns: _Time | None = None
    duration_ms: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    retired: bool = False


class _Tensors(NamedTuple):
    """Sizes or types of the tensors of one side of a collective."""

    sizes: list[list[int]]
    types: list[str]


def read_flight_recorder(folder: Path, recorded: Recorded) -> None:
    """Add the dumps in a folder; UsageError or UnreadableInput if there is none."""
    dumps: dict[int, _Read] = {}

    def read(path: str) -> None:
        rank = _rank_of(path)
        dump = _read(path, rank, recorded.texts)
        other = dumps.get(rank)
        if other is not None:
            older = min(other, dump, key=lambda each: each.latest_ns)
            recorded.refuse(older.path, f"another file of rank {rank} is newer")
            dump = max(other, dump, key=lambda each: each.latest_ns)
        dumps[rank] = dump

    each(files_in(folder, OPTION), recorded, read)
    if not dumps:
        raise nothing_read(recorded, folder, OPTION, "a dump of PyTorch's flight recorder")
    recorded.files += len(dumps)
    for _, dump in sorted(dumps.items()):
        for group, log in dump.logs:
            recorded.add(group, log)
    nameless = sorted({key.name for key in recorded.logs if key.ranks is None})
    if nameless:
        recorded.notes.append(
            f"{len(nameless)} groups without their ranks in the dumps: who misses a collective of"
            " them is not judged"
        )


class _Read(NamedTuple):
    """One dump."""

    path: str
    latest_ns: int
    logs: list[tuple[GroupKey, RankLog]]


def _rank_of(path: str) -> int:
    """The global rank: only the name of the file says it."""
    match = _RANK.search(os.path.basename(path))
    if match is None:
        raise RefusedRecord("its name does not end with a rank, as nccl_trace_rank_3 does")
    return int(match[1])


def _read(path: str, rank: int, texts: Texts) -> _Read:
    data = content(path)
    try:
        if data[:1] == bytes([MAGIC]):
            tree: Any = plain(data)
        elif data.lstrip()[:1] == b"{":
            tree = msgspec.json.decode(data)
        else:
            raise RefusedRecord("it is neither a pickle nor JSON of the flight recorder")
        dump = msgspec.convert(tree, _Dump)
        if _VERSION.fullmatch(dump.version) is None:
            raise RefusedRecord(f"version {dump.version[:20]!r} of the dump is not 2.x")
        return _Reader(path, rank, texts, dump).read()
    except (RefusedPickle, msgspec.DecodeError) as error:
        raise RefusedRecord(_one_line(error)) from None
    except RecursionError:
        raise RefusedRecord("its values are nested too deeply") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


class _Reader:
    """One dump on its way to logs by group."""

    def __init__(self, path: str, rank: int, texts: Texts, dump: _Dump) -> None:
        self._path, self._rank, self._texts, self._dump = path, rank, texts, dump
        self._walked = 0
        """Members of lists so far: one list may be mentioned many times."""
        self._groups = self._configured()

    def read(self) -> _Read:
        """The logs of all groups that the rank is in."""
        dump = self._dump
        if len(dump.entries) > _MOST_ENTRIES:
            raise RefusedRecord(f"it has more than {_MOST_ENTRIES:,} entries")
        entries = []
        for number, entry in enumerate(dump.entries):
            try:
                entries.append(msgspec.convert(entry, _Entry))
            except msgspec.ValidationError as error:
                raise RefusedRecord(f"entry {number}: {_one_line(error)}") from None
        record_ids = [entry.record_id for entry in entries]
        contiguous = bool(record_ids) and record_ids == list(
            range(record_ids[0], record_ids[0] + len(record_ids))
        )
        whole = contiguous and record_ids[0] == 0
        latest = max((_latest(entry) for entry in entries), default=UNKNOWN)
        shows_start = any(
            entry.time_discovered_started_ns
            and entry.time_discovered_started_ns != entry.time_discovered_completed_ns
            for entry in entries
        )
        of_name: dict[tuple[str, str], list[_Entry]] = defaultdict(list)
        for entry in entries:
            if not _is_pair(entry):
                of_name[entry.process_group].append(entry)
        of_group: dict[GroupKey, list[_Entry]] = {group: [] for group in self._groups.values()}
        for name, members in of_name.items():
            of_group.setdefault(self._group(name), []).extend(members)
        status = self._status(entries)
        logs = []
        for group, members in of_group.items():
            rows = self._rows(members)
            last: int | None = None
            if whole or (contiguous and len(rows)):
                last = int(rows["sequence"].max()) if len(rows) else UNKNOWN
            log = RankLog(
                file=self._path,
                rank=self._rank,
                host=None,
                process=None,
                collectives=rows,
                last_enqueued=last,
                status_enqueued=status.get(group),
                shows_start=shows_start,
                latest_ns=latest,
            )
            logs.append((group, log))
        return _Read(self._path, latest, logs)

    # --- groups ------------------------------------------------------------------------------

    def _configured(self) -> dict[str, GroupKey]:
        groups = {}
        for name, value in self._dump.pg_config.items():
            try:
                config = msgspec.convert(value, _Config)
            except msgspec.ValidationError as error:
                raise RefusedRecord(f"group {name[:40]!r}: {_one_line(error)}") from None
            ranks = self._ranks(config.ranks)
            if ranks and self._rank not in ranks:
                raise RefusedRecord(
                    f"its name says rank {self._rank}, which is not in its group {name[:40]!r}"
                )
            groups[name] = self._key(name, config.desc, ranks)
        return groups

    def _key(self, name: str, description: str, ranks: tuple[int, ...]) -> GroupKey:
        known = ranks or None
        return GroupKey("flight_recorder", name[:_LONGEST_NAME], description, len(ranks), known)

    def _ranks(self, ranks: str | list[int]) -> tuple[int, ...]:
        """`[0, 1]`, as text in dumps; empty if it is not known."""
        self._walk(len(ranks))
        if isinstance(ranks, list):
            return tuple(ranks)
        inner = ranks.strip("\"' []")
        if not inner:
            return ()
        if _RANKS.fullmatch(inner) is None:
            raise RefusedRecord(f"ranks of a group: {ranks[:40]!r}")
        return tuple(int(rank) for rank in inner.split(","))

    def _group(self, named: tuple[str, str]) -> GroupKey:
        group = self._groups.get(named[0])
        return self._key(*named, ()) if group is None else group

    def _status(self, entries: Sequence[_Entry]) -> Mapping[GroupKey, int]:
        """The last collective by group, as far as entries show which group a status is of."""
        names = {entry.pg_id: entry.process_group for entry in entries}
        status = {}
        for id, name in names.items():
            if (value := self._dump.pg_status.get(str(id))) is not None:
                known = msgspec.convert(value, _GroupStatus, strict=False)
                status[self._group(name)] = known.last_enqueued_collective
        return status

    # --- collectives -------------------------------------------------------------------------

    def _rows(self, entries: Sequence[_Entry]) -> Records:
        """COLLECTIVE records; the parts of a coalesced collective are one."""
        parts: dict[int, list[_Entry]] = defaultdict(list)
        for entry in entries:
            parts[entry.collective_seq_id].append(entry)
        rows = np.zeros(len(parts), COLLECTIVE)
        for place, (sequence, members) in enumerate(parts.items()):
            names = dict.fromkeys(_operation(entry) for entry in members)
            if len(names) > 1:
                names.pop("coalesced", None)
            state = max(_STATES[entry.state] for entry in members)
            inputs = _joined(self._tensors(e.input_sizes, e.input_dtypes) for e in members)
            outputs = _joined(self._tensors(e.output_sizes, e.output_dtypes) for e in members)
            durations = [e.duration_ms for e in members if e.duration_ms is not None]
            sizes = [n for n in (_bytes(inputs), _bytes(outputs)) if n is not None]
            rows[place] = (
                sequence,
                self._texts.number(", ".join(names)[:_LONGEST_NAME]),
                self._texts.number(_sizes_text(inputs)),
                self._texts.number(_sizes_text(outputs)),
                self._texts.number(_types_text(inputs, outputs)),
                max(sizes, default=UNKNOWN),
                min(entry.time_created_ns for entry in members),
                _first([entry.time_discovered_started_ns for entry in members]),
                _first([entry.time_discovered_completed_ns for entry in members]),
                round(max(durations) * 1e6) if durations else UNKNOWN,
                state,
                state != COMPLETED and any(entry.retired for entry in members),
            )
        return rows

    def _tensors(self, sizes: object, types: object) -> _Tensors:
        if not isinstance(sizes, list | tuple) or not isinstance(types, list | tuple):
            raise RefusedRecord("sizes or types of tensors are no lists")
        self._walk(len(sizes) + len(types))
        for tensor in sizes:
            if not isinstance(tensor, list | tuple):
                raise RefusedRecord("a size of a tensor is no list")
            self._walk(len(tensor))
            if len(tensor) > _MOST_DIMENSIONS:
                raise RefusedRecord(f"a tensor has {len(tensor)} dimensions")
            if not all(type(n) is int and 0 <= n < 1 << 62 for n in tensor):
                raise RefusedRecord("a size of a tensor is no number")
        if not all(type(name) is str and len(name) <= _LONGEST_NAME for name in types):
            raise RefusedRecord("a type of a tensor is no name")
        return _Tensors([list(tensor) for tensor in sizes], list(types))

    def _walk(self, members: int) -> None:
        self._walked += members
        if self._walked > _MOST_MEMBERS:
            raise RefusedRecord("its lists are larger than any job needs")


def _is_pair(entry: _Entry) -> bool:
    """Sends and receives: numbered on their own, and by the ranks of a pair only."""
    return entry.is_p2p or _operation(entry).startswith(("send ", "recv "))


def _operation(entry: _Entry) -> str:
    """`all_reduce` of `nccl:all_reduce`."""
    return entry.profiling_name.partition(":")[2] or entry.profiling_name


def _latest(entry: _Entry) -> int:
    times = entry.time_created_ns, entry.time_discovered_started_ns
    return max(time or 0 for time in (*times, entry.time_discovered_completed_ns))


def _first(times: Sequence[int | None]) -> int:
    """The first time; JSON writes 0 for none."""
    return min((time for time in times if time), default=UNKNOWN)


def _joined(parts: Any) -> _Tensors:
    joined = _Tensors([], [])
    for part in parts:
        joined.sizes.extend(part.sizes)
        joined.types.extend(part.types)
    return joined


def _bytes(tensors: _Tensors) -> int | None:
    """Sum over the tensors; None: a type or its size is unknown, or it is no plausible size."""
    if len(tensors.sizes) != len(tensors.types):
        return None
    total = 0
    for size, name in zip(tensors.sizes, tensors.types, strict=True):
        if name not in _TYPE_BYTES:
            return None
        elements = 1
        for n in size:
            elements = min(elements * n, 1 << 62)
        total += elements * _TYPE_BYTES[name]
    return total if total < 1 << 62 else None


def _sizes_text(tensors: _Tensors) -> str:
    """`[1024 x 3], [8]`."""
    parts = ["[" + " x ".join(map(str, size)) + "]" for size in tensors.sizes[:_SHOWN]]
    text = ", ".join(parts)
    if len(tensors.sizes) > _SHOWN:
        of_all = crc32(str(tensors.sizes).encode())
        text += f" and {len(tensors.sizes) - _SHOWN} more (checksum {of_all:08x})"
    return text


def _types_text(inputs: _Tensors, outputs: _Tensors) -> str:
    return ", ".join(dict.fromkeys([*inputs.types, *outputs.types]))

"""PyTorch's flight recorder: one dump per rank, as a pickle that is not executed, or as JSON.

Form: versions 2.0 to 2.10 of FlightRecorder.hpp in PyTorch. A dump holds the newest collectives of
a process, 2,000 by default, of all its process groups.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from zlib import crc32

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ...kernels.kernel import Records
from .plain_pickle import MAGIC, RefusedPickle, plain
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

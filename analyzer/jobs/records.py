"""Collectives that a job recorded itself: who misses one, who calls it differently, who is late."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from ...kernels.kernel import Ints, Records
from ..capture.bytestream import RawStream, compression
from ..errors import RocescopeError, UnreadableInput, UsageError
from ..results.job_records import (
    CollectiveVariant,
    LateRank,
    MismatchedCollective,
    MissingCollective,
    RecordedGroup,
    RecordedRank,
    RecordSource,
)
from ..words import printable

if TYPE_CHECKING:
    from ..capture.decompress import DecompressedStream

UNKNOWN: Final = -1
"""In columns of COLLECTIVE."""
SCHEDULED, STARTED, COMPLETED = range(3)

COLLECTIVE: Final = np.dtype(
    [
        ("sequence", np.int64),
        ("operation", np.int32),
        ("inputs", np.int32),
        ("outputs", np.int32),
        ("types", np.int32),
        ("bytes", np.int64),
        ("created_ns", np.int64),
        ("started_ns", np.int64),
        ("completed_ns", np.int64),
        ("execution_ns", np.int64),
        ("state", np.int8),
        ("timed_out", np.bool_),
    ]
)
"""One collective of one rank. operation, inputs and outputs (sizes) and types are numbers of
`Texts`; bytes: the larger of input and output; times: since 1970, by the clock of the host."""

MOST_COLLECTIVES: Final = 4_000_000
"""Of all ranks: 61 bytes each."""
MOST_FILE_BYTES: Final = 1 << 28
"""Of one file, decompressed."""
_MOST_FILES: Final = 20_000
_STALE_NS: Final = 3_600_000_000_000
"""Records that end this long before others may be of an earlier run."""
_MAGIC_BYTES: Final = 16
_MOST_NAMED: Final = 3
MOST_LISTED: Final = 1_000
"""Ranks without records in a result."""
MOST_MISTAKES: Final = 20
"""Notes on single files; the others are counted."""
_SAME_ON_ALL: Final = frozenset(
    ("all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base", "AllReduce",
     "AllGather", "ReduceScatter", "Broadcast", "Reduce")
)  # fmt: skip
"""Operations whose sizes and types are the same on all ranks."""
_NEEDS_ALL: Final = frozenset(
    ("all_reduce", "all_reduce_barrier", "all_gather", "_all_gather_base", "reduce_scatter",
     "_reduce_scatter_base", "AllReduce", "AllGather", "ReduceScatter")
)  # fmt: skip
"""Operations that no rank completes before all have entered them."""
_LATE: Final = 0.05
"""Of the median execution: what a shorter one must differ by to be late."""
_FEWEST: Final = 3
"""Collectives to name the slowest rank by."""


class RefusedRecord(ValueError):
    """Records that cannot be used; says why."""


class Texts:
    """Numbers of texts that repeat."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.all: list[str] = []
        """By number."""

    def number(self, text: str) -> int:
        """The number of a text."""
        number = self._numbers.setdefault(text, len(self.all))
        if number == len(self.all):
            self.all.append(text)
        return number


class GroupKey(NamedTuple):
    """What identifies a process group over all ranks."""

    source: RecordSource
    name: str
    description: str
    size: int
    ranks: tuple[int, ...] | None
    """Global ranks, in the order of the ranks within the group; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class RankLog:
    """What one rank recorded of one group."""

    file: str
    rank: int
    """Global if the group knows global ranks, else within the group."""
    host: str | None
    process: tuple[str, int] | None
    """Host and PID, if the records have them."""
    collectives: Records
    """COLLECTIVE records in the order of the file."""
    last_enqueued: int | None = None
    """Number of the last collective that the rank called; None: not certain."""
    status_enqueued: int | None = None
    """The same as the group's status says, which also counts sends and receives."""
    shows_start: bool = False
    """The records show when collectives start."""
    latest_ns: int = UNKNOWN
    """The last time anywhere in the file."""


@dataclass
class Recorded:
    """All records of a job."""

    texts: Texts = field(default_factory=Texts)
    logs: dict[GroupKey, list[RankLog]] = field(default_factory=lambda: defaultdict(list))
    files: int = 0
    collectives: int = 0
    notes: list[str] = field(default_factory=list)
    mistakes: int = 0

    def add(self, group: GroupKey, log: RankLog) -> None:
        """Keep what one rank recorded of a group."""
        self.logs[group].append(log)
        self.collectives += len(log.collectives)

    def refuse(self, path: str, why: object) -> None:
        """Note a file that is not used."""
        self.mistakes += 1
        if self.mistakes <= MOST_MISTAKES:
            self.notes.append(f"{printable(os.path.basename(path))}: not used: {why}")

    def finish(self) -> None:
        """Note what was too much to note one by one."""
        if self.mistakes > MOST_MISTAKES:
            self.notes.append(f"{self.mistakes - MOST_MISTAKES} more files were not used")


# --- files of a folder -----------------------------------------------------------------------


def files_in(folder: Path, option: str) -> list[str]:
    """The regular files in a folder and its folders, sorted; UsageError without one."""
    if not folder.is_dir():
        raise UsageError(f"{option}: {folder} is not a folder")
    paths = sorted(
        path
        for parent, folders, names in os.walk(folder)
        for name in names
        if os.path.isfile(path := os.path.join(parent, name)) and not name.startswith(".")
    )
    if not paths:
        raise UsageError(f"{option}: no file is in {folder}")
    if len(paths) > _MOST_FILES:
        raise UsageError(f"{option}: {folder} holds {len(paths):,} files: name a smaller folder")
    return paths


def content(path: str) -> bytes:
    """The bytes of a file, decompressed; RefusedRecord if it is too large or unreadable."""
    raw = RawStream(path)
    stream: RawStream | DecompressedStream = raw
    if (kind := compression(raw.peek(_MAGIC_BYTES))) is not None:
        from ..capture.decompress import DecompressedStream  # its libraries load slowly

        stream = DecompressedStream(raw, kind)
    with closing(stream):
        pieces, left = [], MOST_FILE_BYTES + 1
        piece = memoryview(bytearray(1 << 20))
        while left > 0 and (got := stream.read_into(piece)):
            pieces.append(bytes(piece[:got]))
            left -= got
    if left <= 0:
        raise RefusedRecord(f"it is larger than {MOST_FILE_BYTES >> 20} MiB")
    return b"".join(pieces)


def each(paths: Iterable[str], recorded: Recorded, read: Callable[[str], None]) -> None:
    """Read each file; those that cannot be used are noted."""
    for path in paths:
        try:
            if recorded.collectives >= MOST_COLLECTIVES:
                raise RefusedRecord(f"more than {MOST_COLLECTIVES:,} collectives before it")
            read(path)
        except (RefusedRecord, RocescopeError) as error:
            recorded.refuse(path, error)


def nothing_read(recorded: Recorded, folder: Path, option: str, what: str) -> UnreadableInput:
    """The error for a folder without any usable file."""
    why = f": {recorded.notes[0]}" if recorded.notes else ""
    return UnreadableInput(f"{option}: no file in {folder} is {what}{why}")


# --- groups ----------------------------------------------------------------------------------


def groups_of(recorded: Recorded) -> list[RecordedGroup]:
    """The groups with their ranks, in the order of their names; ids are places in it."""
    groups = []
    for id, (key, logs) in enumerate(in_order(recorded)):
        ranks = []
        inspector = key.source == "nccl_inspector"
        numbers = range(key.size) if key.ranks is None and inspector else key.ranks or ()
        places = {rank: place for place, rank in enumerate(numbers)}
        for log in sorted(logs, key=lambda log: log.rank):
            sequences = log.collectives["sequence"]
            numbered = not inspector and len(sequences) > 0
            ranks.append(
                RecordedRank(
                    rank=log.rank,
                    group_rank=places.get(log.rank),
                    host=log.host,
                    collectives=len(sequences),
                    first_sequence=int(sequences.min()) if numbered else None,
                    last_sequence=int(sequences.max()) if numbered else None,
                )
            )
        known = {log.rank for log in logs}
        groups.append(
            RecordedGroup(
                id=id,
                source=key.source,
                name=key.name,
                description=key.description,
                size=key.size,
                ranks_are="group" if key.ranks is None else "global",
                ranks=ranks,
                unrecorded=[rank for rank in numbers if rank not in known][:MOST_LISTED],
            )
        )
    return groups


def in_order(recorded: Recorded) -> list[tuple[GroupKey, list[RankLog]]]:
    """Groups and their logs; the place of a group is its id."""
    return sorted(recorded.logs.items(), key=lambda item: (item[0].source, _natural(item[0])))


def _natural(key: GroupKey) -> tuple[int, str, tuple[int, ...]]:
    return (-key.size, key.name, key.ranks or ())


def _current(recorded: Recorded, logs: Sequence[RankLog]) -> dict[int, RankLog]:
    """Logs by rank, without those that may be of an earlier run."""
    newest = max((log.latest_ns for each in recorded.logs.values() for log in each), default=0)
    return {log.rank: log for log in logs if log.latest_ns >= newest - _STALE_NS}


# --- missing collectives ---------------------------------------------------------------------


def missing_of(recorded: Recorded, notes: list[str]) -> list[MissingCollective]:
    """For each group of the flight recorder the first collective that is not complete.

    notes: gets what is not judged.
    """
    found = []
    for id, (key, logs) in enumerate(in_order(recorded)):
        if key.source != "flight_recorder" or key.ranks is None or key.size < 2:
            continue
        current = _current(recorded, logs)
        old = len(logs) - len(current)
        if old:
            notes.append(
                f"group {_named(key)}: the records of {old} ranks end more than an hour before"
                " others: perhaps of an earlier run, not judged"
            )
        missing = _first_incomplete(recorded.texts.all, id, key, current, notes)
        if missing is not None:
            found.append(missing)
    return found


def _first_incomplete(
    texts: Sequence[str],
    id: int,
    key: GroupKey,
    logs: Mapping[int, RankLog],
    notes: list[str],
) -> MissingCollective | None:
    open_in = [
        int(open_rows["sequence"].min())
        for log in logs.values()
        if len(open_rows := log.collectives[log.collectives["state"] < COMPLETED])
    ]
    if not open_in:
        return None
    sequence = min(open_in)
    assert key.ranks is not None
    rows: dict[int, Records] = {}
    absent, unknown = [], []
    for rank in key.ranks:
        log = logs.get(rank)
        row = None if log is None else _row(log, sequence)
        if row is not None:
            rows[rank] = row
        elif log is not None and _never_called(log, sequence):
            absent.append(rank)
        else:
            unknown.append(rank)
    operation = texts[int(next(iter(rows.values()))["operation"])]
    completed = [rank for rank, row in rows.items() if row["state"] == COMPLETED]
    waiting = [rank for rank, row in rows.items() if row["state"] < COMPLETED]
    timed_out = any(bool(row["timed_out"]) for row in rows.values())
    if absent and completed and operation in _NEEDS_ALL:
        unknown = sorted(unknown + absent)  # their records are older than the end of it
        absent = []
    lacking: Literal["enqueued", "started", "completed"] = "completed"
    ranks: list[int] = []
    scheduled = [rank for rank in waiting if rows[rank]["state"] == SCHEDULED]
    started = [rank for rank in waiting if rows[rank]["state"] == STARTED]
    if absent:
        lacking, ranks = "enqueued", absent
    elif scheduled and started and all(logs[rank].shows_start for rank in waiting):
        lacking, ranks, waiting = "started", scheduled, started
    elif completed:
        if not timed_out:
            notes.append(
                f"group {_named(key)}: {operation} {sequence} was in flight on"
                f" {listed('rank', waiting)} when the records were written"
            )
            return None
        ranks, waiting = waiting, []
    created = min(int(row["created_ns"]) for row in rows.values())
    return MissingCollective(
        group=id,
        sequence=sequence,
        operation=operation,
        lacking=lacking,
        ranks=ranks,
        waiting=waiting,
        unknown=unknown,
        timed_out=timed_out,
        since_ns=created,
    )


def _row(log: RankLog, sequence: int) -> Records | None:
    places = np.flatnonzero(log.collectives["sequence"] == sequence)
    return log.collectives[places[0]] if len(places) else None


def _never_called(log: RankLog, sequence: int) -> bool:
    """Whether it is certain that the rank had not called a collective that it has not recorded."""
    if log.last_enqueued is not None:
        return log.last_enqueued < sequence
    return log.status_enqueued == sequence - 1


# --- mismatches ------------------------------------------------------------------------------


def mismatches_of(recorded: Recorded) -> list[MismatchedCollective]:
    """For each group the first collective that ranks called differently.

    After it, numbers of the group do not belong together any more.
    """
    found = []
    for id, (key, logs) in enumerate(in_order(recorded)):
        current = list(_current(recorded, logs).values())
        if len(current) < 2 or (key.source == "flight_recorder" and key.ranks is None):
            continue
        mismatch = _first_mismatch(recorded.texts.all, id, key, current)
        if mismatch is not None:
            found.append(mismatch)
    return found


def _first_mismatch(
    texts: Sequence[str], id: int, key: GroupKey, logs: Sequence[RankLog]
) -> MismatchedCollective | None:
    rows = np.concatenate([log.collectives for log in logs])
    owner = np.repeat([log.rank for log in logs], [len(log.collectives) for log in logs])
    compared = np.array([text in _SAME_ON_ALL for text in texts] or [False])
    inspector = key.source == "nccl_inspector"  # it numbers each operation on its own
    order = np.lexsort((owner, rows["sequence"], rows["operation"] * inspector))
    rows, owner = rows[order], owner[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = rows["sequence"][1:] != rows["sequence"][:-1]
    if inspector:
        new[1:] |= rows["operation"][1:] != rows["operation"][:-1]
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    like = rows[first]
    same = compared[rows["operation"]]
    operation = rows["operation"] != like["operation"]
    types = same & (rows["types"] != like["types"])
    sizes = same & ((rows["inputs"] != like["inputs"]) | (rows["outputs"] != like["outputs"]))
    differing = np.flatnonzero(operation | types | sizes)
    if not len(differing):
        return None
    at = int(differing[np.argmin(rows["sequence"][differing])])
    members = np.flatnonzero(first == first[at])
    differs: Literal["operation", "size", "type"] = "size"
    if operation[members].any():
        differs = "operation"
    elif types[members].any():
        differs = "type"
    variants: dict[tuple[str, str], list[int]] = defaultdict(list)
    for member in members.tolist():
        row = rows[member]
        sizes_text = _sizes(texts, row)
        variants[texts[int(row["operation"])], sizes_text].append(int(owner[member]))
    return MismatchedCollective(
        group=id,
        sequence=int(rows["sequence"][at]),
        differs=differs,
        variants=[
            CollectiveVariant(name, sizes, ranks)
            for (name, sizes), ranks in sorted(variants.items(), key=lambda v: -len(v[1]))
        ],
    )


def _sizes(texts: Sequence[str], row: Records) -> str:
    inputs, outputs = texts[int(row["inputs"])], texts[int(row["outputs"])]
    types = texts[int(row["types"])]
    sizes = inputs if inputs == outputs else f"{inputs} to {outputs}"
    return f"{sizes} {types}".strip()


# --- late ranks ------------------------------------------------------------------------------


def late_of(recorded: Recorded) -> list[LateRank]:
    """Ranks that enter collectives last, by their own execution times.

    The execution of a rank begins when it enters and ends when all have: the last one has the
    shortest. Only operations in which each rank waits for all count, and only where all ranks of
    the group have a time.
    """
    found = []
    for id, (key, logs) in enumerate(in_order(recorded)):
        current = _current(recorded, logs)
        if key.size < 2 or len(current) < key.size:
            continue
        times = _execution_times(recorded.texts.all, list(current.values()))
        if len(times):
            found += _late(id, list(current), times)
    return found


def _execution_times(texts: Sequence[str], logs: Sequence[RankLog]) -> Ints:
    """int64[collectives, ranks] ns: of the collectives that all have timed."""
    needs_all = np.array([text in _NEEDS_ALL for text in texts] or [False])
    by_rank = []
    for log in logs:
        rows = log.collectives
        rows = rows[(rows["execution_ns"] >= 0) & needs_all[rows["operation"]]]
        keys = rows["operation"].astype(np.int64) << 48 | rows["sequence"] & ((1 << 48) - 1)
        keys, places = np.unique(keys, return_index=True)
        by_rank.append((keys, rows["execution_ns"][places]))
    common = by_rank[0][0]
    for keys, _ in by_rank[1:]:
        common = np.intersect1d(common, keys, assume_unique=True)
    if not len(common):
        return np.zeros((0, len(logs)), np.int64)
    return np.stack([times[np.searchsorted(keys, common)] for keys, times in by_rank], axis=1)


def _late(id: int, ranks: Sequence[int], times: Ints) -> list[LateRank]:
    middle = np.median(times, axis=1)
    shortest = times.min(axis=1)
    last = times.argmin(axis=1)
    clear = (times == shortest[:, None]).sum(axis=1) == 1
    clear &= middle - shortest > _LATE * middle
    found = []
    for place, rank in enumerate(ranks):
        mine = clear & (last == place)
        count = int(mine.sum())
        if count:
            waited = int((middle - shortest)[mine].sum())
            slowest = len(times) >= _FEWEST and count > len(times) / 2
            found.append(
                LateRank(
                    group=id,
                    rank=rank,
                    last=count,
                    collectives=len(times),
                    others_wait_ns=waited,
                    slowest=slowest,
                )
            )
    return sorted(found, key=lambda late: -late.others_wait_ns)


def _named(key: GroupKey) -> str:
    text = printable(key.name)
    return f"{text} ({printable(key.description)})" if key.description else text


def listed(noun: str, ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 2, 3 and 5`, `ranks 0, 1, 2 and 5 more`."""
    if len(ranks) == 1:
        return f"{noun} {ranks[0]}"
    shown = [str(rank) for rank in ranks[:_MOST_NAMED]]
    left = len(ranks) - len(shown)
    if left > 0:
        shown.append(f"{left} more")
    return f"{noun}s {', '.join(shown[:-1])} and {shown[-1]}"

"""NCCL Inspector and RCCL Inspector: a JSON object per line, for each completed collective.

Forms 4.0 to 4.2 repeat header and metadata in each line; in form 4.3 a line with `dump_stats` has
them for the lines that follow it. The Inspector writes what is complete, and in its first releases
only the newest collective per interval: a collective that is not there says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from .lines import lines
from .records import (
    COLLECTIVE,
    COMPLETED,
    MOST_COLLECTIVES,
    UNKNOWN,
    GroupKey,
    RankLog,
    Recorded,
    RefusedRecord,
    each,
    files_in,
    nothing_read,
)

OPTION: Final = "--nccl-inspector"
_US: Final = 1_000
_TIMED_BY_KERNEL: Final = frozenset(("kernel_gpu", "kernel_cpu"))
"""Other sources time the call of a collective, not its execution."""

_Count = Annotated[int, Meta(ge=0, le=1 << 46)]
_Bytes = Annotated[int, Meta(ge=0, le=1 << 62)]
_Micros = Annotated[int, Meta(ge=0, le=1 << 52)]
_Name = Annotated[str, Meta(max_length=256)]


class _Header(Struct):
    id: _Name
    rank: Annotated[int, Meta(ge=0, lt=1 << 20)]
    n_ranks: Annotated[int, Meta(ge=1, le=1 << 20)]
    comm_name: _Name = ""


class _Metadata(Struct):
    hostname: _Name = ""
    pid: _Count = 0
    dump_timestamp_us: _Micros = 0


class _Kernel(Struct):
    kernel_start_ts: _Micros = 0
    kernel_stop_ts: _Micros = 0


class _Trace(Struct):
    coll_start_ts: _Micros = 0
    kernel_events: list[_Kernel] = []


class _Collective(Struct):
    coll: _Name
    coll_sn: _Count
    coll_msg_size_bytes: _Bytes
    coll_exec_time_us: _Micros
    coll_timing_source: _Name = "kernel_gpu"
    """The first release had no other."""
    event_trace_ts: _Trace | None = None


class _Stats(Struct):
    coll_records: _Count
    coll_dropped_since_last_dump: _Count = 0


class _Line(Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Collective | None = None
    dump_stats: _Stats | None = None
    p2p_perf: msgspec.Raw = msgspec.Raw()
    proxy_trace: msgspec.Raw = msgspec.Raw()


class _Key(NamedTuple):
    """One rank of one communicator in one process."""

    comm: str
    name: str
    size: int
    rank: int
    host: str
    pid: int


@dataclass
class _Counts:
    """What the files leave out."""

    unreadable: int = 0
    first: str = ""
    """The first line that could not be read, and why."""
    dropped: int = 0
    pairs: int = 0
    rows: int = 0
    by_key: dict[_Key, list[tuple[object, ...]]] = field(default_factory=lambda: defaultdict(list))


def read_inspector(folder: Path, recorded: Recorded) -> None:
    """Add the files in a folder; UsageError or UnreadableInput if none has records."""
    counts = _Counts()

    def read(path: str) -> None:
        before = counts.rows + counts.pairs
        _read(path, recorded, counts)
        if counts.rows + counts.pairs == before:
            raise RefusedRecord("no line of it is a record of the Inspector")
        recorded.files += 1

    before = recorded.files
    each(files_in(folder, OPTION), recorded, read)
    if recorded.files == before:
        raise nothing_read(recorded, folder, OPTION, "a log of NCCL Inspector")
    _add(recorded, counts)
    if counts.unreadable:
        recorded.notes.append(
            f"NCCL Inspector: {counts.unreadable:,} lines could not be read; {counts.first}"
        )
    if counts.dropped:
        recorded.notes.append(
            f"NCCL Inspector itself dropped {counts.dropped:,} collectives: its interval is long"
        )
    recorded.notes.append(
        "NCCL Inspector records completed collectives only: it does not show who misses one"
    )


def _read(path: str, recorded: Recorded, counts: _Counts) -> None:
    decoder = msgspec.json.Decoder(_Line)
    header: _Header | None = None
    metadata: _Metadata | None = None
    left = 0
    """Lines that belong to the last `dump_stats`."""
    for number, text in enumerate(lines(path), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            _unreadable(counts, path, number, str(error))
            continue
        if line.dump_stats is not None:
            header, metadata = line.header, line.metadata
            left = line.dump_stats.coll_records
            counts.dropped += line.dump_stats.coll_dropped_since_last_dump
        elif line.coll_perf is not None:
            whose, where = line.header, line.metadata
            if whose is None and left > 0:
                whose, where, left = header, metadata, left - 1
            if whose is None:
                _unreadable(counts, path, number, "no header belongs to it")
            elif counts.rows >= MOST_COLLECTIVES:
                raise RefusedRecord(
                    f"more than {MOST_COLLECTIVES:,} collectives until line {number}"
                )
            else:
                _keep(recorded, counts, whose, where or _Metadata(), line.coll_perf)
        elif line.p2p_perf or line.proxy_trace:
            counts.pairs += 1
        else:
            _unreadable(counts, path, number, "it holds nothing that is known")


def _unreadable(counts: _Counts, path: str, number: int, why: str) -> None:
    counts.unreadable += 1
    counts.first = counts.first or f"first line {number} of {Path(path).name}: {why[:120]}"


def _keep(
    recorded: Recorded, counts: _Counts, header: _Header, metadata: _Metadata, said: _Collective
) -> None:
    number = recorded.texts.number
    trace = said.event_trace_ts or _Trace()
    starts = [kernel.kernel_start_ts for kernel in trace.kernel_events if kernel.kernel_start_ts]
    stops = [kernel.kernel_stop_ts for kernel in trace.kernel_events if kernel.kernel_stop_ts]
    timed = said.coll_timing_source in _TIMED_BY_KERNEL
    size = number(f"{said.coll_msg_size_bytes} bytes")
    key = _Key(header.id, header.comm_name, header.n_ranks, header.rank, metadata.hostname,
               metadata.pid)  # fmt: skip
    counts.rows += 1
    counts.by_key[key].append((
        said.coll_sn, number(said.coll), size, size, number(""), said.coll_msg_size_bytes,
        trace.coll_start_ts * _US or UNKNOWN,
        min(starts, default=0) * _US or UNKNOWN,
        max(stops, default=metadata.dump_timestamp_us) * _US or UNKNOWN,
        said.coll_exec_time_us * _US if timed else UNKNOWN,
        COMPLETED, False,
    ))  # fmt: skip


def _add(recorded: Recorded, counts: _Counts) -> None:
    """Logs by communicator, with global ranks where one communicator has all processes."""
    world = _world(counts)
    for key in sorted(counts.by_key):
        rows = np.array(counts.by_key.pop(key), COLLECTIVE)
        name = "" if key.name == "unknown" else key.name
        recorded.add(
            GroupKey("nccl_inspector", key.comm, name, key.size, world.get(key.comm)),
            RankLog(
                file=key.host,
                rank=key.rank if (known := world.get(key.comm)) is None else known[key.rank],
                host=key.host or None,
                process=(key.host, key.pid),
                collectives=rows,
                latest_ns=int(rows["completed_ns"].max()),
            ),
        )


def _world(counts: _Counts) -> dict[str, tuple[int, ...]]:
    """Global ranks by communicator, in the order of its ranks.

    They are the ranks of the one largest communicator, if each process has one rank of it and it
    has all processes. Communicators whose ranks are not all recorded get none.
    """
    members: dict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    doubtful = set()
    for key in counts.by_key:
        process = (key.host, key.pid)
        if members[key.comm].setdefault(key.rank, process) != process or (
            sizes.setdefault(key.comm, key.size) != key.size
        ):
            doubtful.add(key.comm)
    processes = {process for ranks in members.values() for process in ranks.values()}
    whole = [
        comm
        for comm, ranks in members.items()
        if comm not in doubtful
        and _all_recorded(ranks, sizes[comm])
        and len(set(ranks.values())) == sizes[comm] == len(processes)
    ]
    numberings = {
        tuple(sorted((process, rank) for rank, process in members[comm].items())) for comm in whole
    }
    if len(numberings) != 1:
        return {}
    global_rank = dict(numberings.pop())
    return {
        comm: tuple(global_rank[ranks[rank]] for rank in range(sizes[comm]))
        for comm, ranks in members.items()
        if comm not in doubtful and _all_recorded(ranks, sizes[comm])
    }


def _all_recorded(ranks: Mapping[int, object], size: int) -> bool:
    return len(ranks) == size and max(ranks) == size - 1

"""Files of training jobs: Chakra, GOAL, JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...analyzer.errors import UsageError
from ..packets.model.model import PS
from .collectives import (
    ALL_REDUCES,
    PLAIN,
    Collective,
    Graph,
    all_to_all,
    from_root,
    half_ring,
    to_root,
)
from .tasks import Tasks

# Jobs as JSON, see docs/replay.md: ranks, messages, computations, and what they wait for.

_US_PS = 1000 * PS
_SHOWN = 64
"""Characters of a name in an error."""


class _Node(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    rank: int
    to: int | None = None
    bytes: int | None = None
    compute_us: float | None = None
    after: list[str] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    ranks: int
    nodes: list[_Node]
    priority: str = ""


def read_json(path: Path) -> tuple[Graph, str]:
    """(the graph of a job, class of its data, empty if not given). UsageError names the file and
    the node."""
    try:
        given = msgspec.json.decode(path.read_bytes(), type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Tasks(path.name, 0).fail(f"not JSON of a job: {error}") from None
    if not 2 <= given.ranks <= 1 << 16:
        raise Tasks(path.name, 0).fail(f"ranks must be 2 to {1 << 16:,}, not {given.ranks:,}")
    tasks = Tasks(path.name, given.ranks)
    known: dict[str, int] = {}
    for node in given.nodes:
        name = _name(node.id)
        if node.id in known:
            raise tasks.fail(f"{name} is given twice")
        message = node.to is not None or node.bytes is not None
        if message == (node.compute_us is not None):
            raise tasks.fail(f"{name}: give 'to' and 'bytes', or 'compute_us'")
        if node.compute_us is not None:
            if not 0 <= node.compute_us <= 3.6e9:
                raise tasks.fail(f"{name}: compute_us must be 0 to 3.6e9 (an hour)")
            known[node.id] = tasks.compute(node.rank, round(node.compute_us * _US_PS), name)
        elif node.to is None or node.bytes is None:
            raise tasks.fail(f"{name}: a message needs 'to' and 'bytes'")
        else:
            known[node.id] = tasks.send(node.rank, node.to, node.bytes, name)
    ends = {node.id: (node.rank, node.to) for node in given.nodes}
    for node in given.nodes:
        for before in node.after:
            if before not in known:
                raise tasks.fail(
                    f"{_name(node.id)} waits for {before[:_SHOWN]!r}, which does not exist"
                )
            if node.rank not in ends[before]:
                raise tasks.fail(
                    f"{_name(node.id)} of rank {node.rank} waits for {before[:_SHOWN]!r}, which "
                    "neither begins nor ends there"
                )
            tasks.wait(known[node.id], known[before])
    return tasks.graph(), given.priority


def _name(node: str) -> str:
    return f"node {node[:_SHOWN]!r}"


# Execution traces of MLCommons Chakra: one file per rank, PREFIX.0.et, PREFIX.1.et, ...
#
# A file is a sequence of protobuf messages, each after its length as a varint: GlobalMetadata, then
# nodes. Source: schema/protobuf/et_def.proto of github.com/mlcommons/chakra (version 0.0.4).
# Computations take `duration_micros`. Sends, receives and collectives have their sizes and partners
# in attributes (`comm_size`, `comm_dst`, `comm_src`, `comm_tag`, `comm_type`, `pg_name`). The k-th
# collective of a process group and kind is one operation of all ranks of the group: those with a
# collective of that `pg_name`, all ranks for collectives without one. The schema has no root of
# broadcasts and reductions: it is assumed to be the first rank.

MOST_RANKS = 1 << 14
_SEND, _RECEIVE, _COLLECTIVE = 5, 6, 7
_ID, _NAME, _TYPE, _CONTROL_DEPENDENCIES, _DATA_DEPENDENCIES, _DURATION, _ATTRIBUTE = (
    1, 2, 3, 4, 5, 7, 10
)  # fmt: skip
"""Fields of a node."""
_INTEGERS = (7, 9, 11, 13)
"""Fields of an attribute: int32, int64, uint32, uint64."""
_SIGNED = (15, 17)
_TEXT = 29
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class _ChakraNode(NamedTuple):
    id: int
    name: str
    type: int
    after: list[int]
    takes_us: int
    attributes: dict[str, int | str]


def read_chakra(prefix: str, all_reduce: Collective) -> tuple[Graph, tuple[str, ...]]:
    """(the graph of the traces, notes). all_reduce: the algorithm of all-reduces. UsageError names
    the file and the node."""
    files = trace_files(prefix)
    tasks = Tasks(f"{prefix}.*.et", len(files))
    known: list[dict[int, int]] = []
    waits: list[list[tuple[int, list[int]]]] = []
    joined: dict[tuple[str, int, int], list[tuple[int, int, int, str]]] = {}
    groups: dict[str, set[int]] = {"": set(range(len(files)))}
    timeless = 0
    for rank, path in enumerate(files):
        after: list[tuple[int, list[int]]] = []
        dependencies: dict[int, int] = {}
        order: dict[tuple[str, int], int] = {}
        for node in _nodes(path):
            name = f"{path.name} node {node.id}"
            after.append((node.id, node.after))
            if node.id in dependencies:
                raise tasks.fail(f"{name} is given twice")
            if node.type == _COLLECTIVE:
                kind = _number(tasks, node, "comm_type", name)
                if kind not in _COLLECTIVES:
                    raise tasks.fail(f"{name}: collective {kind} is not supported")
                group = str(node.attributes.get("pg_name", ""))
                at = order.get((group, kind), 0)
                order[group, kind] = at + 1
                groups.setdefault(group, set()).add(rank)
                entry = tasks.compute(rank, 0, name)
                size = _size(tasks, node, name) if kind != _BARRIER else 1
                joined.setdefault((group, kind, at), []).append((rank, entry, size, name))
                dependencies[node.id] = entry
            elif node.type == _SEND:
                to, size = _number(tasks, node, "comm_dst", name), _size(tasks, node, name)
                dependencies[node.id] = tasks.send(rank, to, size, name, _tag(node))
            elif node.type == _RECEIVE:
                source = _number(tasks, node, "comm_src", name)
                dependencies[node.id] = tasks.receive(rank, source, _tag(node), name)
            else:
                timeless += not node.takes_us and "num_ops" in node.attributes
                dependencies[node.id] = tasks.compute(rank, node.takes_us * _US_PS, name, 0)
        known.append(dependencies)
        waits.append(after)
    ends: dict[int, int] = {}  # entry of a collective: its end at the rank
    for (group, kind, at), parts in joined.items():
        sizes = {size for _, _, size, _ in parts}
        name = parts[0][3]
        missing = groups[group].difference(rank for rank, *_ in parts)
        if missing:
            raise tasks.fail(
                f"{name}: rank {min(missing)} lacks this collective (number {at + 1:,} with "
                f"comm_type {kind} of process group {group[:_SHOWN]!r}): "
                "its trace may be cut short"
            )
        if len(sizes) > 1:
            raise tasks.fail(f"{name}: ranks give the collective different sizes")
        made = all_reduce if kind == _ALL_REDUCE else _COLLECTIVES[kind]
        entries = [entry for _, entry, _, _ in parts]
        last = tasks.collective([rank for rank, *_ in parts], entries, sizes.pop(), made, name)
        ends |= dict(zip(entries, last, strict=True))
    for rank, after in enumerate(waits):
        for node_id, needed in after:
            for before in needed:
                if before not in known[rank]:
                    raise tasks.fail(
                        f"{files[rank].name} node {node_id} depends on node {before}, which does "
                        "not exist"
                    )
                task = known[rank][before]
                tasks.wait(known[rank][node_id], ends.get(task, task))
    notes = []
    if timeless:
        notes.append(
            f"{prefix}: {timeless:,} computations have no duration (num_ops alone) and take no time"
        )
    rooted = sum(kind in _ROOTED for _, kind, _ in joined)
    if rooted:
        notes.append(
            f"{prefix}: {rooted:,} broadcasts and reductions: the root is not in the trace; it is "
            "assumed to be the first rank of the process group"
        )
    return tasks.graph(), tuple(notes)


_ALL_REDUCE, _BARRIER = 0, 9
_ROOTED = (1, 5)
_COLLECTIVES: Mapping[int, Collective] = {
    _ALL_REDUCE: PLAIN["ring"],
    1: to_root,
    2: half_ring,
    5: from_root,
    6: all_to_all,
    7: half_ring,
    8: half_ring,
    _BARRIER: PLAIN["ring"],
}
"""By CollectiveCommType; gather and scatter (3, 4) are not supported."""


def trace_files(prefix: str) -> list[Path]:
    """PREFIX.0.et, PREFIX.1.et, ..., at least two. UsageError names the missing one."""
    traces: list[Path] = []
    for rank in range(MOST_RANKS + 1):
        path = Path(f"{prefix}.{rank}.et")
        if not path.is_file():
            if rank < 2:
                raise UsageError(
                    f"--jobs: there is no file {path}: give PATH.goal, PATH.json, or PATH for the "
                    "Chakra traces PATH.0.et, PATH.1.et, ..."
                )
            return traces
        traces.append(path)
    raise UsageError(f"--jobs: {prefix}: more than {MOST_RANKS:,} ranks")


def _tag(node: _ChakraNode) -> int:
    tag = node.attributes.get("comm_tag", 0)
    return tag if isinstance(tag, int) else 0


def _number(tasks: Tasks, node: _ChakraNode, key: str, name: str) -> int:
    value = node.attributes.get(key)
    if not isinstance(value, int):
        raise tasks.fail(f"{name} has no {key}")
    return value


def _size(tasks: Tasks, node: _ChakraNode, name: str) -> int:
    size = _number(tasks, node, "comm_size", name)
    if size < 0:
        raise tasks.fail(f"{name}: comm_size {size:,} is negative")
    return size


def _nodes(path: Path) -> Iterator[_ChakraNode]:
    """The nodes of a file; no length in it is trusted."""
    data = path.read_bytes()
    at, number = 0, 0
    try:
        while at < len(data):
            length, at = _varint(data, at, len(data))
            if length > len(data) - at:
                raise ValueError
            if number:  # the first one is GlobalMetadata
                yield _node(data, at, at + length)
            at += length
            number += 1
    except ValueError:
        raise UsageError(
            f"--jobs: {path.name}: damaged at byte {at:,}, in message {number + 1:,}"
        ) from None


def _node(data: bytes, at: int, end: int) -> _ChakraNode:
    numbers, name = {_ID: 0, _TYPE: 0, _DURATION: 0}, ""
    after: list[int] = []
    attributes: dict[str, int | str] = {}
    for field, wire, value, begin, stop in _fields(data, at, end):
        if field in numbers and wire == _VARINT:
            numbers[field] = value
        elif field == _NAME and wire == _BYTES:
            name = data[begin:stop].decode("utf-8", "replace")
        elif field in (_CONTROL_DEPENDENCIES, _DATA_DEPENDENCIES):
            if wire == _VARINT:
                after.append(value)
            while wire == _BYTES and begin < stop:
                value, begin = _varint(data, begin, stop)
                after.append(value)
        elif field == _ATTRIBUTE and wire == _BYTES:
            key, attribute = _attribute(data, begin, stop)
            if attribute is not None:
                attributes[key] = attribute
    return _ChakraNode(numbers[_ID], name, numbers[_TYPE], after, numbers[_DURATION], attributes)


def _attribute(data: bytes, at: int, end: int) -> tuple[str, int | str | None]:
    name, number = "", None
    for field, wire, value, begin, stop in _fields(data, at, end):
        if field == 1 and wire == _BYTES:
            name = data[begin:stop].decode("utf-8", "replace")
        elif field in _INTEGERS and wire == _VARINT:
            number = value - (1 << 64) if value >> 63 else value
        elif field in _SIGNED and wire == _VARINT:
            number = (value >> 1) ^ -(value & 1)
        elif field == _TEXT and wire == _BYTES:
            return name, data[begin:stop].decode("utf-8", "replace")
    return name, number


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(field, wire type, value of a varint, begin and end of bytes). ValueError if damaged."""
    while at < end:
        key, at = _varint(data, at, end)
        field, wire = key >> 3, key & 7
        value, begin = 0, at
        if wire == _VARINT:
            value, at = _varint(data, at, end)
        elif wire == _BYTES:
            length, begin = _varint(data, at, end)
            at = begin + length
        elif wire in (_EIGHT, _FOUR):
            at += 8 if wire == _EIGHT else 4
        else:
            raise ValueError
        if at > end:
            raise ValueError
        yield field, wire, value, begin, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise ValueError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise ValueError


# GOAL schedules, the text input of LogGOPSim.
#
# `num_ranks 2`, then for each rank
# `rank 0 { l1: calc 100 cpu 0; l2: send 8b to 1 tag 5; l2 requires l1 }`, a task a line.
#
# Source: Hoefler, Siebert, Lumsdaine, "Group Operation Assembly Language", ICPP 2009; Hoefler,
# Schneider, Lumsdaine, "LogGOPSim", HPDC 2010, and the schedules published with it. `calc` counts
# nanoseconds. `requires`: after the end of the other task; `irequires`: after its start. `nic` and
# the sizes of receives are ignored.

GOAL_MOST_RANKS = 1 << 16
MOST_LINE = 1 << 12
_TASK = re.compile(
    r"(?:(\w+)\s*:\s*)?(?:(send)\s+(\d+)b\s+to\s+(\d+)|(recv)\s+(\d+)b\s+from\s+(\d+)|(calc)\s+(\d+))"
    r"((?:\s+(?:tag|cpu|nic)\s+\d+)*)",
    re.ASCII,
)
_REQUIRES = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)", re.ASCII)
_RANK = re.compile(r"rank\s+(\d+)\s*\{", re.ASCII)
_NUM_RANKS = re.compile(r"num_ranks\s+(\d+)", re.ASCII)


def read_goal(path: Path) -> Graph:
    """The graph of a schedule. UsageError names the file and the line."""
    tasks: Tasks | None = None
    known: dict[str, int] = {}
    starts: list[tuple[int, int, int, str]] = []
    after: dict[int, list[int]] = {}
    rank, seen = -1, set[int]()
    with path.open(encoding="utf-8", errors="replace") as file:
        number = 0
        while text := file.readline(MOST_LINE):
            number += 1
            if len(text) == MOST_LINE and text[-1] != "\n":
                raise Tasks(path.name, 0).fail(
                    f"line {number} is longer than {MOST_LINE - 1:,} characters"
                )
            line = re.sub(r"/\*.*?\*/", " ", text).partition("//")[0].strip()
            where = f"line {number}"
            if not line:
                continue
            if tasks is None:
                match = _NUM_RANKS.fullmatch(line)
                if (
                    match is None
                    or not 0 < len(match[1]) < 9
                    or not 2 <= int(match[1]) <= GOAL_MOST_RANKS
                ):
                    raise Tasks(path.name, 0).fail(
                        f"{where}: a schedule begins with num_ranks 2 to {GOAL_MOST_RANKS:,}"
                    )
                tasks = Tasks(path.name, int(match[1]))
                continue
            if rank < 0:
                match = _RANK.fullmatch(line)
                if match is None or len(match[1]) > 8 or int(match[1]) >= tasks.ranks:
                    raise tasks.fail(f"{where}: expected rank 0 to {tasks.ranks - 1} and a brace")
                rank, known = int(match[1]), {}
                if rank in seen:
                    raise tasks.fail(f"{where}: rank {rank} is given twice")
                seen.add(rank)
                continue
            if line == "}":
                rank = -1
                continue
            wait = _REQUIRES.fullmatch(line)
            if wait is not None:
                for label in (wait[1], wait[3]):
                    if label not in known:
                        raise tasks.fail(
                            f"{where}: rank {rank} has no task {label} above this line"
                        )
                waiting, other = known[wait[1]], known[wait[3]]
                if wait[2] == "irequires":
                    starts.append((rank, waiting, other, where))
                else:
                    tasks.wait(waiting, other)
                    after.setdefault(waiting, []).append(other)
                continue
            match = _TASK.fullmatch(line)
            if match is None:
                raise tasks.fail(f"{where}: not a task of a schedule")
            label = match[1] or f"#{number}"
            if label in known:
                raise tasks.fail(f"{where}: rank {rank} has two tasks {label}")
            known[label] = _task(tasks, rank, match, f"{where} ({label})")
    if tasks is None:
        raise Tasks(path.name, 0).fail("a schedule begins with num_ranks")
    if rank >= 0:
        raise tasks.fail(f"rank {rank} has no closing brace")
    # What begins with a task waits for a computation of no time that precedes the task.
    begins: dict[int, int] = {}
    for of, _, other, name in starts:
        if other not in begins:
            begin = begins[other] = tasks.compute(of, 0, name)
            tasks.wait(other, begin)
            for before in after.get(other, []):
                tasks.wait(begin, before)
    for _, waiting, other, _ in starts:
        tasks.wait(begins.get(waiting, waiting), begins[other])
    return tasks.graph()


def _task(tasks: Tasks, rank: int, match: re.Match[str], name: str) -> int:
    values = re.findall(r"(tag|cpu|nic)\s+(\d+)", match[10])
    numbers = [match[3], match[4], match[6], match[7], match[9], *(text for _, text in values)]
    if any(text is not None and len(text) > 18 for text in numbers):
        raise tasks.fail(f"{name}: a number is too large")
    options = {key: int(text) for key, text in values}
    tag = options.get("tag", 0)
    if match[2]:
        return tasks.send(rank, int(match[4]), int(match[3]), name, tag)
    if match[5]:
        return tasks.receive(rank, int(match[7]), tag, name)
    return tasks.compute(rank, int(match[9]) * PS, name, options.get("cpu", 0))


# The files of `--jobs`: each is read once, and all of a replay have a limit together.

MOST_BYTES = 1 << 28
"""Of all files together."""


class JobFile(NamedTuple):
    """What a file says of a job."""

    graph: Graph
    notes: tuple[str, ...] = ()
    """What the file leaves open."""
    priority: str = ""
    """Class of its data; empty: the file names none."""


class JobFiles:
    """Reads the files of the jobs of a replay, or of all cases of `--vary`."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left = self._most = most_bytes
        self._read: dict[tuple[str, str], JobFile] = {}

    def read(self, text: str, all_reduce: str) -> JobFile:
        """PATH.goal, PATH.json, or the prefix of Chakra traces, whose all-reduces are done by this
        algorithm. UsageError names the file."""
        key = text, all_reduce
        if key not in self._read:
            self._read[key] = self._from(Path(text), text, all_reduce)
        return self._read[key]

    def _from(self, path: Path, text: str, all_reduce: str) -> JobFile:
        alone = path.suffix in (".goal", ".json")
        if alone and not path.is_file():
            raise UsageError(f"--jobs: there is no file {path}")
        files = [path] if alone else trace_files(text)
        sizes = [file.stat().st_size for file in files]
        if 0 in sizes:
            raise UsageError(f"--jobs: {files[sizes.index(0)]} is empty")
        self._left -= sum(sizes)
        if self._left < 0:
            raise UsageError(
                f"--jobs: the files of jobs, up to {files[-1]}, are larger than {self._most:,} "
                "bytes together"
            )
        if path.suffix == ".goal":
            return JobFile(read_goal(path))
        if path.suffix == ".json":
            graph, priority = read_json(path)
            return JobFile(graph, priority=priority)
        return JobFile(*read_chakra(text, ALL_REDUCES[all_reduce]))

"""Execution traces of MLCommons Chakra: one file per rank, PREFIX.0.et, PREFIX.1.et, ...

A file is a sequence of protobuf messages, each after its length as a varint: GlobalMetadata, then
nodes. Source: schema/protobuf/et_def.proto of github.com/mlcommons/chakra (version 0.0.4).
Computations take `duration_micros`. Sends, receives and collectives have their sizes and partners
in attributes (`comm_size`, `comm_dst`, `comm_src`, `comm_tag`, `comm_type`, `pg_name`). The k-th
collective of a process group and kind is one operation of all ranks of the group: those with a
collective of that `pg_name`, all ranks for collectives without one. The schema has no root of
broadcasts and reductions: it is assumed to be the first rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ....analyzer.errors import UsageError
from ..collectives import PLAIN, Collective, all_to_all, from_root, half_ring, to_root
from ..graph import Graph
from ..tasks import Tasks

MOST_RANKS = 1 << 14
_SHOWN = 64
"""Characters of a name in an error."""
_US_PS = 1_000_000
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


class _Node(NamedTuple):
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
        own: dict[int, int] = {}
        order: dict[tuple[str, int], int] = {}
        for node in _nodes(path):
            name = f"{path.name} node {node.id}"
            after.append((node.id, node.after))
            if node.id in own:
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
                own[node.id] = entry
            elif node.type == _SEND:
                to, size = _number(tasks, node, "comm_dst", name), _size(tasks, node, name)
                own[node.id] = tasks.send(rank, to, size, name, _tag(node))
            elif node.type == _RECEIVE:
                source = _number(tasks, node, "comm_src", name)
                own[node.id] = tasks.receive(rank, source, _tag(node), name)
            else:
                timeless += not node.takes_us and "num_ops" in node.attributes
                own[node.id] = tasks.compute(rank, node.takes_us * _US_PS, name, 0)
        known.append(own)
        waits.append(after)
    ends: dict[int, int] = {}  # entry of a collective: its end at the rank
    for (group, kind, at), parts in joined.items():
        sizes = {size for _, _, size, _ in parts}
        name = parts[0][3]
        missing = groups[group].difference(rank for rank, *_ in parts)
        if missing:
            raise tasks.fail(
                f"{name}: rank {min(missing)} lacks this collective (number {at + 1:,} with "
                f"comm_type {kind} of process group {group[:_SHOWN]!r}): its trace may be cut short"
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
    found: list[Path] = []
    for rank in range(MOST_RANKS + 1):
        path = Path(f"{prefix}.{rank}.et")
        if not path.is_file():
            if rank < 2:
                raise UsageError(
                    f"--jobs: there is no file {path}: give PATH.goal, PATH.json, or PATH for the "
                    "Chakra traces PATH.0.et, PATH.1.et, ..."
                )
            return found
        found.append(path)
    raise UsageError(f"--jobs: {prefix}: more than {MOST_RANKS:,} ranks")


def _tag(node: _Node) -> int:
    tag = node.attributes.get("comm_tag", 0)
    return tag if isinstance(tag, int) else 0


def _number(tasks: Tasks, node: _Node, key: str, name: str) -> int:
    value = node.attributes.get(key)
    if not isinstance(value, int):
        raise tasks.fail(f"{name} has no {key}")
    return value


def _size(tasks: Tasks, node: _Node, name: str) -> int:
    size = _number(tasks, node, "comm_size", name)
    if size < 0:
        raise tasks.fail(f"{name}: comm_size {size:,} is negative")
    return size


def _nodes(path: Path) -> Iterator[_Node]:
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


def _node(data: bytes, at: int, end: int) -> _Node:
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
            key, found = _attribute(data, begin, stop)
            if found is not None:
                attributes[key] = found
    return _Node(numbers[_ID], name, numbers[_TYPE], after, numbers[_DURATION], attributes)


def _attribute(data: bytes, at: int, end: int) -> tuple[str, int | str | None]:
    name, found = "", None
    for field, wire, value, begin, stop in _fields(data, at, end):
        if field == 1 and wire == _BYTES:
            name = data[begin:stop].decode("utf-8", "replace")
        elif field in _INTEGERS and wire == _VARINT:
            found = value - (1 << 64) if value >> 63 else value
        elif field in _SIGNED and wire == _VARINT:
            found = (value >> 1) ^ -(value & 1)
        elif field == _TEXT and wire == _BYTES:
            return name, data[begin:stop].decode("utf-8", "replace")
    return name, found


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

"""Jobs as JSON, see docs/replay.md: ranks, messages, computations, and what they wait for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..graph import Graph
from ..tasks import Tasks

_US_PS = 1_000_000
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
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Tasks(path.name, 0).fail(f"not JSON of a job: {error}") from None
    if not 2 <= found.ranks <= 1 << 16:
        raise Tasks(path.name, 0).fail(f"ranks must be 2 to {1 << 16:,}, not {found.ranks:,}")
    tasks = Tasks(path.name, found.ranks)
    known: dict[str, int] = {}
    for node in found.nodes:
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
    ends = {node.id: (node.rank, node.to) for node in found.nodes}
    for node in found.nodes:
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
    return tasks.graph(), found.priority


def _name(node: str) -> str:
    return f"node {node[:_SHOWN]!r}"

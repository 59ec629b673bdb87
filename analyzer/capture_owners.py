"""Owners of queue pairs that a capture names in its comments; `rocescope capture -w` does.

For example "owner: QP 0x000011 at 10.0.0.2 (mlx5_0) to QP 0x000022 at 10.0.0.1: pid 4711
python, rank 3". Comments are text that anybody may have written: what does not read
like this is passed over, and a flow that could be of two processes has no owner.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .endpoints import Endpoints
from .results import Owner
from .track.tracker import FlowTracker

_LINE = re.compile(
    r"owner: QP 0x([0-9a-f]{1,6})(?: at ([0-9a-fA-F.:]+))?(?: \([^()]*\))?"
    r"(?: to QP 0x([0-9a-f]{1,6})(?: at ([0-9a-fA-F.:]+))?)?"
    r": pid (\d{1,10}) (.{1,64}?)(?:, rank (\d{1,9}))?"
)


@dataclass(frozen=True, slots=True)
class _QueuePair:
    local_qp: int
    address: str | None
    remote_qp: int | None
    remote_address: str | None
    pid: int
    command: str
    rank: int | None


def owners_in(
    comments: Iterable[str], tracker: FlowTracker, endpoints: Endpoints
) -> dict[int, Owner]:
    """Owners by flow index.

    The destination's where the comment knows that the flow goes to its queue pair,
    else the source's. Of a queue pair an address must be known, its own or its peer's:
    the number alone names queue pairs on every host.
    """
    pairs = [pair for comment in comments if (pair := _parsed(comment)) is not None]
    if not pairs:
        return {}
    texts = endpoints.texts()
    flows: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for number, flow in enumerate(tracker.flows):
        flows[int(flow["dest_qp"])].append((number, texts[flow["src"]], texts[flow["dst"]]))
    found: dict[tuple[int, str], set[Owner]] = defaultdict(set)
    for pair in pairs:
        for end, qp, here, there in (
            ("destination", pair.local_qp, pair.remote_address, pair.address),
            ("source", pair.remote_qp, pair.address, pair.remote_address),
        ):
            if qp is None or (here is None and there is None):
                continue
            for number, src, dst in flows.get(qp, ()):
                if here in (None, src) and there in (None, dst):
                    found[number, end].add(Owner(pair.pid, pair.command, pair.rank, end))
    owners: dict[int, Owner] = {}
    for end in ("source", "destination"):
        for (number, which), candidates in found.items():
            if which == end and len(candidates) == 1:
                (owners[number],) = candidates
    return owners


def _parsed(comment: str) -> _QueuePair | None:
    match = _LINE.fullmatch(comment)
    if match is None:
        return None
    qp, address, remote_qp, remote_address, pid, command, rank = match.groups()
    return _QueuePair(
        int(qp, 16),
        address,
        None if remote_qp is None else int(remote_qp, 16),
        remote_address,
        int(pid),
        command,
        None if rank is None else int(rank),
    )

"""Owners of queue pairs from capture comments, as `rocescope capture -w` writes them.

For example "owner: QP 0x000011 at 10.0.0.2 (mlx5_0) to QP 0x000022 at 10.0.0.1: pid 4711
python, rank 3"; with several possible addresses "at 10.0.0.2 or fd00::2". Comments are untrusted
text: other text is ignored, and a flow that may belong to two processes has no owner.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from ..results.flow import Owner
from ..track.state import EVIDENCE_HOST_PROBE
from ..track.tracker import FlowTracker
from ..wire.registry import Endpoints

_LINE = re.compile(
    r"owner: QP 0x([0-9a-f]{1,6})(?: at ([0-9a-fA-F.:]+(?: or [0-9a-fA-F.:]+)*))?(?: \([^()]*\))?"
    r"(?: to QP 0x([0-9a-f]{1,6})(?: at ([0-9a-fA-F.:]+))?)?"
    r": pid (\d{1,10}) (.{1,64}?)(?:, rank (\d{1,9}))?"
)


_MOST_LOOKED_AT = 5_000_000
"""Flows compared with comments. Comments of a host name few flows each; comments that all name the
same thousands of flows are not written by `rocescope capture`, and name nobody."""


@dataclass(frozen=True, slots=True)
class _QueuePair:
    local_qp: int
    addresses: frozenset[str]
    """Its possible addresses; empty when unknown."""
    remote_qp: int | None
    remote_addresses: frozenset[str]
    pid: int
    command: str
    rank: int | None

    def ends(self) -> tuple[int, int]:
        """The queue pairs at both ends; -1 when unknown."""
        return self.local_qp, -1 if self.remote_qp is None else self.remote_qp


class _FlowsByEnd:
    """The flows of some destination queue pairs by each of their addresses."""

    def __init__(self, tracker: FlowTracker, endpoints: Endpoints, qps: set[int]) -> None:
        texts = endpoints.texts()
        self._from: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        self._to: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        named = np.flatnonzero(np.isin(tracker.flows["dest_qp"], list(qps)))
        for number in named.tolist():
            flow = tracker.flows[number]
            qp, src, dst = int(flow["dest_qp"]), texts[flow["src"]], texts[flow["dst"]]
            self._from[qp, src].append((number, dst))
            self._to[qp, dst].append((number, src))

    def match(
        self, qp: int, sources: frozenset[str], destinations: frozenset[str]
    ) -> tuple[list[int], int]:
        """The flows to a queue pair from and to one of these addresses each (any if none is given),
        and how many were looked at."""
        table, ours, theirs = self._to, destinations, sources
        if not destinations:
            table, ours, theirs = self._from, sources, destinations
        near = [flow for address in sorted(ours) for flow in table.get((qp, address), ())]
        return sorted(n for n, far in near if not theirs or far in theirs), len(near) + len(ours)


def read_owners(
    comments: Iterable[str], tracker: FlowTracker, endpoints: Endpoints
) -> dict[int, Owner]:
    """Owners by flow index.

    The owner of the destination where a comment names the flow's destination queue pair, else the
    owner of the source. The address of the queue pair or of its peer must be known: a QPN alone
    exists on every host. Connections whose two ends a comment names are paired in the tracker as
    exact.
    """
    pairs = [pair for comment in comments if (pair := _parse(comment)) is not None]
    if not pairs:
        return {}
    flows = _FlowsByEnd(tracker, endpoints, {qp for pair in pairs for qp in pair.ends()})
    owners_by_end: dict[tuple[int, str], set[Owner]] = defaultdict(set)
    partners: dict[int, set[int]] = defaultdict(set)
    looked = 0
    for pair in pairs:
        seen: list[list[int]] = []
        for end, qp, addresses, there in (
            ("destination", pair.local_qp, pair.remote_addresses, pair.addresses),
            ("source", pair.remote_qp, pair.addresses, pair.remote_addresses),
        ):
            if qp is None or not (addresses or there):
                continue
            matching, of = flows.match(qp, addresses, there)
            looked += of
            if looked > _MOST_LOOKED_AT:
                return {}
            seen.append(matching)
            for number in matching:
                if len(owners_by_end[number, end]) < 2:  # two already contradict each other
                    owners_by_end[number, end].add(Owner(pair.pid, pair.command, pair.rank, end))
        if pair.addresses and pair.remote_addresses and len(seen) == 2:
            to_here, from_here = seen
            for ends, far in ((to_here, from_here), (from_here, to_here)):
                for number in ends:
                    partners[number].update(far[:2])  # two already contradict each other
    for number, others in partners.items():
        (*first, last) = others or (-1,)
        if last > number and not first and partners[last] == {number}:
            tracker.pair(number, last, EVIDENCE_HOST_PROBE)
    owners: dict[int, Owner] = {}
    for end in ("source", "destination"):
        for (number, which), candidates in owners_by_end.items():
            if which == end and len(candidates) == 1:
                (owners[number],) = candidates
    return owners


def merge_owners(probed: Mapping[int, Owner], logged: Mapping[int, Owner]) -> dict[int, Owner]:
    """Owners from the host and from logs: the host knows the process, the log its ranks.

    Where they name different ends of a flow, the log is taken: it may name both ranks.
    """
    both = {**probed, **logged}
    for number in probed.keys() & logged.keys():
        host, log = probed[number], logged[number]
        if host.end == log.end:
            rank = host.rank if log.rank is None else log.rank
            both[number] = msgspec.structs.replace(
                log, pid=host.pid, command=host.command, rank=rank
            )
    return both


def _parse(comment: str) -> _QueuePair | None:
    match = _LINE.fullmatch(comment)
    if match is None:
        return None
    qp, address, remote_qp, remote_address, pid, command, rank = match.groups()
    return _QueuePair(
        int(qp, 16),
        _split_addresses(address),
        None if remote_qp is None else int(remote_qp, 16),
        _split_addresses(remote_address),
        int(pid),
        command,
        None if rank is None else int(rank),
    )


def _split_addresses(text: str | None) -> frozenset[str]:
    return frozenset(text.split(" or ") if text else ())

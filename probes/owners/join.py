"""Owners of flows, joined by address and queue pair."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cache
from ipaddress import IPv6Address
from pathlib import Path

from ...analyzer.results.flow import Owner
from ...analyzer.track.pairing import NamedFlow, named_flows
from ...analyzer.track.state import EVIDENCE_HOST_PROBE
from ...analyzer.track.tracker import FlowTracker
from ...analyzer.wire.registry import Endpoints
from ..sysfs import DEVICES, gids
from .queue_pairs import QueuePair

# The IP addresses of this host.

_LOCAL = re.compile(r"\|-- (\d+\.\d+\.\d+\.\d+)\n +/32 host LOCAL")


def local_addresses(proc: str = "/proc") -> set[str]:
    """IPv4 and IPv6 addresses of the network namespace of the calling thread, as text.

    Read from the routing tables in proc; empty when those cannot be read.
    """
    routes = _read(f"{proc}/thread-self/net/fib_trie")
    found = set(_LOCAL.findall(routes))
    for line in _read(f"{proc}/thread-self/net/if_inet6").splitlines():
        try:
            found.add(str(IPv6Address(bytes.fromhex(line.split()[0]))))
        except (ValueError, IndexError):
            continue
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def owners_of(
    queue_pairs: Iterable[QueuePair],
    local_addresses: Collection[str],
    tracker: FlowTracker,
    endpoints: Endpoints,
    sysfs: Path = DEVICES,
) -> dict[int, Owner]:
    """Owners by flow index; connections the queue pairs prove are paired in the tracker.

    A flow belongs to the process of its destination queue pair, or if that is
    not on this host, of its source queue pair. A flow that could belong to two
    processes has no owner. local_addresses: addresses of the host, for queue pairs without a known
    address.
    """
    local = frozenset(local_addresses)
    of_device = cache(lambda device: frozenset(gids(device, sysfs)))

    def addresses(pair: QueuePair) -> frozenset[str]:
        """The addresses of a queue pair, as precise as known."""
        if pair.local_gid is not None:
            return frozenset((pair.local_gid,))
        return (pair.device is not None and of_device(pair.device)) or local

    flows: dict[tuple[str, int], list[NamedFlow]] = defaultdict(list)
    for one in named_flows(tracker, endpoints):
        flows[one.dst, one.dest_qp].append(one)
    arriving: dict[int, list[QueuePair]] = defaultdict(list)
    leaving: dict[int, list[QueuePair]] = defaultdict(list)
    for pair in queue_pairs:
        here = addresses(pair)
        to_here = [
            flow
            for address in here
            for flow in flows.get((address, pair.local_qp), ())
            if pair.remote_gid in (None, flow.src) and _lived_during(pair, flow)
        ]
        for flow in to_here:
            arriving[flow.number].append(pair)
        if pair.remote_qp is None:
            continue
        # A connected queue pair receives from its peer only, so the flow's source is the peer.
        peers = {pair.remote_gid} if pair.remote_gid else {flow.src for flow in to_here}
        from_here = [
            flow
            for address in peers
            for flow in flows.get((address, pair.remote_qp), ())
            if flow.src in here and _lived_during(pair, flow)
        ]
        if not pair.remote_gid and len(peers) != 1:
            continue
        for flow in from_here:
            leaving[flow.number].append(pair)
        if len(to_here) == len(from_here) == 1 and to_here[0].dst == from_here[0].src:
            tracker.pair(from_here[0].number, to_here[0].number, EVIDENCE_HOST_PROBE)
    owners: dict[int, Owner] = {}
    for end, candidates in (("source", leaving), ("destination", arriving)):
        for number, found in candidates.items():
            owner = _only(found)
            if owner is not None:
                owners[number] = Owner(owner.pid, owner.command, owner.rank.rank, end)
    return owners


def _lived_during(pair: QueuePair, flow: NamedFlow) -> bool:
    """Whether the queue pair existed during the flow: QPNs are reused."""
    return (pair.created_ns is None or pair.created_ns <= flow.last_ns) and (
        pair.destroyed_ns is None or pair.destroyed_ns >= flow.first_ns
    )


def _only(pairs: list[QueuePair]) -> QueuePair | None:
    """The pair that owns a flow: the last of consecutive ones; None if ambiguous."""
    last = max(pairs, key=lambda pair: pair.created_ns or 0)
    for other in pairs:
        if other.pid == last.pid:
            continue
        followed = (
            other.destroyed_ns is not None
            and last.created_ns is not None
            and other.destroyed_ns <= last.created_ns
        )
        if not followed:
            return None
    return last

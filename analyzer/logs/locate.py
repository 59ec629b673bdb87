"""Addresses of queue pairs whose log names only the other end, as UCX's does: from the capture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..track.pairing import NamedFlow
from .job import LoggedPair

SLACK_NS = 2_000_000_000
"""Times in logs may be whole seconds."""


def in_time(pair: LoggedPair, flow: NamedFlow) -> bool:
    """Whether the queue pair may have existed while the flow had packets."""
    return (pair.time_ns is None or pair.time_ns <= flow.last_ns + SLACK_NS) and (
        pair.ended_ns is None or flow.first_ns <= pair.ended_ns + SLACK_NS
    )


def located(pairs: Sequence[LoggedPair], flows: Iterable[NamedFlow]) -> dict[int, str]:
    """Addresses by `id` of the queue pair, of those without one that have only one possible.

    The address is the source of the flow to the other end, unless packets come back from there for
    other queue pairs only. Otherwise it is what the log of the other end calls its peer, or the
    address of other queue pairs of the same device.
    """
    missing = [pair for pair in pairs if pair.address is None]
    if not missing:
        return {}
    by_pair: dict[int, str] = {}
    to: dict[tuple[str, int], list[NamedFlow]] = defaultdict(list)
    back: dict[tuple[str, str], set[int]] = defaultdict(set)
    for flow in flows:
        to[flow.dst, flow.dest_qp].append(flow)
        back[flow.src, flow.dst].add(flow.dest_qp)
    for pair in missing:
        if pair.remote is not None:
            there, _ = pair.remote
            _only(by_pair, pair, {
                flow.src
                for flow in to.get(pair.remote, ())
                if in_time(pair, flow)
                and pair.qpn in back.get((there, flow.src), {pair.qpn})
            })  # fmt: skip
    ends: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    """What the queue pairs at an address call their other ends."""
    for pair in pairs:
        address = by_pair.get(id(pair), pair.address)
        if address is not None and pair.remote is not None:
            ends[address, pair.qpn].add(pair.remote)
    for pair in missing:
        if pair.remote is not None:
            _only(by_pair, pair, {
                address for address, qpn in ends.get(pair.remote, ()) if qpn == pair.qpn
            })  # fmt: skip
    devices: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pair in pairs:
        address = by_pair.get(id(pair), pair.address)
        if address is not None and pair.speaker is not None and pair.device is not None:
            devices[pair.speaker.host, pair.device].add(address)
    for pair in missing:
        if pair.speaker is not None and pair.device is not None:
            _only(by_pair, pair, devices.get((pair.speaker.host, pair.device), set()))
    return by_pair


def _only(by_pair: dict[int, str], pair: LoggedPair, addresses: set[str]) -> None:
    if id(pair) not in by_pair and len(addresses) == 1:
        (by_pair[id(pair)],) = addresses

"""The hash of a switch, learned from next hops that it names, and tested with more questions.

A few hundred answers are placements for seed recovery (`replay/seeds`); the recovered function
then predicts the answers to other questions, and both are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple

import msgspec
import numpy as np

from ...analyzer.errors import RocescopeError, UsageError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...kernels.kernel import Ints
from ...replay.compare.captured import links_by_port
from ...replay.fabrics.fabric import Fabric
from ...replay.hashing.keys import packet_keys
from ...replay.hashing.models import bind
from ...replay.hashing.settings import Group, HashSettings
from ...replay.results import RecoverResult
from ...replay.seeds.recover import Tell, Wanted, is_explained, recover_all, settings_of
from ...replay.seeds.tapped import Direction, Seen
from ..asking import Query, Run, is_port
from .asking import Dialects, ports_told

ANSWERS = 300
AGAIN = 200
_MOST_HOSTS = 64
"""Hosts on either side that questions name."""


class _Questions(NamedTuple):
    """A group of a switch with several links, and flows that use it."""

    links: Ints
    """The members, in next-hop order."""
    group: Group
    sources: list[tuple[str, str]]
    """(address, ingress port)"""
    targets: list[str]


def learn(
    fabric: Fabric,
    run: Run,
    switch: str,
    wanted: Wanted,
    tell: Tell | None = None,
    dialects: Dialects | None = None,
) -> RecoverResult:
    """Learn the hash of a switch from ANSWERS answers, and compare AGAIN others.

    UsageError for a switch that is not in the fabric or has no choice; RocescopeError without
    answers, or if all name ports outside the group.
    """
    names = fabric.nodes.names
    if switch not in names[: fabric.switches]:
        raise UsageError(f"there is no switch {switch!r} in {fabric.name}")
    at = names.index(switch)
    asked = _questions(fabric, at)
    rng = np.random.default_rng(1)
    dialects = dialects or {}
    seen, outside = _answers(fabric, run, at, asked, ANSWERS, rng, dialects)
    if not len(seen.link):
        raise RocescopeError(f"{switch} named only ports outside its group in {fabric.name}")
    answers = len(seen.link) + outside
    direction = Direction(f"of {switch}, by its own answers", seen)
    wanted = wanted._replace(group=wanted.group or asked.group)
    result = recover_all([direction], wanted, [switch], tell)
    (record,) = result.switches
    best = next((c for c in record.candidates if is_explained(c)), None)
    fit = None if best is None else settings_of(best)
    warnings = list(result.warnings)
    if best is not None and (fit is None or best.seed is None):
        warnings.append("not tested with other flows: without a seed, their links are not computed")
    elif best is not None and fit is not None and best.seed is not None:
        fresh, elsewhere = _answers(fabric, run, at, asked, AGAIN, rng, dialects)
        predicted = bind(fresh.keys, replace(fit, seed=best.seed)).choose(best.seed, asked.group)[0]
        record = msgspec.structs.replace(
            record,
            asked_again=len(fresh.link) + elsewhere,
            agreeing_again=int(np.count_nonzero(predicted == fresh.link)),
        )
        answers += len(fresh.link) + elsewhere
        outside += elsewhere
    if outside:
        warnings.append(
            f"{outside:,} of {answers:,} answers of {switch} name ports outside its group in the "
            "fabric: its tables changed since they were read"
        )
    return msgspec.structs.replace(result, switches=[record], warnings=warnings)


def _questions(fabric: Fabric, at: int) -> _Questions:
    """The group that most hosts are behind, and the ports by which their packets come in."""
    start = fabric.forwarding.group_start
    behind: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    table: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for host in range(fabric.hosts):
        six = fabric.address_of(host).version == 6
        edge = int(fabric.edge_of(np.array([host], np.int32), six)[0])
        number = int(fabric.forwarding.group_of[at, edge]) if edge >= 0 else -1
        if number < 0 or start[number + 1] - start[number] < 2:
            continue
        links, weights = fabric.group(at, edge)
        key = tuple(links.tolist()), tuple(weights.tolist())
        behind.setdefault(key, []).append(host)
        table.setdefault(key, number)
    if not behind:
        raise UsageError(f"{fabric.nodes.names[at]} has no group of several next hops")
    key = max(behind, key=lambda candidate: len(behind[candidate]))
    members = np.array(key[0], np.int64)
    group = Group(np.array(key[1], np.int64), fabric.forwarding.buckets.get(table[key]))
    six = not any(fabric.address_of(host).version == 4 for host in behind[key])
    policy = (fabric.hash_settings[at] or HashSettings()).extra.get("policy")
    if six and policy != 1:
        raise UsageError(
            f"{fabric.nodes.names[at]} cannot be asked: for IPv6, ip route get shows the next "
            "hop of a packet only with hash policy 1"
        )
    version = 6 if six else 4
    sources = _sources(fabric, at, set(members.tolist()), version)
    targets = [
        str(fabric.address_of(host))
        for host in behind[key][:_MOST_HOSTS]
        if fabric.address_of(host).version == version
    ]
    if not sources:
        raise UsageError(
            f"no host with a known ingress port of {fabric.nodes.names[at]}: the fabric has no "
            "names of ports; rocescope discover writes them"
        )
    return _Questions(members, group, sources, targets)


def _sources(fabric: Fabric, at: int, out: set[int], version: int) -> list[tuple[str, str]]:
    """Addresses of hosts behind other ports than those of the group, with their ports."""
    ports = {link: port for (_, port), link in links_by_port(fabric).items()}
    access = fabric.attachments.switch[:, 0]
    sources = []
    for link in np.flatnonzero(fabric.links.target == at).tolist():
        port = ports.get(link ^ 1, "")
        if link ^ 1 in out or not is_port(port):
            continue
        near = int(fabric.links.source[link])
        hosts = (
            [near - fabric.switches]
            if near >= fabric.switches
            else np.flatnonzero(access == near).tolist()
        )
        addresses = [fabric.address_of(host) for host in hosts[:_MOST_HOSTS]]
        sources += [(str(a), port) for a in addresses if a.version == version]
    return sources[:_MOST_HOSTS]


def _answers(
    fabric: Fabric,
    run: Run,
    at: int,
    asked: _Questions,
    number: int,
    rng: np.random.Generator,
    dialects: Dialects,
) -> tuple[Seen, int]:
    """The answers to random questions, as flows on the links of the group; answers outside it.

    RocescopeError without an answer.
    """
    switch = fabric.nodes.names[at]
    of_source = rng.integers(0, len(asked.sources), number)
    sources = [asked.sources[i] for i in of_source.tolist()]
    targets = [asked.targets[i] for i in rng.integers(0, len(asked.targets), number).tolist()]
    sports = rng.integers(1024, 65536, number)
    queries = [
        Query(ip_address(src), ip_address(dst), sport, ROCE_UDP_PORT, port)
        for (src, port), dst, sport in zip(sources, targets, sports.tolist(), strict=True)
    ]
    ((ports, problem),) = ports_told(run, [(switch, queries)], dialects)
    answered = sum(port is not None for port in ports)
    links = _links(fabric, switch, ports, asked.links)
    rows = np.flatnonzero(links >= 0)
    if not answered:
        raise RocescopeError(f"{switch} did not name a next hop: {problem or 'no answer'}")
    names = tuple(dict.fromkeys([*(src for src, _ in asked.sources), *asked.targets]))
    number_of = {name: i for i, name in enumerate(names)}
    keys = packet_keys([src for src, _ in sources], targets, sports)
    seen = Seen(
        tuple(fabric.link_name(int(link)) for link in asked.links),
        keys.take(rows),
        links[rows].astype(np.int32),
        np.full(len(rows), 64, np.uint8),
        np.array([number_of[src] for src, _ in sources], np.int64)[rows],
        np.array([number_of[dst] for dst in targets], np.int64)[rows],
        names,
    )
    return seen, answered - len(rows)


def _links(fabric: Fabric, switch: str, ports: Sequence[str | None], members: Ints) -> Ints:
    """int64[n]: the member that each port is, -1 for none."""
    link = links_by_port(fabric)
    place = {int(member): i for i, member in enumerate(members)}
    return np.array(
        [-1 if port is None else place.get(link.get((switch, port), -1), -1) for port in ports],
        np.int64,
    )

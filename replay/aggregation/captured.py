"""Jobs from captures: hosts that exchange data evenly, with sizes and gaps of their collectives.

Hosts that data connects are a job if each of them sends and receives about as much as the others:
one ring, or any exchange between pairs (several rings, all pairs, halving and doubling). A worker
of n sends 2 (n - 1) / n of its gradients in each of these all-reduces, which gives their size. A
collective ends with a silence after which all pairs of hosts have carried equally many messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Array, Ints
from ..fabrics.fabric import Fabric
from ..packets.model.model import PS
from ..traffic.traffic import SentMessages, Traffic
from .jobs import MOST_FRAGMENTS, MOST_ITERATIONS, PAYLOAD_BYTES, Job, Step
from .state import MOST_WORKERS

HEADERS: Final = (58, 78)
"""Ethernet, IPv4 or IPv6, UDP, BTH and ICRC of a packet, bytes."""
_RETH = 16
_SMALL = 16
"""A host that sends another one less than one 16th of what it gets sends it no gradients."""
_EVEN = 1.1
"""Most over least that hosts of a job send or receive."""


class _Message(NamedTuple):
    """Columns of the messages between hosts, sorted by begin."""

    src: Ints
    dst: Ints
    begun: Ints
    ended: Ints
    payload: Ints

    def of(self, rows: Array) -> _Message:
        """The rows of a mask."""
        return _Message(*(column[rows] for column in self))


def captured_jobs(
    traffic: Traffic, fabric: Fabric, window: int, silence_ns: int
) -> tuple[list[Job], list[str]]:
    """The jobs of a capture that was read with messages, and notes on what is no job. A PS is on a
    free host, in the rack of the first worker if there is one, or shares a worker's host.

    window: packets in flight of a worker. silence_ns: least time without a message of the job
    between collectives. UsageError without a job.
    """
    if fabric.ports != 1:
        raise UsageError(f"{fabric.name}: aggregation needs hosts with one port")
    if traffic.unmapped:
        raise UsageError(
            f"no host of {fabric.name} has the address {traffic.unmapped[0]} of the captures "
            f"({len(traffic.unmapped):,} without host): try --map order"
        )
    if traffic.messages is None:
        raise UsageError("the captures have too many messages to find collectives; use --filter")
    every = _messages(traffic, traffic.messages)
    data = every.of(_is_data(every, fabric.hosts))
    jobs: list[Job] = []
    notes: list[str] = []
    for hosts in _groups(data, fabric.hosts):
        of_job = data.of(np.isin(data.src, hosts))
        named = _named(hosts, fabric)
        why = _no_job(of_job, hosts)
        if why:
            notes.append(f"left out: {named}: {why}")
            continue
        rounds, rounds_are_complete = _rounds(of_job, silence_ns)
        if not rounds_are_complete:
            notes.append(
                f"{named}: its pairs of hosts carried unequal numbers of messages: the capture "
                "begins or ends within a collective, of which only the captured part counts"
            )
        if len(hosts) == 2:
            notes.append(
                f"{named}: two hosts that send equal amounts to each other may do no all-reduce"
            )
        jobs.append(_job(of_job, hosts, rounds, fabric, window, len(jobs) + 1))
    if not jobs:
        reason = notes[0].removeprefix("left out: ") if notes else "no host sends messages"
        raise UsageError(f"the captures have no all-reduce to take jobs from: {reason}")
    jobs = [replace(job, ranks=_ranks(job, traffic)) for job in jobs]
    start = min(job.start_ps for job in jobs)
    jobs = [replace(job, start_ps=job.start_ps - start) for job in jobs]
    with_servers, shared = _with_servers(jobs, fabric)
    return with_servers, notes + shared


def _ranks(job: Job, traffic: Traffic) -> tuple[tuple[int, ...], ...]:
    """Of each worker, from the logs of the job."""
    known: dict[int, set[int]] = {host: set() for host in job.workers}
    for unit in np.flatnonzero(np.isin(traffic.flow, list(traffic.owners))).tolist():
        owner = traffic.owners[int(traffic.flow[unit])]
        ends = int(traffic.src_host[unit]), int(traffic.dst_host[unit])
        for host, rank in zip(ends, owner.ranks, strict=True):
            if host in known and rank is not None:
                known[host].add(rank)
    if not any(known.values()):
        return ()
    return tuple(tuple(sorted(known[host])) for host in job.workers)


def _with_servers(unserved: Sequence[Job], fabric: Fabric) -> tuple[list[Job], list[str]]:
    switch = fabric.attachments.switch[:, 0]
    used = {host for job in unserved for host in job.workers}
    jobs, notes = [], []
    for job in unserved:
        rack = int(switch[job.workers[0]])
        free = [host for host in range(fabric.hosts) if host not in used and switch[host] >= 0]
        server = min(free, key=lambda host: (switch[host] != rack, host), default=-1)
        if server < 0:
            server = job.workers[0]
            notes.append(
                f"{job.name}: {fabric.name} has no free host for a parameter server: it shares "
                f"{fabric.host_name(server)} with a worker"
            )
        used.add(server)
        jobs.append(replace(job, server=server))
    return jobs, notes


def _messages(traffic: Traffic, sent: SentMessages) -> _Message:
    """The messages between different hosts."""
    flows = int(traffic.flow.max(initial=-1)) + 1
    unit = np.zeros(flows, np.int64)
    unit[traffic.flow[::-1]] = np.arange(len(traffic))[::-1]
    at = unit[sent.flow]
    headers = np.where(traffic.keys.ipv6[at], HEADERS[1], HEADERS[0])
    payload = np.maximum(0, sent.wire_bytes - sent.packets * headers - _RETH)
    every = _Message(
        traffic.src_host[at].astype(np.int64),
        traffic.dst_host[at].astype(np.int64),
        sent.begun_ns,
        sent.ended_ns,
        payload.astype(np.int64),
    )
    every = every.of(every.src != every.dst)
    return every.of(np.argsort(every.begun, kind="stable"))


def _is_data(every: _Message, hosts: int) -> Array:
    """bool[messages]: not those that ask for data or make room for it."""
    pairs, way = np.unique(every.src * hosts + every.dst, return_inverse=True)
    sums = np.bincount(way.reshape(-1), every.payload, len(pairs))
    opposite = pairs % hosts * hosts + pairs // hosts
    at = np.minimum(np.searchsorted(pairs, opposite), len(pairs) - 1)
    back = np.where(pairs[at] == opposite, sums[at], 0)
    data: Array = ((sums * _SMALL >= back) & (sums > 0))[way.reshape(-1)]
    return data


def _groups(data: _Message, hosts: int) -> list[list[int]]:
    """Hosts that data connects."""
    parent = list(range(hosts))

    def root(host: int) -> int:
        while parent[host] != host:
            parent[host] = parent[parent[host]]
            host = parent[host]
        return host

    pairs = np.unique(data.src * hosts + data.dst).tolist()
    for way in pairs:
        parent[root(way // hosts)] = root(way % hosts)
    groups: dict[int, list[int]] = {}
    for host in sorted({end for way in pairs for end in divmod(way, hosts)}):
        groups.setdefault(root(host), []).append(host)
    return list(groups.values())


def _no_job(messages: _Message, hosts: Sequence[int]) -> str:
    """Why these hosts are no job; empty if they are."""
    if len(hosts) > MOST_WORKERS:
        return f"{len(hosts):,} hosts are more than the {MOST_WORKERS} workers of a bitmap"
    sent, received = (
        np.bincount(ends, messages.payload, max(hosts) + 1)[list(hosts)]
        for ends in (messages.src, messages.dst)
    )
    for amounts, verb in ((sent, "send"), (received, "receive")):
        if amounts.max() > _EVEN * amounts.min():
            return f"its hosts {verb} {amounts.min():,.0f} to {amounts.max():,.0f} bytes, unevenly"
    return ""


def _rounds(messages: _Message, silence_ns: int) -> tuple[list[tuple[int, int]], bool]:
    """Collectives as first and last row, and whether all pairs carried equally many messages."""
    busy_until = np.maximum.accumulate(messages.ended)
    silent = messages.begun[1:] - busy_until[:-1] >= silence_ns
    stops = [*(np.flatnonzero(silent) + 1).tolist(), len(messages.begun)]
    pairs, pair = np.unique(np.stack([messages.src, messages.dst]), axis=1, return_inverse=True)
    counts = np.zeros(pairs.shape[1], np.int64)
    edges = [0]
    for first, stop in pairwise([0, *stops]):
        counts += np.bincount(pair.reshape(-1)[first:stop], minlength=len(counts))
        if (counts == counts[0]).all():
            edges.append(stop)
    complete = edges[-1] == len(messages.begun)
    if not complete:
        edges.append(len(messages.begun))
    return list(pairwise(edges)), complete


def _job(
    messages: _Message,
    hosts: Sequence[int],
    rounds: Sequence[tuple[int, int]],
    fabric: Fabric,
    window: int,
    number: int,
) -> Job:
    if len(rounds) > MOST_ITERATIONS:
        raise UsageError(
            f"{_named(hosts, fabric)}: {len(rounds):,} collectives are more than "
            f"{MOST_ITERATIONS:,} iterations; use --filter or a longer --silence"
        )
    workers = sorted(hosts, key=lambda host: (int(fabric.attachments.switch[host, 0]), host))
    steps: list[Step] = []
    slowness: list[list[float]] = [[] for _ in workers]
    free = dict.fromkeys(workers, int(messages.begun[0]))
    for first, stop in rounds:
        part = _Message(*(column[first:stop] for column in messages))
        gaps = []
        for worker in workers:
            mine = part.begun[part.src == worker]
            begun = int(mine.min()) if len(mine) else free[worker]
            gaps.append(max(0, begun - free[worker]))
        longest = max(1, *gaps)
        for factors, gap in zip(slowness, gaps, strict=True):
            factors.append(gap / longest)
        steps.append(Step((_fragments(part, workers, fabric),), (longest * PS,)))
        for worker in workers:
            ends = part.ended[(part.dst == worker) | (part.src == worker)]
            free[worker] = int(ends.max(initial=free[worker]))
    outs = np.unique(np.stack([messages.src, messages.dst]), axis=1).shape[1]
    kind = "ring" if outs == len(hosts) else "pairs"
    return Job(
        f"job{number} captured {kind}",
        tuple(workers),
        workers[0],
        tuple(steps),
        window,
        int(messages.begun[0]) * PS,
        tuple(tuple(factors) for factors in slowness),
        took_ns=int(messages.ended.max() - messages.begun[0]),
    )


def _fragments(part: _Message, workers: Sequence[int], fabric: Fabric) -> int:
    """Packets of gradients per worker of a collective."""
    n = len(workers)
    sent = int(np.bincount(part.src, part.payload, max(workers) + 1).max())
    size = sent * n / (2 * (n - 1))
    fragments = max(1, -(-int(size) // PAYLOAD_BYTES))
    if fragments > MOST_FRAGMENTS:
        raise UsageError(
            f"{_named(workers, fabric)}: a collective of {int(size):,} bytes is more than "
            f"{MOST_FRAGMENTS:,} packets; use --filter"
        )
    return fragments


def _named(hosts: Sequence[int], fabric: Fabric) -> str:
    shown = ", ".join(fabric.host_name(host) for host in hosts[:3])
    return shown if len(hosts) <= 3 else f"{shown} and {len(hosts) - 3} more"

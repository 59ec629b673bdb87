"""Runs of training jobs on the packet engine, and their traffic at taps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bytes, Int32s, Ints, NamedTuple
from ..fabrics.fabric import Fabric
from ..generate.queue_pairs import ICRC, START_NS, linux_source_port
from ..jobs.collectives import Job
from ..jobs.offered import OfferedJobs, offer_jobs
from ..jobs.tasks import FreeHosts
from ..packets.event_driven import run_event_driven
from ..packets.failures import Failures, LinkEvent
from ..packets.hosts.transport import Transport
from ..packets.model.model import ACK, Edges, Model, Workload, earliest
from ..packets.model.records import Records
from ..strategies.registry import parse_packet_strategy
from .faults import PS, Faults, Tap, all_cables
from .frames import (
    CTS_ROWS,
    CTS_STRIDE,
    HEADERS,
    Flows,
    Messages,
    Seen,
    grant_body,
    hops_of,
    identifications,
    message_and_number,
    packet_bytes,
)
from .jobs import HANG_PS, Plan, Trained, train
from .nccl import GRANT, HIDDEN

PAYLOAD: Final = 4096
_ACK_BYTES: Final = HEADERS + 4 + ICRC


class Settings(NamedTuple):
    """What a run needs beside its jobs and faults."""

    fabric: Fabric
    seed: int
    strategy: str = "ecmp"
    timeout_ps: int = 67 * 10**9
    """After which a packet that is not acknowledged is retransmitted."""
    ecn_bytes: int | None = None
    """Queue above which switches mark packets; hosts then send by DCQCN."""


@dataclass
class Generation:
    """The life of a job from a start to its end or restart."""

    plan: Plan
    number: int
    start_ps: int
    trained: Trained
    job: Job
    first_node: int = 0
    """Among the nodes of all generations."""


@dataclass
class Run:
    """A run of all generations: times of nodes, and packets at links."""

    generations: list[Generation]
    offered: OfferedJobs
    ends: Ints
    """int64[nodes], ps: a message is received, a computation ends; -1: never."""
    passages: Records

    def end(self, generation: Generation, node: int) -> int:
        return int(self.ends[generation.first_node + node])


def hosts_needed(plans: Sequence[Plan]) -> int:
    """Hosts of a fabric on which all jobs fit."""
    return sum(plan.ranks for plan in plans if plan.beside is None)


def hosts_of(plans: Sequence[Plan], fabric: Fabric, seed: int) -> list[Int32s]:
    """The hosts of the ranks of each job. UsageError if they do not fit."""
    free, placed = FreeHosts(fabric), dict[str, Int32s]()
    for plan in plans:
        if plan.name in placed:
            raise UsageError(f"job: two jobs have the name {plan.name!r}")
        if plan.beside is None:
            if plan.ranks > len(free):
                raise UsageError(
                    f"job: {plan.name} has {plan.ranks} ranks, but {fabric.name} has {len(free)} "
                    "free hosts"
                )
            taken = free.take(plan.ranks, plan.place, plan.name, seed)
            # The n-th interfaces of all hosts are placed one after the other.
            placed[plan.name] = taken.reshape(plan.nics, -1).T.reshape(-1)
            continue
        if plan.beside not in placed:
            raise UsageError(f"job: with={plan.beside}: there is no such job before {plan.name}")
        others = placed[plan.beside]
        if plan.ranks > len(others):
            raise UsageError(f"job: {plan.name} has more ranks than {plan.beside} has hosts")
        placed[plan.name] = others[: plan.ranks]
    return [placed[plan.name] for plan in plans]


def generations_of(
    plans: Sequence[Plan],
    hosts: Sequence[Int32s],
    faults: Faults,
    settings: Settings,
    hang_begins_ps: dict[str, int],
) -> list[Generation]:
    """hang_begins_ps: by the name of a job, when its hanging step begins; jobs without an entry
    have one generation."""
    made: list[Generation] = []
    for plan, of in zip(plans, hosts, strict=True):
        hang = faults.hang_of(plan.name)
        last = plan.steps if hang is None else hang.from_step + 1
        trained = train(plan, faults.ranks, settings.seed, 0, 0, last)
        job = trained.nccl.job(plan.name, of, plan.start_ps)
        made.append(Generation(plan, 0, plan.start_ps, trained, job))
        if hang is None or plan.name not in faults.restarts or plan.name not in hang_begins_ps:
            continue
        restart = faults.restarts[plan.name]
        others = [fault for fault in faults.ranks if fault is not hang]
        first = hang.from_step - restart.lost_steps
        trained = train(plan, others, settings.seed, 1, first)
        start = hang_begins_ps[plan.name] + restart.after_ps
        job = trained.nccl.job(f"{plan.name} again", of, start)
        made.append(Generation(plan, 1, start, trained, job))
    made.sort(key=lambda generation: generation.number)  # the first ones draw as without faults
    node = 0
    for generation in made:
        generation.first_node = node
        node += len(generation.job.graph.nodes().rank)
    return made


def _model(settings: Settings) -> Model:
    ecn = settings.ecn_bytes
    return Model(
        payload_bytes=PAYLOAD,
        header_bytes=HEADERS + ICRC,
        ack_bytes=_ACK_BYTES,
        ack_every=1 << 14,
        pfc=None,
        jitter=0.01,
        ecn_low_bytes=ecn,
        ecn_high_bytes=ecn,
    )


def simulate(
    generations: list[Generation],
    settings: Settings,
    events: Sequence[LinkEvent] = (),
    watched_links: Iterable[int] = (),
) -> tuple[Run, Wire]:
    """One run on the packet engine, which ends when nothing happens but hangs."""
    model, fabric = _model(settings), settings.fabric
    offered = offer_jobs([each.job for each in generations], fabric, model, settings.seed)
    wire = wire_of(generations, offered, settings)
    workload = _exact(offered.workload, wire)
    watched = np.zeros(len(fabric.links.source), np.uint8)
    watched[list(watched_links)] = 1
    result = run_event_driven(
        workload,
        fabric,
        parse_packet_strategy(settings.strategy),
        model,
        settings.seed,
        transport=Transport(
            recovery="go-back-n",
            rto_ps=settings.timeout_ps,
            congestion="none" if settings.ecn_bytes is None else "dcqcn",
        ),
        failures=Failures(tuple(events)) if events else None,
        until_ps=HANG_PS // 2,
        watched=watched,
    )
    ends = np.full(len(offered.node), -1, np.int64)
    ends[offered.node] = np.concatenate([result.engine.received_ps, result.engine.computed_ps])
    return Run(generations, offered, ends, result.passages), wire


def perfect(run: Run) -> Ints:
    """int64[nodes]: as `Run.ends` of a network that takes no time."""
    workload, nodes = run.offered.workload, run.offered.workload.nodes
    same = np.flatnonzero(workload.flow[1:] == workload.flow[:-1])
    given = workload.edges
    edges = Edges(
        np.concatenate([given.node, same + 1]),
        np.concatenate([given.after, same]),
        np.zeros(len(given.node) + len(same), np.uint8),
    )
    takes = np.zeros(nodes, np.int64)
    takes[len(workload.flow) :] = workload.waits.takes_ps
    release = np.zeros(nodes, np.int64)
    release[: len(workload.flow)] = workload.release_ps
    begin, _ = earliest(nodes, edges, release, np.stack([takes, takes]))
    ends = np.empty(nodes, np.int64)
    ends[run.offered.node] = begin + takes
    return ends


class Wire(NamedTuple):
    """What the flows and messages of a run are on the wire."""

    flows: Flows
    messages: Messages
    generation: Ints
    """int64[M]: index of the generation of each message; so are the next two of its own."""
    connection: Ints
    step: Ints


def wire_of(generations: list[Generation], offered: OfferedJobs, settings: Settings) -> Wire:
    """Queue pairs, addresses in memory and bodies of all messages."""
    workload, fabric = offered.workload, settings.fabric
    count = len(workload.flow)
    chance = np.random.default_rng([settings.seed, 0x4E43])
    next_qp = chance.integers(0x100, 0x8000, fabric.hosts)
    columns = np.zeros((7, count), np.int64)  # kind, connection, number, size, step, address, key
    kind, connection, number, size, step, address, key = columns
    body = np.zeros((count, 64), np.uint8)
    flow_ends = np.zeros((3, len(workload.src)), np.int64)  # dest_qp, ack_qp, port
    of_job = offered.job[:count]
    for index, generation in enumerate(generations):
        nccl, hosts = generation.trained.nccl, generation.job.hosts
        rows = np.flatnonzero(of_job == index)
        carried = [
            nccl.messages[node] for node in (offered.node[rows] - generation.first_node).tolist()
        ]
        of = np.array(
            [(m.kind, m.connection, m.number, m.size, m.step) for m in carried], np.int64
        ).reshape(-1, 5)
        columns[:5, rows] = of.T
        connections = nccl.connections
        numbers: list[list[tuple[int, int]]] = []  # of each connection, of its queue pairs
        for each in connections:
            ends = []
            for _ in each.queue_pairs:
                pair = []
                for host in (hosts[each.sender], hosts[each.receiver]):
                    pair.append(int(next_qp[host]))
                    next_qp[host] += chance.integers(1, 4)
                ends.append((pair[0], pair[1]))
            numbers.append(ends)
        memory = 0x7E0000000000 + (chance.integers(0, 1 << 20, (len(connections), 2)) << 17)
        keys = chance.integers(1, 1 << 20, (len(connections), 2))
        slots = np.array([(c.slots, c.slot_bytes, c.sender) for c in connections]).reshape(-1, 3)
        real = rows[kind[rows] != HIDDEN]
        at = connection[real]
        slot_address = memory[at, 0] + number[real] % slots[at, 0] * slots[at, 1]
        grants = kind[real] == GRANT
        table = memory[at, 1] + number[real] % CTS_ROWS * CTS_STRIDE
        address[real] = np.where(grants, table, slot_address)
        key[real] = np.where(grants, keys[at, 1], keys[at, 0])
        body[real[grants]] = grant_body(
            generation.plan.layout,
            slot_address[grants],
            slots[at[grants], 1],
            keys[at[grants], 0],
            slots[at[grants], 2],
            number[real[grants]],
        )
        for row in real.tolist():
            pairs = numbers[connection[row]]
            is_grant = kind[row] == GRANT
            source, target = pairs[0 if is_grant else number[row] % len(pairs)]
            ends_of = (source, target) if is_grant else (target, source)
            flow_ends[:2, workload.flow[row]] = ends_of
    flow_ends[2] = linux_source_port(flow_ends[0], flow_ends[1])
    flows = Flows(
        fabric.addresses.packed(workload.src)[:, 12:],
        fabric.addresses.packed(workload.dst)[:, 12:],
        flow_ends[0],
        flow_ends[1],
        flow_ends[2],
        chance.integers(0, 1 << 24, len(workload.src)),
    )
    first = workload.flow_start[workload.flow]
    messages = Messages(
        workload.flow,
        np.arange(count) - first,
        workload.packet_start[:-1] - workload.packet_start[first],
        workload.packets,
        size,
        kind,
        number,
        address,
        key,
        body,
    )
    return Wire(flows, messages, of_job.astype(np.int64), connection, step)


def _exact(workload: Workload, wire: Wire) -> Workload:
    """With the sizes of the frames, and the headers that switches hash."""
    messages = wire.messages
    message = np.repeat(np.arange(len(messages.size)), messages.packets)
    number = np.arange(len(message)) - workload.packet_start[message]
    sizes = packet_bytes(
        messages.size[message], messages.kind[message], messages.packets[message], number, PAYLOAD
    )
    keys, flows = workload.traffic.keys, wire.flows
    ports = np.tile(flows.port, 2).astype(np.uint16)
    pairs = np.concatenate([flows.dest_qp, flows.ack_qp]).astype(np.uint32)
    traffic = replace(workload.traffic, keys=keys._replace(sport=ports, dest_qp=pairs))
    starts = workload.packet_start[:-1]
    return workload._replace(
        wire_bytes=sizes.astype(np.int32),
        packet_bytes=np.maximum.reduceat(sizes, starts),
        last_bytes=sizes[workload.packet_start[1:] - 1],
        traffic=traffic,
    )


class TapView(NamedTuple):
    """The packets of one tap, in order of time."""

    tap: Tap
    seen: Seen
    lost: Ints
    """int64[n]: 1 if the link lost the packet after the tap."""


def at_taps(run: Run, wire: Wire, taps: Sequence[Tap], fabric: Fabric) -> list[TapView]:
    """What each tap sees: packets that leave its node when they are sent, those that arrive there
    unless the link has lost them. Signals inside hosts are left out."""
    every = run.passages
    message, number = message_and_number(every["key"])
    real = wire.messages.kind[message] != HIDDEN
    every, message, number = every[real], message[real], number[real]
    if not len(every):
        raise UsageError("--taps: no packet passes them")
    ways, key = _ways(wire.flows), every["key"]
    way = ways[wire.messages.flow[message], ((key & ACK) != 0).astype(np.int64)]
    ids = identifications(way, key, every["stamp"], every["time"])
    addresses = _ethernet(fabric)
    views = []
    for tap in taps:
        rows = np.flatnonzero(np.isin(every["link"], tap.links))
        leaves = fabric.links.source[every["link"][rows]] == tap.node
        lost = every["trail"][rows] & 1
        rows, leaves = rows[leaves | (lost == 0)], leaves[leaves | (lost == 0)]
        link = every["link"][rows]
        time = every["time"][rows] - np.where(leaves, fabric.links.delay_ns[link] * PS, 0)
        order = np.argsort(time, kind="stable")
        rows, time, link = rows[order], time[order], link[order]
        key = every["key"][rows]
        seen = Seen(
            START_NS + time // PS,
            message[rows],
            number[rows],
            key,
            ids[rows],
            hops_of(key, every["trail"][rows]),
            addresses[link, 0],
            addresses[link, 1],
        )
        views.append(TapView(tap, seen, every["trail"][rows] & 1))
    return views


def _ways(flows: Flows) -> Ints:
    """int64[F, 2]: numbers of the queue pairs that send the requests and the ACKs of flows."""
    ends = [
        np.concatenate([a, b, qp[:, None].astype(np.int64)], 1)
        for a, b, qp in (
            (flows.src, flows.dst, flows.dest_qp),
            (flows.dst, flows.src, flows.ack_qp),
        )
    ]
    _, way = np.unique(np.concatenate(ends), axis=0, return_inverse=True)
    return way.reshape(2, -1).T


def _ethernet(fabric: Fabric) -> Bytes:
    """uint8[L, 2, 6]: addresses at both ends of links; locally administered, a port of its own for
    every end of a cable."""
    out = np.zeros((len(fabric.links.source), 2, 6), np.uint8)
    for cable, (link, back) in enumerate(all_cables(fabric).tolist()):
        for first, second in ((link, back), (back, link)):
            node = int(fabric.links.source[first])
            raw = (2 << 40) | (node + 1) << 20 | (cable + 1)
            out[first, 0] = out[second, 1] = np.frombuffer(raw.to_bytes(6, "big"), np.uint8)
    return out

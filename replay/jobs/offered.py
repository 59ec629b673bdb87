"""What jobs offer to the network, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints
from ..fabrics.fabric import Fabric
from ..generate.patterns import Demands
from ..generate.queue_pairs import QueuePairs, Sending, queue_pairs
from ..packets.bounds import bounds
from ..packets.model.model import (
    LATEST_PS,
    MOST_PACKETS,
    EngineResult,
    Model,
    Waits,
    Workload,
    all_with_all,
    earliest,
)
from ..packets.model.model import Edges as AllEdges
from ..packets.offers import units_of, workload_of
from ..traffic.traffic import ON_ACKED, ON_RECEIVED
from .collectives import MOST_EDGES, MOST_NODES, Job, Nodes


class OfferedJobs(NamedTuple):
    """A workload, and which job its nodes belong to."""

    workload: Workload
    job: Int32s
    """int32[nodes]: of each message, then of each computation."""
    iteration: Int32s
    """int32[nodes]"""
    pairs: QueuePairs
    node: Int32s
    """int32[nodes]: number among the nodes of all jobs in turn; a message of several queue pairs
    has one for each."""


class _Whole(NamedTuple):
    """The nodes of all jobs, messages of several queue pairs split; int64[N] but columns of E."""

    job: Ints
    src: Ints
    dst: Ints
    """-1: a computation."""
    qp: Ints
    size: Ints
    iteration: Ints
    release: Ints
    node: Ints
    after: Ints


def offer_jobs(jobs: Sequence[Job], fabric: Fabric, model: Model, seed: int) -> OfferedJobs:
    """The jobs side by side. Messages of a pair of ranks are sent in the order of the graph, on
    `qps` queue pairs of their own. UsageError with the name of the job for nodes that form a
    dependency cycle, or that wait for a node that is never complete at their host.
    """
    joined = _whole(jobs)
    is_message = joined.dst >= 0
    rows, work = np.flatnonzero(is_message), np.flatnonzero(~is_message)
    silent = np.flatnonzero(np.bincount(joined.job[rows], minlength=len(jobs)) == 0)
    if len(silent):
        raise UsageError(f"--jobs: {jobs[int(silent[0])].name} sends no message")
    key = np.stack([joined.job[rows], joined.src[rows], joined.dst[rows], joined.qp[rows]])
    pairs, flow = np.unique(key, axis=1, return_inverse=True)
    flow = flow.reshape(-1)
    order = np.argsort(flow, kind="stable")
    rows, flow = rows[order], flow[order]
    number = np.empty(len(joined.job), np.int64)  # of each node in the workload
    number[rows] = np.arange(len(rows))
    number[work] = len(rows) + np.arange(len(work))
    size = joined.size[rows]
    if int(size.max()) // model.payload_bytes >= MOST_PACKETS:
        raise UsageError(f"--jobs: a message of {int(size.max()):,} bytes is too long to replay")
    counts = np.bincount(flow, minlength=pairs.shape[1])
    demand = Demands(
        pairs[1],
        pairs[2],
        counts,
        np.maximum(1, np.maximum.reduceat(size, np.cumsum(counts) - counts)),
        np.zeros(len(counts), np.int64),
        np.ones(len(counts), np.int64),
    )
    made = queue_pairs(
        demand._replace(message_bytes=np.minimum(demand.message_bytes, (1 << 31) - 1)),
        Sending(),
        np.random.default_rng(seed),
    )
    workload = workload_of(
        pairs[1],
        pairs[2],
        size,
        units_of(made, fabric.addresses, flow, size, model),
        model,
        flow=flow,
        release_ps=joined.release[rows],
    )
    if len(model.classes) > 1:
        of = np.array([job.priority % len(model.classes) for job in jobs], np.uint8)
        workload = workload._replace(priority=of[pairs[0]])
    after, node = joined.after, joined.node
    on = np.where(
        joined.src[after] == joined.src[node],
        ON_ACKED,
        np.where(joined.dst[after] == joined.src[node], ON_RECEIVED, -1),
    )
    if (on < 0).any():
        job = jobs[int(joined.job[node[int(np.argmax(on < 0))]])]
        raise UsageError(f"--jobs: {job.name}: a node waits for a node of other hosts")
    workload = workload._replace(
        waits=Waits(
            number[node].astype(np.int32),
            number[after].astype(np.int32),
            on.astype(np.uint8),
            joined.src[work].astype(np.int32),
            joined.size[work],
        )
    )
    placed = np.concatenate([rows, work])
    _check_order(jobs, workload, joined.job[placed])
    return OfferedJobs(
        workload,
        joined.job[placed].astype(np.int32),
        joined.iteration[placed].astype(np.int32),
        made,
        placed.astype(np.int32),
    )


def _check_order(jobs: Sequence[Job], workload: Workload, job: Ints) -> None:
    """UsageError if nodes form a dependency cycle (the order of queue pairs included), or if
    times do not fit into int64."""
    flow, nodes = workload.flow, workload.nodes
    same = np.flatnonzero(flow[1:] == flow[:-1])
    among_themselves = workload.edges
    edges = AllEdges(
        np.concatenate([among_themselves.node, same + 1]),
        np.concatenate([among_themselves.after, same]),
        np.zeros(len(among_themselves.node) + len(same), np.uint8),
    )
    takes = np.zeros(nodes, np.int64)
    takes[len(flow) :] = workload.waits.takes_ps
    begin, order = earliest(nodes, edges, np.zeros(nodes, np.int64), np.stack([takes, takes]))
    if len(order) == nodes:
        if int((begin + takes).max(initial=0)) >= LATEST_PS:
            name = jobs[int(job[int(np.argmax(begin + takes))])].name
            raise UsageError(f"--jobs: {name}: its computations take longer than 26 days")
        return
    held = np.ones(nodes, np.bool_)
    held[order] = False
    name = jobs[int(job[int(np.argmax(held))])].name
    raise UsageError(
        f"--jobs: {name}: {int(held.sum()):,} messages or computations form a dependency cycle"
    )


def _whole(jobs: Sequence[Job]) -> _Whole:
    parts = []
    shift = 0
    for at, job in enumerate(jobs):
        parts.append(_split(at, job, shift))
        shift += len(parts[-1].job)
        if shift > MOST_NODES or sum(len(part.node) for part in parts) > MOST_EDGES:
            raise _too_many()
    return _Whole(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _too_many() -> UsageError:
    return UsageError("--jobs: too many messages: use fewer workers, iterations or qps")


def _split(at: int, job: Job, shift: int) -> _Whole:
    """The nodes of a job, its messages as one node per queue pair."""
    nodes, edges = job.graph.nodes(), job.graph.edges()
    times = np.where(nodes.to >= 0, np.minimum(job.qps, np.maximum(1, nodes.size)), 1)
    if int(times.sum()) > MOST_NODES:
        raise _too_many()
    begin = np.cumsum(times) - times
    source = np.repeat(np.arange(len(times)), times)
    part = np.arange(len(source)) - begin[source]
    copied = Nodes(*(column[source] for column in nodes))
    qp = copied.channel * job.qps + part if job.queue_pair is None else job.queue_pair[source]
    is_message = copied.to >= 0
    size = np.where(
        is_message, copied.size // times[source] + (part < copied.size % times[source]), copied.size
    )
    if int((times[edges.node] * times[edges.after]).sum()) > MOST_EDGES:
        raise UsageError(f"--jobs: more than {MOST_EDGES:,} dependencies: use fewer qps")
    node, after = all_with_all(edges.node, edges.after, times, begin)
    release = np.full(len(source), job.start_ps)
    if job.release_ps is not None:
        release = release + job.release_ps[source]
    waits = np.zeros(len(source), np.bool_)
    waits[node] = True
    hosts = job.hosts.astype(np.int64)
    # A computation at the start of a job ends later by the start of the job.
    size = size + np.where(~is_message & ~waits, release, 0)
    return _Whole(
        np.full(len(source), at),
        hosts[copied.rank],
        np.where(is_message, hosts[copied.to], -1),
        qp,
        size,
        copied.iteration,
        np.where(waits, 0, release),
        node + shift,
        after + shift,
    )


# When the jobs of a run were done.


class JobTimes(NamedTuple):
    """Of one job in one run, ps."""

    name: str
    workers: int
    start: int
    end: int | None
    """When its last message is acknowledged and its last computation done; None: never."""
    iterations: tuple[int, ...]
    """Ends of the iterations that are done."""
    bound: int
    """Lower bound of `end - start`, alone on an idle fabric."""
    priority: int = 0
    """As of `Job`."""


def alone_ps(jobs: Sequence[Job], fabric: Fabric, model: Model, rate_share: float) -> list[int]:
    """Lower bounds of the times of jobs, each alone on an idle fabric."""
    times = []
    for job in jobs:
        load = offer_jobs([job], fabric, model, 1).workload
        times.append(bounds(load, fabric, model, rate_share).completion_ps - job.start_ps)
    return times


def job_times(
    jobs: Sequence[Job], alone: Sequence[int], offered: OfferedJobs, result: EngineResult
) -> list[JobTimes]:
    """The times of all jobs of a run. alone: of `alone_ps`."""
    ends = np.concatenate([result.completed_ps, result.computed_ps])
    times = []
    for number, (job, bound) in enumerate(zip(jobs, alone, strict=True)):
        of_job = offered.job == number
        done, of = ends[of_job], offered.iteration[of_job]
        last = np.zeros(job.iterations, np.int64)
        np.maximum.at(last, of, np.where(done < 0, np.iinfo(np.int64).max, done))
        iteration_ends = np.maximum.accumulate(last)
        times.append(
            JobTimes(
                job.name,
                len(job.hosts),
                job.start_ps,
                int(iteration_ends[-1]) if (done >= 0).all() else None,
                tuple(iteration_ends[iteration_ends < np.iinfo(np.int64).max].tolist()),
                bound,
                job.priority,
            )
        )
    return times

"""A run of one scheme: its arrays, and what they hold at the end.

The driver has one event per packet and link, per waking worker and per reminder. Links are those of
the packet engine and are served as in its event-driven driver: a link has one event, the arrival of
the first packet on its wire.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import noun
from ...kernels.kernel import Array, Int, Int32s, Ints, kernel
from ..fabrics.fabric import Fabric
from ..packets.model import state as rs
from ..packets.model.arrays import FabricArrays, fabric_arrays
from ..packets.model.draws import generator
from ..packets.model.model import NEVER
from ..packets.model.pause_state import no_pauses
from ..packets.model.queueing import TrafficClass, new_classes
from ..packets.model.records import Records, table
from ..packets.model.wheel import new_wheel, next_event, schedule
from ..packets.pauses import free_slot
from ..packets.queues import serve, take_arrival
from . import state as st
from .jobs import WIRE_BYTES, Job, priorities
from .network import disturbed, note_mark
from .schemes import Conduct, Scheme
from .server import remind, take_gradient
from .state import (
    CELL,
    CONTROL,
    DEGREES,
    EXPECTED,
    GRADIENT,
    JOB,
    KINDS,
    LAYER,
    PACKET,
    POOL_SLOT,
    RACK,
    SUM,
    TALLY,
    WORKER,
    Ground,
    Memory,
    Run,
    World,
)
from .switches import at_switch, scheme_at
from .workers import begin_iteration, take_pooled, take_result, wake, wake_pool, worker_item

HOPS_AT_ONCE = 1 << 20
"""Hops between two looks at progress and Ctrl-C."""
BINS = 128
_ORDER = 0x696E61
"""Purpose of the order in which collisions use slots."""
MOST_CELLS = 1 << 26
"""Slots of all switches, 64 bytes each."""
ATP_WINDOW = 200
"""Of ATP's congestion control at the start, packets."""
HASH_TRIES = 1 << 16
"""Salts that a host tries to find a slot that its job does not use."""


class Conditions(NamedTuple):
    """What all schemes of a comparison share."""

    slots: int
    """Of the memory of each switch that has workers or a PS."""
    seed: int = 0
    jitter: float = 0.2
    """Compute times vary by up to this share."""
    buffer_bytes: int | None = None
    ecn_bytes: int | None = None
    """Queue from which on switches mark; None: never."""
    loss: float = 0.0
    """Share of packets lost on each link; the same for the two below."""
    copies: float = 0.0
    delays: float = 0.0
    until_ps: int = 60 * 10**12


class Outcome(NamedTuple):
    """What a run gave."""

    finished_ps: Ints
    """int64[workers], -1 for those that did not finish."""
    ends_ps: Ints
    """int64[workers, iterations]: end of each iteration, -1 before."""
    tally: Records
    """TALLY[jobs]"""
    usage: Ints
    """int64[2, bins]: slot-ps taken, and taken for sums that became complete."""
    bin_ps: int
    link_bytes: Ints
    """int64[L]"""
    link_drops: Ints
    slots_left: int
    """Slots that are still taken: of jobs that did not finish, or claimed by late copies."""
    hops: int
    at_ps: int
    """Time of the last event."""


def simulate(
    scheme: Scheme,
    jobs: Sequence[Job],
    fabric: Fabric,
    conditions: Conditions,
    stop: Event | None = None,
) -> Outcome:
    """Run the jobs. UsageError when scheme, jobs and memory do not go together."""
    conduct = scheme.conduct
    run = new_run(scheme.name, conduct, jobs, fabric, conditions)
    begin = np.repeat([job.start_ps for job in jobs], [len(job.workers) for job in jobs])
    start(run, begin.astype(np.int64))
    while True:
        outcome = run_jobs(run, conduct.at_switch, conditions.until_ps, HOPS_AT_ONCE)
        if outcome == GROW:
            net = rs.with_more_slots(run.net)
            run = run._replace(net=net, world=_with_room(run.world, len(net.slots)))
            continue
        if outcome == DONE or (stop is not None and stop.is_set()):
            break
    wrong = int(run.memory.tally["wrong"].sum())
    if wrong:
        raise AssertionError(f"{scheme.name}: {wrong:,} results are not the sum of the gradients")
    return _outcome(run)


def new_run(
    name: str, conduct: Conduct, jobs: Sequence[Job], fabric: Fabric, conditions: Conditions
) -> Run:
    """The state before the first event."""
    arrays = fabric_arrays(fabric)
    check(name, conduct, jobs, arrays, conditions.slots)
    world, slots = _world(name, conduct, jobs, fabric, arrays, conditions)
    memory_of, masks = _masks(jobs, arrays, conduct, len(arrays.route))
    memories = int(memory_of.max(initial=-1)) + 1
    source_is_host = fabric.links.source >= fabric.switches
    ground = Ground(
        target=arrays.target,
        from_host=source_is_host.astype(np.uint8),
        route=arrays.route,
        group_start=arrays.group_start,
        members=arrays.members,
        host_edge=arrays.host_edge,
        host_switch=arrays.host_switch[:, 0].copy(),
        access=arrays.access[:, 0].copy(),
        exits=arrays.exits[:, 0].copy(),
        memory_of=memory_of,
        masks=masks,
    )
    params = np.zeros(st.PARAMS, np.int64)
    params[st.SLOTS], params[st.BIN_PS] = slots, 1_000_000
    params[st.OWN : st.OWN + len(conduct.params)] = conduct.params
    memory = Memory(
        table(max(1, memories * slots), CELL),
        table(len(jobs), TALLY),
        np.zeros((2, BINS), np.int64),
        params,
    )
    margin = int(world.control["margin"][0])
    return Run(_net(arrays, conditions, 4 * margin), ground, _with_room(world, 4 * margin), memory)


def check(
    name: str, conduct: Conduct, jobs: Sequence[Job], arrays: FabricArrays, slots: int
) -> None:
    """UsageError when a scheme, jobs and a size of memory do not go together."""
    _, _, size = _slots(name, conduct, jobs, slots)
    racks = (_racks(job, arrays, _server(job, arrays, conduct)) for job in jobs)
    memories = len({switch for of_job in racks for switch, _ in of_job})
    tables = max(memories, len(jobs) if conduct.rehash else 1)
    if tables * size > MOST_CELLS:
        raise UsageError(
            f"{name}: {memories:,} switches with {size:,} slots, shared by {len(jobs):,} jobs, are "
            f"more than {MOST_CELLS:,} slots in all"
        )


def _net(arrays: FabricArrays, conditions: Conditions, room: int) -> rs.Net:
    links = rs.idle_links(arrays)
    settings = table(1, rs.SETTINGS)
    never = int(NEVER)
    settings["buffer"] = never if conditions.buffer_bytes is None else conditions.buffer_bytes
    marking = never if conditions.ecn_bytes is None else conditions.ecn_bytes
    settings["ecn_low"] = settings["ecn_high"] = marking
    settings["ecn_most"], settings["classes"] = 1 << 24, 1
    settings["seed"], settings["histogram_bins"] = conditions.seed, 2
    counts = table(1, rs.COUNTS)
    counts["free_slots"] = room
    return rs.Net(
        links,
        table(len(links), rs.STAT),
        rs.free_slots(0, room, rs.SLOT),
        counts,
        settings,
        np.zeros((1, 2), np.int64),
        np.zeros((1, 1), np.int64),
        no_pauses(),
        new_classes((TrafficClass(),), len(links), np.zeros(1, np.uint8), 1),
    )


def _racks(job: Job, arrays: FabricArrays, server: int) -> list[tuple[int, list[int]]]:
    """Switches of a job with the positions of their workers; the PS's switch also without any."""
    workers_of: dict[int, list[int]] = {}
    for at, host in enumerate(job.workers):
        workers_of.setdefault(int(arrays.host_switch[host, 0]), []).append(at)
    workers_of.setdefault(int(arrays.host_switch[server, 0]), [])
    return list(workers_of.items())


def _server(job: Job, arrays: FabricArrays, conduct: Conduct) -> int:
    """The host of the PS, at whose switch sums become whole. Without PS a worker: in the rack that
    other schemes have their PS in, or else the first one."""
    if conduct.has_server:
        return job.server
    switch = arrays.host_switch[:, 0]
    there = (host for host in job.workers if switch[host] == switch[job.server])
    return next(there, job.workers[0])


def _masks(
    jobs: Sequence[Job], arrays: FabricArrays, conduct: Conduct, switches: int
) -> tuple[Int32s, Ints]:
    memory_of = np.full(switches, -1, np.int32)
    rows: list[list[int]] = []
    for number, job in enumerate(jobs if conduct.aggregates else ()):
        server = _server(job, arrays, conduct)
        for switch, workers in _racks(job, arrays, server):
            if memory_of[switch] < 0:
                memory_of[switch] = len(rows)
                rows.append([0] * len(jobs))
            of_server = switch == arrays.host_switch[server, 0]
            bits = range(len(job.workers)) if of_server else workers
            rows[memory_of[switch]][number] = sum(1 << bit for bit in bits)
    return memory_of, np.array(rows, np.int64).reshape(len(rows), len(jobs))


def _world(
    name: str,
    conduct: Conduct,
    jobs: Sequence[Job],
    fabric: Fabric,
    arrays: FabricArrays,
    conditions: Conditions,
) -> tuple[World, int]:
    windows, shares, slots = _slots(name, conduct, jobs, conditions.slots)
    ring = 1 << (4 * max(windows) - 1).bit_length()
    servers = [_server(job, arrays, conduct) for job in jobs]
    racks_of = [_racks(job, arrays, host) for job, host in zip(jobs, servers, strict=True)]
    workers = sum(len(job.workers) for job in jobs)
    of_jobs, of_workers = table(len(jobs), JOB), table(workers, WORKER)
    layers: list[tuple[int, int, int]] = []
    racks: list[tuple[int, int, int]] = []
    most_steps = max(
        (len(racks_of_job) for job in jobs for racks_of_job in job.slowness), default=1
    )
    slowness = np.full((workers, most_steps), 1 << 16, np.int64)
    ladder = priorities(jobs, int(fabric.links.rate_bits_per_second.min()))
    first = base = 0
    for number, job in enumerate(jobs):
        racks_of_job = racks_of[number]
        of_jobs[number] = (
            len(job.workers), first, servers[number], job.iterations, windows[number],
            len(job.steps[0].fragments), len(layers),
            0 if job.took_ns is not None else round(conditions.jitter * (1 << 16)),
            round(job.overflow * (1 << 31)) if conduct.overflows else 0,
            len(racks), len(racks_of_job), base, shares[number], 0, 0,
        )  # fmt: skip
        of_job = of_workers[first : first + len(job.workers)]
        of_job["job"], of_job["bit"], of_job["host"] = number, range(len(of_job)), job.workers
        for switch, there in racks_of_job:
            begin = first + (there[0] if there else 0)
            racks.append((switch, begin, begin + len(there)))
        end = 0
        for step, levels in zip(job.steps, ladder[number], strict=True):
            for size, ps, level in zip(*step, levels, strict=True):
                end += size
                layers.append((end, ps, level))
        for worker, factors in enumerate(job.slowness, first):
            scaled = np.rint(np.array(factors) * (1 << 16)).astype(np.int64)
            slowness[worker, : len(scaled)] = scaled
            slowness[worker, len(scaled) :] = scaled[-1]
        first, base = first + len(job.workers), base + shares[number]
    of_workers["finished"] = -1
    of_workers["congestion"] = ATP_WINDOW * st.ONE_PACKET
    degrees = table(workers, DEGREES)
    pool = np.zeros((workers, 1 if conduct.has_server else max(windows)), POOL_SLOT)
    pool["seq"] = np.arange(pool.shape[1])
    if conduct.congestion == st.TWO_WINDOWS:  # a window of all that may be in flight
        own_windows = np.repeat(windows, [len(job.workers) for job in jobs])
        of_workers["aggregators"] = np.minimum(own_windows, conduct.aggregators or own_windows)
        of_workers["congestion"] = own_windows * st.ONE_PACKET
        degrees["prompt"] = degrees["prompt_now"] = 1
    index = _index(jobs, windows, conduct, shares, slots)
    listed = slots if conduct.rehash else 0
    unused = np.zeros((len(jobs), listed), np.int32)
    taken = np.zeros((len(jobs), listed), np.uint8)
    for number in range(len(jobs) if listed else 0):
        unused[number] = generator(conditions.seed, _ORDER, number).permutation(slots)
    for number, window in enumerate(windows):
        if listed:
            taken[number, index[number, :window]] = 1
    control = _control(conduct, conditions, ring)
    control["margin"] = 2 * ring + 4 * workers + 256
    if conduct.remind_ps:
        control["margin"] += ring * max(map(len, racks_of))
    iterations = max(job.iterations for job in jobs)
    items = 1 + len(arrays.target) + workers + len(jobs)
    service = int(np.median((WIRE_BYTES * arrays.ps_per_byte_q20) >> 20))
    ahead = service + int(arrays.delay_ps.max(initial=0))
    return World(
        extra=table(1, PACKET),
        jobs=of_jobs,
        workers=of_workers,
        racks=np.array(racks, RACK),
        layers=np.array(layers, LAYER),
        slowness=slowness,
        worker_index=np.repeat(index, [len(job.workers) for job in jobs], axis=0),
        unused=unused,
        taken=taken,
        server_index=index.copy(),
        pool=pool,
        degrees=degrees,
        got=np.zeros((workers, ring), np.uint8),
        sums=table(len(jobs) * ring, SUM),
        expected=table(len(jobs) * ring, EXPECTED),
        ends=np.full((workers, iterations), -1, np.int64),
        control=control,
        wheel=new_wheel(items, max(1, service // max(1, workers)), ahead),
    ), slots


def _slots(
    name: str,
    conduct: Conduct,
    jobs: Sequence[Job],
    memory: int,
) -> tuple[list[int], list[int], int]:
    """Windows and fixed shares of the jobs, and slots of a switch."""
    if not conduct.has_server:
        share = memory // len(jobs)
        if share < 2:
            raise UsageError(
                f"{name}: {memory:,} {noun(memory, 'slot')} for {len(jobs):,} "
                f"{noun(len(jobs), 'job')}; each needs two"
            )
        shares = [min(share, 2 * job.window) // 2 * 2 for job in jobs]
        return [size // 2 for size in shares], shares, memory
    windows = [job.window for job in jobs]
    if conduct.private_slots or not conduct.aggregates:
        return windows, windows, max(1, sum(windows))
    for job in jobs:
        if job.window > memory:
            raise UsageError(
                f"{name}: {job.name} has a window of {job.window:,} packets, more than the "
                f"memory of {memory:,} {noun(memory, 'slot')}"
            )
    return windows, [0] * len(jobs), memory


def _index(
    jobs: Sequence[Job],
    windows: Sequence[int],
    conduct: Conduct,
    shares: Sequence[int],
    slots: int,
) -> Int32s:
    """int32[jobs, window]: the first slot of every window position (ATP: a CRC32 with a salt that
    grows until the slot is new to the job)."""
    index = np.zeros((len(jobs), max(windows)), np.int32)
    if not conduct.has_server:
        return index
    base = 0
    for number, window in enumerate(windows):
        if shares[number]:
            index[number, :window] = base + np.arange(window)
            base += window
            continue
        used: set[int] = set()
        free = iter(range(slots))
        for position in range(window):
            slot = -1
            for salt in range(HASH_TRIES):
                slot = zlib.crc32(_hashed(number + 1, position, salt)) % slots
                if slot not in used:
                    break
            else:  # the last slots of a memory that one window fills
                slot = next(number_of_slot for number_of_slot in free if number_of_slot not in used)
            used.add(slot)
            index[number, position] = slot
    return index


def _hashed(job: int, position: int, salt: int) -> bytes:
    """ATP's six bytes: job, position, salt, 0. The salt's byte wraps; its rest is the last byte."""
    return bytes((job & 255, job >> 8, position & 255, position >> 8 & 255, salt & 255, salt >> 8))


def _control(conduct: Conduct, conditions: Conditions, ring: int) -> Records:
    control = table(1, CONTROL)
    chance = 1 << 31
    for name, value in {
        "rto": conduct.rto_ps,
        "first_rto": conduct.first_rto_ps,
        "trigger": conduct.trigger,
        "rehash": conduct.rehash,
        "remind": conduct.remind_ps,
        "has_server": conduct.has_server,
        "multicast": conduct.multicast,
        "congestion": conduct.congestion,
        "loss": round(conditions.loss * chance),
        "copies": round(conditions.copies * chance),
        "delays": round(conditions.delays * chance),
        "bytes": WIRE_BYTES,
        "seed": conditions.seed,
        "ring": ring,
        "double_after": conduct.double_after,
        "slot_timeout": conduct.slot_timeout_ps,
        "base_rtt": conduct.base_rtt_ps,
        "contention": conduct.contention_percent,
    }.items():
        control[name] = value
    return control


def _with_room(world: World, room: int) -> World:
    extra = table(room, PACKET)
    extra[: len(world.extra)] = world.extra
    return world._replace(extra=extra)


def _outcome(run: Run) -> Outcome:
    world, memory = run.world, run.memory
    now = int(world.control["now"][0])
    usage = memory.usage.copy()
    cells: Array = memory.cells[memory.cells["owner"] != 0]
    width = int(memory.params[st.BIN_PS])
    while now // width >= BINS:
        usage[:, : BINS // 2] = usage.reshape(2, BINS // 2, 2).sum(2)
        usage[:, BINS // 2 :] = 0
        width *= 2
    if world.control["has_server"][0]:  # slots that are still taken
        for since in cells["since"].tolist():
            for at in range(since // width, min(now // width, BINS - 1) + 1):
                usage[0, at] += max(0, min(now, (at + 1) * width) - max(since, at * width))
    return Outcome(
        world.workers["finished"].copy(),
        world.ends,
        memory.tally,
        usage,
        width,
        run.net.links["carried"].copy(),
        run.net.stats["drops"].copy(),
        len(cells) if world.control["has_server"][0] else 0,
        int(run.net.counts["hops"][0]),
        now,
    )


DONE, MORE, GROW = range(3)
"""All workers finished, or no event is left before the end; stopped after `most_hops`; more slots
are needed."""


@kernel
def start(run: Run, begin_ps: Ints) -> None:
    """Begin the first iteration of all workers. begin_ps: int64[workers]."""
    for worker in range(len(run.world.workers)):
        begin_iteration(run, worker, begin_ps[worker])
        schedule(run.world.wheel, worker_item(run, worker), begin_ps[worker])


@kernel
def run_jobs(run: Run, scheme_address: Int, until_ps: Int, most_hops: Int) -> Int:
    """Handle events until all workers finished. Returns DONE, MORE or GROW."""
    scheme = scheme_at(scheme_address)
    net, world, ground = run.net, run.world, run.ground
    links, slots, counts, control = net.links, net.slots, net.counts, world.control
    switches, first_worker = len(ground.memory_of), 1 + len(links)
    first_server = first_worker + len(world.workers)
    pooled = control[0].has_server == 0
    stop = counts[0].hops + most_hops
    while control[0].finished < len(world.workers):
        if counts[0].free_slots < control[0].margin:
            return GROW
        if counts[0].hops >= stop:
            return MORE
        item, time = next_event(world.wheel)
        if item < 0:
            return DONE
        if time > until_ps:
            return DONE
        control[0].now = time
        if item >= first_server:
            remind(run, item - first_server, time)
            continue
        if item >= first_worker:
            if pooled:
                wake_pool(run, item - first_worker, time)
            else:
                wake(run, item - first_worker, time)
            continue
        link = item - 1
        slot: Int = np.int64(-1)
        if links[link].head_time == time:
            slot = take_arrival(links, slots, link)
        if links[link].waiting_packets > 0:
            serve(net, link, time + 1)
        if links[link].head_time != NEVER:
            schedule(world.wheel, item, links[link].head_time)
        elif links[link].waiting_packets > 0:
            schedule(world.wheel, item, max(time, links[link].free))
        if slot < 0 or disturbed(run, link, slot, time):
            continue
        node = np.int64(ground.target[link])
        if node < switches:
            note_mark(run, slot, np.int64(ground.from_host[link]))
            at_switch(run, scheme, node, slot, time)
        elif world.extra[slot].kind & np.int64(KINDS) == GRADIENT:
            note_mark(run, slot, np.int64(0))
            take_gradient(run, slot, time)
        else:
            note_mark(run, slot, np.int64(0))
            to = world.extra[slot].to
            if to < 0:  # a reminder that no switch answered
                free_slot(net, slot)
            else:
                worker = world.jobs[world.extra[slot].job].first + to
                if pooled:
                    take_pooled(run, worker, slot, time)
                else:
                    take_result(run, worker, slot, time)
    return DONE

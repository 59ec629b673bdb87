"""Packets and switch memory of aggregation by hand, and small jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rocescope.kernels.kernel import Array
from rocescope.replay.aggregation.jobs import Job, parse_jobs, place
from rocescope.replay.aggregation.network import new_packet, put
from rocescope.replay.aggregation.run import MORE, Conditions, new_run, run_jobs, start
from rocescope.replay.aggregation.schemes import Scheme
from rocescope.replay.aggregation.state import (
    BIN_PS,
    CELL,
    GRADIENT,
    OWN,
    PACKET,
    PARAMS,
    RESULT,
    SLOTS,
    TALLY,
    Memory,
    Run,
)
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.records import table

ONE_RACK = "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G,delay=500ns"


def memory(slots: int = 4, jobs: int = 2, own: Sequence[int] = ()) -> Memory:
    """Empty memory of one switch."""
    params = np.zeros(PARAMS, np.int64)
    params[SLOTS], params[BIN_PS] = slots, 1000
    params[OWN : OWN + len(own)] = own
    return Memory(
        table(slots, CELL),
        table(jobs, TALLY),
        np.zeros((2, 8), np.int64),
        params,
    )


def packet(
    worker: int = 0,
    value: int = 1,
    job: int = 0,
    seq: int = 0,
    index: int = 0,
    flags: int = 0,
    bits: int | None = None,
    priority: int = 0,
) -> np.ndarray:
    """`World.extra` with one gradient."""
    extra = table(1, PACKET)
    row = extra[0]
    row["kind"], row["job"], row["seq"], row["index"] = flags, job, seq, index
    row["bits"] = 1 << worker if bits is None else bits
    row["value"], row["priority"], row["to"] = value, priority, worker
    return extra


def small_jobs(*specs: str, fabric: str = ONE_RACK) -> tuple[list[Job], Fabric]:
    """Jobs of these specs on a fabric."""
    network = parse_fabric(fabric)
    return place(parse_jobs(specs), network), network


def packets_seen(run: Run, at_switch: int) -> Array:
    """Rows of job, sequence number and slot of all gradients, looked for after each hop."""
    found: set[tuple[int, ...]] = set()
    start(run, np.zeros(len(run.world.workers), np.int64))
    while run_jobs(run, at_switch, 10**12, 1) == MORE:
        rows = run.world.extra[run.world.extra["bits"] != 0]
        found.update(map(tuple, rows[["job", "seq", "index"]].tolist()))
    return np.array(sorted(found))


class Bench:
    """One job whose first worker alone begins, at 0: sums stay incomplete, and the test says what
    others send, in the order of time. Times in microseconds."""

    def __init__(self, scheme: Scheme, spec: str, slots: int = 64) -> None:
        (self.job,), fabric = small_jobs(spec)
        self._scheme = scheme.conduct
        still = Conditions(slots=slots, jitter=0.0)
        self.run = new_run(scheme.name, self._scheme, [self.job], fabric, still)
        self.tally, self.worker = self.run.memory.tally[0], self.run.world.workers[0]
        self.cells, self.slots = self.run.memory.cells, self.run.world.server_index[0].tolist()
        never = np.full(len(self.job.workers), 10**15, np.int64)
        never[0] = 0
        start(self.run, never)

    def until(self, us: float) -> Bench:
        """Let time pass, once."""
        run_jobs(self.run, self._scheme.at_switch, round(us * 10**6), 1 << 40)
        return self

    def result(self, us: float, seq: int, flags: int = 0, index: int = 0) -> None:
        """The PS sends the first worker a result."""
        self._send(us, self.job.server, self.job.workers[0], RESULT | flags, seq, 0, index)

    def gradient(self, us: float, worker: int, seq: int, flags: int = 0, index: int = 0) -> None:
        """A worker sends the gradient 1."""
        source, to = self.job.workers[worker], self.job.server
        slot = self._send(us, source, to, GRADIENT | flags, seq, worker, index)
        row = self.run.world.extra[slot]
        row["bits"], row["value"] = 1 << worker, 1

    def _send(
        self, us: float, source: int, to: int, kind: int, seq: int, bit: int, index: int
    ) -> int:
        slot = int(new_packet(self.run, kind, 0, seq, bit, to))
        self.run.world.extra["index"][slot] = index
        put(self.run, int(self.run.ground.access[source]), slot, round(us * 10**6))
        return slot

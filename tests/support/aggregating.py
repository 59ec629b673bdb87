"""Packets and switch memory of aggregation by hand, and small jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rocescope.replay.aggregation.columns import cl, pk, ty
from rocescope.replay.aggregation.jobs import Job, parse_jobs, place
from rocescope.replay.aggregation.state import BIN_PS, OWN, PARAMS, SLOTS, Memory
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric

ONE_RACK = "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G,delay=500ns"


def memory(slots: int = 4, jobs: int = 2, own: Sequence[int] = ()) -> Memory:
    """Empty memory of one switch."""
    params = np.zeros(PARAMS, np.int64)
    params[SLOTS], params[BIN_PS] = slots, 1000
    params[OWN : OWN + len(own)] = own
    return Memory(
        np.zeros((slots, cl.COLUMNS), np.int64),
        np.zeros((jobs, ty.COLUMNS), np.int64),
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
    extra = np.zeros((1, pk.COLUMNS), np.int64)
    row = extra[0]
    row[pk.KIND], row[pk.JOB], row[pk.SEQ], row[pk.INDEX] = flags, job, seq, index
    row[pk.BITS] = 1 << worker if bits is None else bits
    row[pk.VALUE], row[pk.PRIORITY], row[pk.TO] = value, priority, worker
    return extra


def small_jobs(*specs: str, fabric: str = ONE_RACK) -> tuple[list[Job], Fabric]:
    """Jobs of these specs on a fabric."""
    network = parse_fabric(fabric)
    return place(parse_jobs(specs), network), network

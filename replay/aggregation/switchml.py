"""SwitchML: a fixed share of the slots per job, two versions of each, results from the switch.

Rules: "Scaling Distributed Machine Learning with In-Network Aggregation" (NSDI 2021) and its
released code. While one version of a slot is filled, the other keeps the last result: a repeated
contribution to a complete chunk is answered with it, and nobody is more than one chunk ahead. The
code clears a worker's bit of the other version with each contribution; here a slot knows its chunk
instead, so that a packet that the network copied or held back until its chunk was complete is told
apart, where the code would add it to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...kernels.kernel import Int, subkernel
from ..packets.model.records import Records
from .scheme import Options, Scheme
from .state import Memory, added
from .switches import ABSORB, MULTICAST, REPLY, claim, fragment_of, load, use

DEFAULTS: Final[Mapping[str, str]] = {"rto": "10ms", "double-after": "50000"}
"""The code's: general options double the timer after 100 timeouts, those of DPDK after 50,000. With
100 the loss of 1 % that the paper measures would stop a job."""


@subkernel
def switchml_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """See `switches.AtSwitch`. The packet's `index` is that of its version."""
    cells, job = memory.cells, extra[slot].job
    cell = first + extra[slot].index
    chunk, bit = fragment_of(extra, slot), extra[slot].bits
    if chunk < cells[cell].owner:
        memory.tally[job].stale += 1
        return np.int64(ABSORB)
    if chunk != cells[cell].owner:
        claim(memory, extra, slot, cell, now_ps)
    elif cells[cell].done:
        load(memory, extra, slot, cell)
        return np.int64(REPLY)
    elif cells[cell].bits & bit:
        return np.int64(ABSORB)
    else:
        cells[cell].bits |= bit
        cells[cell].value = added(cells[cell].value, extra[slot].value)
    if cells[cell].bits != all_workers:
        memory.tally[job].absorbed += 1
        return np.int64(ABSORB)
    cells[cell].done = 1
    use(memory, cells[cell].since, now_ps, np.int64(1))
    memory.tally[job].completed += 1
    load(memory, extra, slot, cell)
    return np.int64(MULTICAST)


def switchml(given: Mapping[str, str]) -> Scheme:
    """SwitchML with its options."""
    options = Options("switchml", given, DEFAULTS)
    return options.built(
        switchml_at_switch,
        has_server=False,
        rto_ps=options.ps("rto"),
        first_rto_ps=options.ps("rto"),
        trigger=0,
        double_after=options.number("double-after", 0, 1_000_000),
        overflows=False,
    )

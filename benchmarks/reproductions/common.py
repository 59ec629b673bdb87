"""What the reproductions share: runs over all cores, and a ring."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import numpy as np

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.generate.patterns import Settings, demands
from rocescope.replay.generate.queue_pairs import Sending, queue_pairs
from rocescope.replay.packets.model.model import EngineResult, Model, Workload
from rocescope.replay.packets.offers import collective, from_queue_pairs
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.runs import run_many
from rocescope.replay.strategies.registry import parse_packet_strategy
from rocescope.replay.traffic.traffic import ON_RECEIVED

FABRICS = {
    "ft128": "fat-tree:k=8,rate=800G,delay=500ns",
    "ls128": "leaf-spine:leaves=8,spines=16,hosts=16,rate=800G,delay=500ns",
}


class Case(NamedTuple):
    """One run."""

    fabric: str
    strategy: str
    pattern: str
    message_bytes: int
    seed: int
    model: Model = Model(pfc=None)
    phases_ps: int = 0
    """Every message begins at a random time below this, else all at 0."""


def run_all(cases: Sequence[Case]) -> list[EngineResult]:
    """All cases on all cores, in their order."""
    fabrics = {case.fabric: parse_fabric(FABRICS[case.fabric]) for case in cases}

    def run(case: Case, stop: Event) -> EngineResult:
        fabric = fabrics[case.fabric]
        load = collective(case.pattern, fabric, case.model, case.message_bytes, case.seed)
        if case.phases_ps:
            rng = np.random.default_rng([case.seed, 0x5048])
            load = load._replace(release_ps=rng.integers(0, case.phases_ps, len(load.flow)))
        strategy = parse_packet_strategy(case.strategy)
        return run_open_loop(load, fabric, strategy, case.model, case.seed, stop=stop)

    found: dict[int, EngineResult] = {}
    for number, result in run_many(cases, run):
        found[number] = result
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(cases)} runs ", end="\r", file=sys.stderr)
    return [found[i] for i in range(len(cases))]


def ring(
    fabric: Fabric, model: Model, step_bytes: int, steps: int, slices: int, qps: int, seed: int
) -> Workload:
    """A ring all-reduce over all hosts in random order, without barriers.

    In every step each host sends `step_bytes` to its successor, cut into slices that take the
    queue pairs in turn. A slice leaves once the same slice of the step before has come from the
    predecessor.
    """
    rng = np.random.default_rng([seed, 0x52494E47])
    order, each = rng.permutation(fabric.hosts), slices // qps
    settings = Settings(
        hosts=fabric.hosts,
        message_bytes=step_bytes // each,
        messages=steps * each,
        flows=0,
        fan_in=None,
        load=1.0,
        rate_bits_per_second=int(fabric.links.rate_bits_per_second.max()),
    )
    pairs = queue_pairs(demands(settings, order, np.roll(order, -1)), Sending(qps=qps), rng)
    load = from_queue_pairs(pairs, fabric, model, barriers=False)
    number = np.arange(len(load.flow)) - load.flow_start[load.flow]
    before = load.flow_start[(load.flow - qps) % len(load.src)] + number - each
    return load._replace(
        after=np.where(number >= each, before, -1).astype(np.int32),
        on=np.full(len(number), ON_RECEIVED, np.uint8),
    )

"""A sweep with its references and causes: the results of `rocescope sweep`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...analyzer.errors import UsageError
from ...version import VERSION
from ..fabrics.fabric import Fabric
from ..fabrics.switch_hashing import fields_of, switch_hashing
from ..flows.placement import Walk
from ..hashing.seeding import PerSwitch, SeedRange, switch_seeds
from ..results.sweep import Production, SweepLayer, SweepResult
from ..seeds.explain import findings
from ..seeds.sweep import Measure, Scores, Sweep, chance_of, sweep
from ..traffic.traffic import Traffic
from .flows import random_sweep
from .summaries import fabric_summary, mapped, traffic_summary


def sweep_result(
    traffic: Traffic,
    fabric: Fabric,
    options: Mapping[str, str],
    seeds: SeedRange,
    per_switch: PerSwitch,
    measure: Measure,
    production: int | None,
    sources: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Sweep, compare with chance, and explain.

    options: of `switch_hashing`, without seeds. production: the seed in use; None for the
    seeds of the fabric, if it has any. UsageError if there is nothing to sweep.
    """
    if not seeds.seeds:
        raise UsageError(f"--seeds {seeds.first}:{seeds.end} contains no seed")
    traffic, warnings = mapped(traffic, fabric)
    hashing = switch_hashing(fabric, options, "sweep")
    walk, scores = Walk(traffic, fabric, hashing.settings), Scores(traffic, fabric, measure)
    own = _production_score(walk, scores, per_switch, production)
    found = sweep(walk, scores, seeds, per_switch, own, progress)
    chance = random_sweep(traffic, fabric, scores)
    layers = [
        SweepLayer(
            layer=name,
            links=int(scores.links[i]),
            distribution=found.layers[i].distribution(),
            chance=chance_of(chance.layers[i]),
            best_percent=scores.best(i),
            used_links=float(found.used[i]),
            used_links_chance=float(chance.used[i]),
        )
        for i, name in enumerate(scores.names)
    ]
    return SweepResult(
        version=VERSION,
        traffic=traffic_summary(traffic, sources),
        fabric=fabric_summary(fabric),
        hash=", ".join(sorted({one.model for one in hashing.settings})),
        field_set=", ".join(sorted({fields_of(one) for one in hashing.settings})),
        seeds=[seeds.first, seeds.end, seeds.seeds],
        per_switch=per_switch,
        measure=measure,
        distribution=found.score.distribution(),
        chance=chance_of(chance.score),
        best=found.best,
        worst=found.worst,
        production=_production(own, production, found, seeds.seeds),
        layers=layers,
        findings=findings(hashing.settings, walk.is_linear, layers, per_switch, seeds.seeds),
        warnings=warnings,
    )


def _production_score(
    walk: Walk, scores: Scores, per_switch: PerSwitch, production: int | None
) -> float | None:
    """The imbalance of the worst layer with the seeds in use; None if they are unknown."""
    if production is not None:
        row = switch_seeds(np.array([production], np.uint64), walk.fabric.switches, per_switch)
    else:
        own = walk.fabric.hash_settings
        if any(own[switch] is None for switch in walk.fabric.choosing_switches().tolist()):
            return None
        row = np.array([[0 if one is None else one.seed for one in own]], np.uint64)
    values, _ = scores.measured(walk, row)
    return float(values.max())


def _production(
    value: float | None, seed: int | None, found: Sweep, seeds: int
) -> Production | None:
    if value is None:
        return None
    return Production(
        seed=seed,
        value=value,
        better_seeds=found.below,
        equal_seeds=found.equal,
        percentile=100 * (seeds - found.below - found.equal) / seeds,
    )

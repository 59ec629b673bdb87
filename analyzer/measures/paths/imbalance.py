"""Load imbalance of a set of parallel paths, and the imbalance expected by chance.

The flow imbalance metric is FIM(L) = 100 / |L| * sum over l of |n_l - mean| / mean
for the flows (or bytes) n_l on each path l of the set L: the mean absolute
relative deviation, in percent. With weights (link capacities) each path's fair share replaces the
mean. Uniform hashing does not give 0: `expected_fim` is the value of ideal uniform hashing,
`best_fim` the minimum over all placements of whole flows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from ....kernels.kernel import Array, Floats, Ints
from ...results.paths import Imbalance
from ...statistics.shares import Carried, jain, path_shares


def fim(loads: Array, weights: Array | None = None) -> float | None:
    """FIM of the loads of a set of paths, percent; None without load."""
    if not loads.sum():
        return None
    fair = _shares(len(loads), weights) * loads.sum()
    return 100 * float(np.mean(np.abs(loads - fair) / fair))


def expected_fim(flows: int, paths: int) -> float | None:
    """The expected FIM when each flow picks one of equal paths at random.

    Exact: the mean absolute deviation of a binomial number is
    2 m C(n, m) p^m (1-p)^(n-m+1) with m = floor(np) + 1 (de Moivre), divided by np; computed with
    logarithms so that millions of flows do not overflow. None without flows.
    """
    if not flows:
        return None
    n, p, m = flows, 1 / paths, flows // paths + 1
    if m > n:  # p = 1
        return 0.0
    log_choose = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
    log_term = math.log(m) + log_choose + m * math.log(p) + (n - m + 1) * math.log1p(-p)
    return 100 * (2 * math.exp(log_term) / (n * p))


def best_fim(flows: int, paths: int, weights: Array | None = None) -> float | None:
    """The smallest FIM over all placements of whole flows; None without flows."""
    if not flows:
        return None
    if weights is None:
        over = flows % paths
        return 100 * 2 * over * (paths - over) / (paths * flows)
    fair = [float(s) * flows for s in _shares(paths, weights)]
    # The objective is separable and convex: placing each flow at the lowest cost is optimal.
    costs = [(_marginal(0, f), i) for i, f in enumerate(fair)]
    heapq.heapify(costs)
    counts = [0] * paths
    for _ in range(flows):
        _, i = costs[0]
        counts[i] += 1
        heapq.heapreplace(costs, (_marginal(counts[i], fair[i]), i))
    return fim(np.array(counts), weights)


def _marginal(count: int, fair: float) -> float:
    """Change of a path's relative deviation by one more flow."""
    return (abs(count + 1 - fair) - abs(count - fair)) / fair


def _shares(paths: int, weights: Array | None) -> Floats:
    """The fair share of each path, as a fraction."""
    if weights is None:
        return np.full(paths, 1 / paths)
    if len(weights) != paths or not np.all(weights > 0):
        raise ValueError("weights must be above 0")
    shares: Floats = weights.astype(np.float64) / weights.sum()
    return shares


def max_over_mean(loads: Array) -> float:
    """The largest load over the mean load: 1 when all are equal."""
    return float(loads.max() / loads.mean())


def coefficient_of_variation(loads: Array) -> float:
    """Standard deviation (of the population) divided by the mean."""
    return float(loads.std() / loads.mean())


def imbalance_of(
    name: str,
    path_by: str,
    inferred: bool,
    labels: Sequence[str],
    paths: Sequence[Carried],
    flows: int,
    flows_per_path: Ints | None = None,
    all_flows_per_path: Ints | None = None,
) -> Imbalance | None:
    """The imbalance of a set of paths; None when it carried no bytes.

    `paths` has one item per path, also for idle ones, and `labels` their names; `flows_per_path`
    counts the flows on each (a flow on two paths counts on both), None when flows are not
    meaningful, as for the paths of a single flow. `all_flows_per_path` counts also the flows
    without data, which `flows_per_path` omits; None: there is none.
    """
    loads = np.array([path.wire_bytes for path in paths], np.int64)
    if not loads.any():
        return None
    placements = None if flows_per_path is None else int(flows_per_path.sum())
    largest_first = np.lexsort((np.arange(len(loads)), -loads))
    return Imbalance(
        name=name,
        path_by=path_by,
        inferred=inferred,
        paths=len(loads),
        flows=flows,
        wire_bytes=int(loads.sum()),
        fim_flows_percent=None if flows_per_path is None else fim(flows_per_path),
        fim_bytes_percent=fim(loads),
        fim_flows_chance_percent=(
            None if placements is None else expected_fim(placements, len(loads))
        ),
        fim_flows_best_percent=None if placements is None else best_fim(placements, len(loads)),
        max_over_mean=max_over_mean(loads),
        coefficient_of_variation=coefficient_of_variation(loads),
        jain=jain(loads),
        shares=path_shares([(labels[i], paths[i]) for i in largest_first]),
        fim_all_flows_percent=None if all_flows_per_path is None else fim(all_flows_per_path),
    )

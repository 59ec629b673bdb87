"""The best static assignment: whole paths for all units that minimise the busiest link's time.

It shows the limit of static routing; no switch can compute it. An integer programme (minimise t;
the bytes of every link over its rate are at most t; every unit takes one path), solved by HiGHS
through scipy within a time limit. Units of the same size between the same switches are one
variable per path. The result includes its largest possible distance from the optimum.
"""

from __future__ import annotations

import time

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Floats, Int32s, Ints, NamedTuple, kernel
from ..fabrics.fabric import Fabric
from ..flows.placement import PathChoices, finished, links_of_paths, path_choices
from ..results import SolverReport
from ..traffic.traffic import Traffic
from .base import Configured, FlowStrategy, Outcome

MOST_VARIABLES = 50_000
"""With more variables the solver does not run: it would make no progress in the time limit."""


class Assign(Configured, FlowStrategy):
    """Option: `limit`, the solver's time limit (10s)."""

    name = "assign"

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        self.known("limit")
        limit_ps, text = self.duration_ps("limit", "10s")
        choices = path_choices(traffic, fabric)
        path, report = assigned(traffic, fabric, choices, limit_ps / 1e12)
        columns = links_of_paths(traffic, fabric, choices, path)
        placement = finished(columns, traffic, fabric)
        return Outcome(traffic, placement, {"limit": text}, report)


class _Classes(NamedTuple):
    """Interchangeable units: the same pair of switches, the same bytes."""

    of_unit: Ints
    """int64[units], -1 for units without a path."""
    pair: Ints
    wire_bytes: Ints
    units: Ints
    """Number of units."""


def assigned(
    traffic: Traffic, fabric: Fabric, choices: PathChoices, limit_s: float
) -> tuple[Ints, SolverReport | None]:
    """(path of every unit, -1 for none; the solver's report, None without a choice)."""
    begun = time.monotonic()
    path = _greedy(traffic, fabric, choices)
    moving = np.flatnonzero(choices.pair >= 0)
    if not len(moving) or not choices.links.shape[1]:
        return path, None
    seconds = _busiest(path, traffic, fabric, choices)
    bound = _cuts(traffic, fabric, choices)
    status, variables = "the greedy assignment is optimal", 0
    if seconds > bound * (1 + 1e-9):
        classes = _classes(traffic, choices)
        variables = int(np.diff(choices.first)[classes.pair].sum())
        if variables > MOST_VARIABLES:
            status = f"greedy: {variables:,} variables are too many for the solver"
        else:
            answer = _solved(fabric, choices, classes, limit_s)
            status, bound = answer.status, max(bound, answer.bound)
            if answer.units is not None:
                better = _spread_out(choices, classes, answer.units)
                if _busiest(better, traffic, fabric, choices) < seconds:
                    path, seconds = better, _busiest(better, traffic, fabric, choices)
    bound = min(bound, seconds)  # larger only by rounding
    return path, SolverReport(
        status=status,
        objective=seconds,
        bound=bound,
        gap=(seconds - bound) / seconds if seconds else 0.0,
        seconds=time.monotonic() - begun,
        variables=variables,
    )


def _busiest(path: Ints, traffic: Traffic, fabric: Fabric, choices: PathChoices) -> float:
    """Transmission time of the busiest link between switches, s."""
    loads = np.zeros(len(fabric.links.source), np.int64)
    for hop in range(choices.links.shape[1]):
        link = np.where(path >= 0, choices.links[path, hop], -1)
        np.add.at(loads, link[link >= 0], traffic.wire_bytes[link >= 0])
    return float((loads * 8 / fabric.links.rate_bits_per_second).max())


def _greedy(traffic: Traffic, fabric: Fabric, choices: PathChoices) -> Ints:
    """Largest unit first, each on the path whose busiest link is then shortest (Graham's LPT)."""
    path = np.full(len(traffic), -1, np.int64)
    order = np.argsort(-traffic.wire_bytes, kind="stable")
    busy = np.zeros(len(fabric.links.source))
    per_byte = 8 / fabric.links.rate_bits_per_second
    _greedy_paths(
        order, choices.pair, choices.first, choices.links, traffic.wire_bytes, per_byte, busy, path
    )
    return path


@kernel
def _greedy_paths(
    order: Ints,
    pair: Int32s,
    first: Ints,
    links: Int32s,
    wire_bytes: Ints,
    per_byte: Floats,
    busy: Floats,
    path: Ints,
) -> None:
    for unit in order:
        if pair[unit] < 0:
            continue
        best, best_most, best_sum = np.int64(-1), np.inf, np.inf
        for p in range(first[pair[unit]], first[pair[unit] + 1]):
            most, total = 0.0, 0.0
            for hop in range(links.shape[1]):
                link = links[p, hop]
                if link >= 0:
                    after = busy[link] + wire_bytes[unit] * per_byte[link]
                    most = max(most, after)
                    total += after
            if most < best_most or (most == best_most and total < best_sum):
                best, best_most, best_sum = np.int64(p), most, total
        path[unit] = best
        for hop in range(links.shape[1]):
            link = links[best, hop]
            if link >= 0:
                busy[link] += wire_bytes[unit] * per_byte[link]


def _classes(traffic: Traffic, choices: PathChoices) -> _Classes:
    moving = np.flatnonzero(choices.pair >= 0)
    rows = np.stack([choices.pair[moving], traffic.wire_bytes[moving]], 1).astype(np.int64)
    kinds, number, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    of_unit = np.full(len(traffic), -1, np.int64)
    of_unit[moving] = number.reshape(-1)
    return _Classes(of_unit, kinds[:, 0], kinds[:, 1], count)


def _cuts(traffic: Traffic, fabric: Fabric, choices: PathChoices) -> float:
    """A lower bound of every assignment, s: the bytes that leave a switch over its links towards
    their destinations, the bytes that reach an edge over the links to it, and one unit alone."""
    moving = choices.pair >= 0
    pairs = len(choices.switch)
    total = np.bincount(choices.pair[moving], traffic.wire_bytes[moving], minlength=pairs)
    rates = fabric.links.rate_bits_per_second
    hops = (choices.links >= 0).sum(1)
    pair = np.repeat(np.arange(pairs), np.diff(choices.first))[hops > 0]
    paths = choices.links[hops > 0]
    ends = (
        (choices.switch, paths[:, 0]),
        (choices.edge, paths[np.arange(len(paths)), hops[hops > 0] - 1]),
    )
    bound = 0.0
    between = np.zeros(pairs, np.bool_)
    between[pair] = True
    for place, link in ends:
        crossed = np.unique(np.stack([place[pair], link], 1), axis=0)
        rate = np.bincount(crossed[:, 0], rates[crossed[:, 1]])
        wire_bytes = np.bincount(place[between], total[between], minlength=len(rate))
        known = rate > 0
        bound = max(bound, float((wire_bytes[known] * 8 / rate[known]).max(initial=0)))
    slowest = np.array([rates[path[path >= 0]].min() for path in paths], np.int64)
    fastest = np.zeros(pairs, np.int64)
    np.maximum.at(fastest, pair, slowest)
    alone = moving & between[choices.pair]
    seconds = traffic.wire_bytes[alone] * 8 / fastest[choices.pair[alone]]
    return max(bound, float(seconds.max(initial=0)))


class _Answer(NamedTuple):
    status: str
    bound: float
    units: Ints | None
    """int64[variables]: units of each class on each of its paths."""


def _solved(fabric: Fabric, choices: PathChoices, classes: _Classes, limit_s: float) -> _Answer:
    """Solve the integer programme of these classes."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    per_class = np.diff(choices.first)[classes.pair]
    kind = np.repeat(np.arange(len(per_class)), per_class)
    first = np.repeat(np.cumsum(per_class) - per_class, per_class)
    path = choices.first[classes.pair][kind] + np.arange(len(kind)) - first
    variables = len(kind)
    crossed = choices.links[path]
    used, link = np.unique(crossed[crossed >= 0], return_inverse=True)
    variable = np.repeat(np.arange(variables), (crossed >= 0).sum(1))
    busy = classes.wire_bytes[kind[variable]] * 8 / fabric.links.rate_bits_per_second[used[link]]
    scale = float(np.bincount(link, busy).max()) or 1.0
    # Rows: links (busy - t <= 0), then classes (all units placed). The last column is t.
    rows = np.concatenate([link, np.arange(len(used)), len(used) + kind])
    columns = np.concatenate([variable, np.full(len(used), variables), np.arange(variables)])
    values = np.concatenate([busy / scale, -np.ones(len(used)), np.ones(variables)])
    matrix = coo_array((values, (rows, columns)), (len(used) + len(per_class), variables + 1))
    count = classes.units.astype(np.float64)
    result = milp(
        np.append(np.zeros(variables), 1.0),
        integrality=np.append(np.ones(variables), 0),
        bounds=Bounds(0, np.append(count[kind], np.inf)),
        constraints=LinearConstraint(
            matrix.tocsr(),
            np.concatenate([np.full(len(used), -np.inf), count]),
            np.concatenate([np.zeros(len(used)), count]),
        ),
        options={"time_limit": limit_s},
    )
    if result.status not in (0, 1):
        raise UsageError(f"assign: the solver failed: {result.message}")
    status = "optimal" if result.status == 0 else "stopped at the time limit"
    bound = result.mip_dual_bound
    units = None if result.x is None else np.rint(result.x[:-1]).astype(np.int64)
    return _Answer(status, 0.0 if bound is None else float(bound) * scale, units)


def _spread_out(choices: PathChoices, classes: _Classes, count: Ints) -> Ints:
    """The path of every unit, from the number of units per class and path."""
    per_class = np.diff(choices.first)[classes.pair]
    begin = np.cumsum(per_class) - per_class
    of_unit = np.full(len(classes.of_unit), -1, np.int64)
    for kind in range(len(per_class)):
        units = np.flatnonzero(classes.of_unit == kind)
        numbers = count[begin[kind] : begin[kind] + per_class[kind]]
        paths = choices.first[classes.pair[kind]] + np.repeat(np.arange(len(numbers)), numbers)
        of_unit[units] = paths[: len(units)]
    return of_unit

"""The charts of the HTML report, for notebooks: `rocescope.plots.over_time(result)`.

A chart draws itself in a notebook. `chart.picture()` is its SVG, and `polars.DataFrame(chart)` its
numbers, for other libraries to draw. Functions return None where a result has nothing to draw.
"""

from __future__ import annotations

from msgspec import UnsetType

from .analyzer.errors import UsageError
from .api import Aggregation, Analysis, Replay, Sweep
from .replay.results import StrategyResult
from .report.html import analysis_charts, replay_charts
from .report.html.page import Chart


def over_time(result: Analysis) -> Chart | None:
    """Wire rate, reordered, retransmitted and marked packets, with the findings."""
    return analysis_charts.over_time(result.record)


def taps(result: Analysis) -> Chart | None:
    """Wire rate of each tap over time."""
    return analysis_charts.taps_over_time(result.record)


def paths(result: Analysis, number: int = 0) -> Chart | None:
    """Bytes per path of a set of parallel paths; 0 is the least even set."""
    sets = sorted(result.record.imbalance, key=lambda one: -one.max_over_mean)
    return analysis_charts.paths(sets[number]) if 0 <= number < len(sets) else None


def reordering(result: Analysis) -> Chart | None:
    """The distribution of the reordering extent."""
    return analysis_charts.extents(result.record.flows)


def hops(result: Analysis) -> Chart | None:
    """Hops between taps by loss, marks, reordering and queueing."""
    return analysis_charts.hops(result.record.hops)


def ranks(result: Analysis) -> Chart | None:
    """Bytes from rank to rank, where logs of the job name ranks."""
    found = result.record.ranks
    return None if isinstance(found, UnsetType) else analysis_charts.ranks(found)


def jobs(result: Analysis, number: int = 0) -> Chart | None:
    """What the ranks of a training job do in its steps; number: of the job."""
    record = result.record
    if not 0 <= number < len(record.jobs):
        return None
    return analysis_charts.ranks_in_steps(record.jobs[number], record)


def strategies(result: Replay) -> Chart | None:
    """Loads of the links between switches, a box per strategy."""
    return replay_charts.strategies(result.record)


def links(result: Replay, strategy: str, layer: str) -> Chart | None:
    """Bytes per link of a layer. strategy: a name, or with what distinguishes strategies
    of one name, as in `ecmp (hash=crc32, seed=7)`; UsageError if it was not replayed."""
    return analysis_charts.links(_strategy(result, strategy), layer)


def switches(result: Replay, strategy: str, layer: str) -> Chart | None:
    """Links of a layer as a matrix of switches, by bytes over the fair share; as `links`."""
    return analysis_charts.fabric(_strategy(result, strategy), layer)


def seeds(result: Sweep) -> Chart:
    """Imbalance over hash seeds, a box per layer."""
    return replay_charts.seeds(result.record)


def completions(result: Aggregation) -> Chart | None:
    """Mean completion time of jobs by scheme: over memory, or bars with one size of memory."""
    return replay_charts.completions_aggregation(result.record)


def memory(result: Aggregation) -> Chart | None:
    """Switch memory in use over time, and the useful part of it, by scheme."""
    return replay_charts.occupancy(result.record)


def fullest_links(result: Aggregation) -> Chart | None:
    """Bytes on the busiest link, by scheme."""
    return replay_charts.on_links(result.record)


def _strategy(result: Replay, name: str) -> StrategyResult:
    for one in result.record.strategies:
        if name in (one.name, one.title):
            return one
    names = ", ".join(one.title for one in result.record.strategies)
    raise UsageError(f"{name} was not replayed; replayed strategies: {names}")

"""The reports of `replay`, `sweep` and `trace`."""

from __future__ import annotations

from ....discovery.tracing.results import TraceResult
from ....replay.results.replay import ReplayResult
from ....replay.results.sweep import SweepResult
from ...terminal.replay import fill_replay
from ...terminal.sweep import fill_sweep
from ...terminal.trace import fill_trace
from ..charts.boxes import seeds, strategies
from ..charts.completions import completions
from ..charts.heat import fabric
from ..charts.queues import queues
from ..charts.shares import links
from ..charts.varied import varied
from ..page import HtmlPage

_STRATEGIES = 4
"""Strategies whose links have their own pictures."""


def replay_html(result: ReplayResult, top: int = 5) -> bytes:
    """Strategies compared, the loads of links, then the worst links of each strategy."""
    page = HtmlPage(f"rocescope: replay on {result.fabric.spec}")
    page.section("Result")
    fill_replay(page, result, top, lambda: _loads(page, result))
    return page.document()


def sweep_html(result: SweepResult) -> bytes:
    """The distribution of imbalance over seeds."""
    page = HtmlPage(f"rocescope: hash seeds on {result.fabric.spec}")
    page.section("Result")
    fill_sweep(page, result, lambda: page.chart(seeds(result)))
    return page.document()


def trace_html(result: TraceResult, top: int = 5) -> bytes:
    """How much of the paths is known, the loads of links, and the largest flows."""
    where = f" on {result.loads.fabric.spec}" if result.loads is not None else ""
    page = HtmlPage(f"rocescope: paths of flows{where}")
    page.section("Result")
    fill_trace(page, result, top, lambda loads: _loads(page, loads))
    return page.document()


def _loads(page: HtmlPage, result: ReplayResult) -> None:
    """Pictures of the links between which hashing chooses, by packet of completion and of queues;
    with `--vary` of completion alone."""
    if result.varied:
        page.chart(varied(result))
        return
    page.chart(completions(result))
    page.chart(strategies(result))
    for strategy in result.strategies[:_STRATEGIES]:
        page.chart(queues(strategy))
        for layer in strategy.layers:
            if layer.choice:
                page.chart(links(strategy, layer.layer))
                page.chart(fabric(strategy, layer.layer))
    page.more(len(result.strategies) - _STRATEGIES, "strategy", "strategies")

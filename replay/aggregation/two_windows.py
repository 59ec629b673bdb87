"""A2TP's two windows of a worker: packets in flight, and packets that may use switch memory.

Rules: the released code of "A2TP: Aggregator-aware In-network Aggregation for Multi-tenant
Learning" (EuroSys 2023). A period ends with the result of the last packet of its window. Marks of
ECN shrink the first window. Results whose slot another fragment wanted shrink the second one, and
the more the fewer results came within the base round-trip time: a job that waits for a straggler
gives slots up. What exceeds the second window goes to the PS past the switch memory.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from .columns import CONTENDED, ECHO
from .state import ONE_PACKET, Run

_NEW = 1 / 8
"""Weight of a period in the moving averages of marks and contention."""
_NEW_PROMPT = 1 / 64
_PROMPT_ENDS = 5
"""Base round-trip times after which a period has no share of prompt results (the code: 100 us)."""


@subkernel
def begin_windows(run: Run, worker: Int, time: Int) -> None:
    """A worker begins an iteration with the windows of the last one."""
    row = run.world.workers[worker]
    _begin_period(run, worker, row.done - 1, time)
    row.measured = 1  # the first period of an iteration has no share of prompt results


@inlined
def _begin_period(run: Run, worker: Int, last: Int, time: Int) -> None:
    row = run.world.workers[worker]
    row.period_end = last + row.congestion // ONE_PACKET
    row.period_at = time
    row.period_done = row.done
    row.credit = row.aggregators
    row.measured = 0
    row.echoes = row.contentions = 0


@inlined
def beyond_aggregators(run: Run, worker: Int, seq: Int) -> Bool:
    """Whether the next gradient of a worker exceeds its window of aggregators. The packets whose
    results a period waits for were counted when they were sent; after a pause none is counted, as
    in the code, which sends the first window of a tensor before it counts."""
    row = run.world.workers[worker]
    if seq <= row.period_end:
        return False
    if row.credit == 0:
        return True
    row.credit -= 1
    return False


@subkernel
def note_result(run: Run, worker: Int, seq: Int, kind: Int, time: Int) -> None:
    """A worker has a result; the last one of a period sets the windows of the next."""
    world = run.world
    row, degrees, base = world.workers[worker], world.degrees[worker], world.control[0].base_rtt
    row.echoes += (kind & np.int64(ECHO)) != 0
    row.contentions += (kind & np.int64(CONTENDED)) != 0
    since = time - row.period_at
    if not row.measured and base < since < _PROMPT_ENDS * base:
        window = row.congestion // ONE_PACKET
        degrees.prompt_now = min(1.0, (row.done - row.period_done) / window)
        row.measured = 1
    if seq >= row.period_end:
        _set_windows(run, worker)
        _begin_period(run, worker, seq, time)


@inlined
def _set_windows(run: Run, worker: Int) -> None:
    world = run.world
    row, degrees = world.workers[worker], world.degrees[worker]
    window, aggregators = row.congestion // ONE_PACKET, row.aggregators
    most = world.jobs[row.job].window
    degrees.prompt += (degrees.prompt_now - degrees.prompt) * _NEW_PROMPT
    degrees.prompt_now = 1.0
    degrees.marked += (row.echoes / window - degrees.marked) * _NEW
    degrees.contended += (row.contentions / aggregators - degrees.contended) * _NEW
    tolerated = world.control[0].contention / 100.0
    excess = degrees.contended - tolerated
    if row.contentions and excess > 0:
        cut = excess**degrees.prompt / (2.0 - tolerated)
        aggregators = np.int64(aggregators * max(0.0, 1.0 - cut))
    else:
        aggregators += 1
    if row.echoes:
        window = np.int64(window * (1.0 - min(1.0, degrees.marked) / 2.0))
    else:
        window += 1
    window = min(max(window, np.int64(1)), most)
    row.congestion = window * ONE_PACKET
    row.aggregators = min(max(aggregators, np.int64(1)), window)

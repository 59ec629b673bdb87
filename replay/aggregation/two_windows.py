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
from .columns import CONTENDED, ECHO, dg, jb, wk
from .state import BASE_RTT, CONTENTION, ONE_PACKET, Run

_NEW = 1 / 8
"""Weight of a period in the moving averages of marks and contention."""
_NEW_PROMPT = 1 / 64
_PROMPT_ENDS = 5
"""Base round-trip times after which a period has no share of prompt results (the code: 100 us)."""


@subkernel
def begin_windows(run: Run, worker: Int, time: Int) -> None:
    """A worker begins an iteration with the windows of the last one."""
    row = run.world.workers[worker]
    _begin_period(run, worker, row[wk.DONE] - 1, time)
    row[wk.MEASURED] = 1  # the first period of an iteration has no share of prompt results


@inlined
def _begin_period(run: Run, worker: Int, last: Int, time: Int) -> None:
    row = run.world.workers[worker]
    row[wk.PERIOD_END] = last + row[wk.CONGESTION] // ONE_PACKET
    row[wk.PERIOD_AT] = time
    row[wk.PERIOD_DONE] = row[wk.DONE]
    row[wk.CREDIT] = row[wk.AGGREGATORS]
    row[wk.MEASURED] = 0
    row[wk.ECHOES] = row[wk.CONTENTIONS] = 0


@inlined
def beyond_aggregators(run: Run, worker: Int, seq: Int) -> Bool:
    """Whether the next gradient of a worker exceeds its window of aggregators. The packets whose
    results a period waits for were counted when they were sent; after a pause none is counted, as
    in the code, which sends the first window of a tensor before it counts."""
    row = run.world.workers[worker]
    if seq <= row[wk.PERIOD_END]:
        return False
    if row[wk.CREDIT] == 0:
        return True
    row[wk.CREDIT] -= 1
    return False


@subkernel
def note_result(run: Run, worker: Int, seq: Int, kind: Int, time: Int) -> None:
    """A worker has a result; the last one of a period sets the windows of the next."""
    world = run.world
    row, degrees, base = world.workers[worker], world.degrees[worker], world.control[BASE_RTT]
    row[wk.ECHOES] += (kind & np.int64(ECHO)) != 0
    row[wk.CONTENTIONS] += (kind & np.int64(CONTENDED)) != 0
    since = time - row[wk.PERIOD_AT]
    if not row[wk.MEASURED] and base < since < _PROMPT_ENDS * base:
        window = row[wk.CONGESTION] // ONE_PACKET
        degrees[dg.PROMPT_NOW] = min(1.0, (row[wk.DONE] - row[wk.PERIOD_DONE]) / window)
        row[wk.MEASURED] = 1
    if seq >= row[wk.PERIOD_END]:
        _set_windows(run, worker)
        _begin_period(run, worker, seq, time)


@inlined
def _set_windows(run: Run, worker: Int) -> None:
    world = run.world
    row, degrees = world.workers[worker], world.degrees[worker]
    window, aggregators = row[wk.CONGESTION] // ONE_PACKET, row[wk.AGGREGATORS]
    most = world.jobs[row[wk.JOB], jb.WINDOW]
    degrees[dg.PROMPT] += (degrees[dg.PROMPT_NOW] - degrees[dg.PROMPT]) * _NEW_PROMPT
    degrees[dg.PROMPT_NOW] = 1.0
    degrees[dg.MARKED] += (row[wk.ECHOES] / window - degrees[dg.MARKED]) * _NEW
    degrees[dg.CONTENDED] += (row[wk.CONTENTIONS] / aggregators - degrees[dg.CONTENDED]) * _NEW
    tolerated = world.control[CONTENTION] / 100.0
    excess = degrees[dg.CONTENDED] - tolerated
    if row[wk.CONTENTIONS] and excess > 0:
        cut = excess ** degrees[dg.PROMPT] / (2.0 - tolerated)
        aggregators = np.int64(aggregators * max(0.0, 1.0 - cut))
    else:
        aggregators += 1
    if row[wk.ECHOES]:
        window = np.int64(window * (1.0 - min(1.0, degrees[dg.MARKED]) / 2.0))
    else:
        window += 1
    window = min(max(window, np.int64(1)), most)
    row[wk.CONGESTION] = window * ONE_PACKET
    row[wk.AGGREGATORS] = min(max(aggregators, np.int64(1)), window)

"""Runs of any strategy: with the driver that fits, on all cores, and their loads.

The driver is the open-loop driver if possible, else the event-driven driver. Results do not depend
on the number of cores.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypedDict, TypeVar, Unpack

import numpy as np

from ...analyzer.measures.spraying import fim
from ...kernels.kernel import Floats, Ints
from ..fabrics.fabric import Fabric
from ..flows.loads import busiest_over_fair
from ..results import LayerLoad, LayerOverTime
from .failures import Failures
from .hosts.transport import Transport
from .model.model import PS, EngineResult, Model, Workload
from .model.rules import Strategy
from .open_loop import run_open_loop


def needs_events(
    strategy: Strategy, transport: Transport | None = None, failures: Failures | None = None
) -> bool:
    """Whether hosts need feedback other than ends of messages, or links change."""
    plain = transport is None or transport == Transport()
    return not plain or bool(failures and failures.events) or strategy.reacts


class Watching(TypedDict, total=False):
    """What to keep of a run, and how to follow it; as for the drivers."""

    keep_arrivals: bool
    keep_sent: bool
    load_bin_ps: int
    tell: Callable[[int], None] | None
    stop: Event | None


def run_packets(
    workload: Workload,
    fabric: Fabric,
    strategy: Strategy,
    model: Model,
    seed: int = 0,
    *,
    transport: Transport | None = None,
    failures: Failures | None = None,
    **watching: Unpack[Watching],
) -> EngineResult:
    """Run by the driver that the case needs; both drivers give the same result where both can."""
    plain = model.pfc is None and len(model.classes) == 1
    if plain and not needs_events(strategy, transport, failures):
        return run_open_loop(workload, fabric, strategy, model, seed, **watching)
    from .event_driven import run_event_driven

    return run_event_driven(
        workload, fabric, strategy, model, seed, transport=transport, failures=failures, **watching
    ).engine


Case = TypeVar("Case")
Result = TypeVar("Result")


def run_many(
    cases: Sequence[Case],
    run: Callable[[Case, Event], Result],
    threads: int | None = None,
    tick: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """(number of the case, its result) in order of completion. Kernels release the GIL, so the
    workers are threads. (`concurrent.futures` loads `logging`, which takes longer than some runs.)

    tick: called on the caller's thread a few times a second. When the caller closes the iterator
    (an interrupt), the event stops the current runs.
    """
    stop = Event()
    waiting = deque(enumerate(cases))
    done: SimpleQueue[tuple[int, Result] | BaseException] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                number, case = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((number, run(case, stop)))
            except BaseException as error:
                done.put(error)

    workers = [Thread(target=work) for _ in range(min(len(cases), threads or os.cpu_count() or 1))]
    for worker in workers:
        worker.start()
    left = len(cases)
    try:
        while left:
            outcome: tuple[int, Result] | BaseException | None
            try:  # wakes up regularly: an interrupt must not wait for a long run
                outcome = done.get(timeout=0.2)
            except Empty:
                outcome = None
            if tick is not None:
                tick()
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is not None:
                left -= 1
                yield outcome
    finally:
        waiting.clear()
        stop.set()
        for worker in workers:
            worker.join()


STRETCHES = 50
"""Intervals of loads over time within the lower bound."""
MOST_CELLS = 1 << 18
"""Maximum of numbers in the loads over time of a strategy; beyond it, pairs are joined."""
LEAST_PACKETS = 8
"""Full packets per interval: in a shorter interval every used link would seem busy."""


def stretch_ps(workload: Workload, bound_ps: int, fabric: Fabric) -> int:
    """Length of the intervals of loads: about STRETCHES per run without losses, each long enough
    for LEAST_PACKETS on most links."""
    packet = int(workload.packet_bytes.max(initial=1))
    service = packet * 8e12 / float(np.median(fabric.links.rate_bits_per_second))
    longest = max(bound_ps // STRETCHES, int(LEAST_PACKETS * service))
    return max(PS, longest // PS * PS)


def loads_over_time(result: EngineResult) -> tuple[Ints, Ints, int]:
    """(bytes of every link by interval, longest queues, length of an interval in ns), at most
    MOST_CELLS numbers each."""
    loads, queues, length = result.loads, result.queues, result.load_bin_ps
    if loads is None or queues is None:
        none = np.zeros((0, len(result.link_bytes)), np.int64)
        return none, none, 0
    while loads.size > MOST_CELLS and len(loads) > 1:
        pairs = np.arange(0, len(loads), 2)
        loads, queues = np.add.reduceat(loads, pairs), np.maximum.reduceat(queues, pairs)
        length *= 2
    return loads, queues, length // PS


def layer_load(
    name: str, members: Ints, choice: bool, fabric: Fabric, result: EngineResult, fair: Floats
) -> LayerLoad:
    """The record of one layer; fair: float64[links of the fabric], see `shares.fair_bytes`."""
    carried = result.link_bytes
    rates = fabric.links.rate_bits_per_second[members]
    weights = None if (rates == rates[0]).all() else rates
    return LayerLoad(
        layer=name,
        choice=choice,
        links=len(members),
        idle_links=int(np.count_nonzero(carried[members] == 0)),
        flows=None,
        data_flows=None,
        wire_bytes=int(carried[members].sum()),
        fim_flows_percent=None,
        fim_all_flows_percent=None,
        fim_flows_best_percent=None,
        fim_bytes_percent=fim(carried[members], weights),
        fim_chance_percent=None,
        max_over_mean=busiest_over_fair(carried[members], fair[members], rates),
        over_time=_over_time(result, members, fabric),
        devices=[],
    )


def _over_time(result: EngineResult, members: Ints, fabric: Fabric) -> LayerOverTime | None:
    """Means over the intervals with traffic, weighted by bytes; None if nothing was carried."""
    if result.loads is None:
        return None
    loads = result.loads[:, members]
    total = loads.sum(1)
    if not total.any():
        return None
    loads, total = loads[total > 0], total[total > 0]
    rates = fabric.links.rate_bits_per_second[members]
    share = loads / (rates / rates.sum() * total[:, None])
    stretch, link = np.unravel_index(int(loads.argmax()), loads.shape)
    peak = float(loads[stretch, link]) * 8e12 / result.load_bin_ps
    return LayerOverTime(
        window_ns=result.load_bin_ps // PS,
        windows=len(total),
        fim_bytes_percent=float(np.average(100 * abs(share - 1).mean(1), weights=total)),
        max_over_mean=float(np.average(share.max(1), weights=total)),
        peak_bits_per_second=peak,
        peak_utilisation=peak / float(rates[link]),
        peak_link=fabric.link_name(int(members[link])),
    )

"""One way to run any strategy: the open-loop driver where it can, else the event-driven one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from ..fabrics.fabric import Fabric
from .drivers.event_driven import run_event_driven
from .drivers.runner import run_open_loop
from .failures.events import Failures
from .hosts.parameters import Transport
from .model.model import EngineResult, Model, Workload
from .model.rules import Strategy


def needs_events(
    strategy: Strategy, transport: Transport | None = None, failures: Failures | None = None
) -> bool:
    """Whether hosts react to more than the ends of messages, or links change."""
    plain = transport is None or transport == Transport()
    return not plain or bool(failures and failures.events) or strategy.reacts


def run_packets(
    workload: Workload,
    fabric: Fabric,
    strategy: Strategy,
    model: Model,
    seed: int = 0,
    *,
    transport: Transport | None = None,
    failures: Failures | None = None,
    keep_arrivals: bool = False,
    keep_sent: bool = False,
    load_bin_ps: int = 0,
    tell: Callable[[int], None] | None = None,
    stop: Event | None = None,
) -> EngineResult:
    """Both drivers give the same where both can run a case; see their docstrings."""
    if needs_events(strategy, transport, failures):
        return run_event_driven(
            workload,
            fabric,
            strategy,
            model,
            seed,
            transport=transport,
            failures=failures,
            keep_arrivals=keep_arrivals,
            keep_sent=keep_sent,
            load_bin_ps=load_bin_ps,
            tell=tell,
            stop=stop,
        ).engine
    return run_open_loop(
        workload,
        fabric,
        strategy,
        model,
        seed,
        keep_arrivals=keep_arrivals,
        keep_sent=keep_sent,
        load_bin_ps=load_bin_ps,
        tell=tell,
        stop=stop,
    )

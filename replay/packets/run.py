"""Runs any strategy: with the open-loop driver if possible, else with the event-driven driver."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypedDict, Unpack

from ..fabrics.fabric import Fabric
from .drivers.runner import run_open_loop
from .failures.events import Failures
from .hosts.parameters import Transport
from .model.model import EngineResult, Model, Workload
from .model.rules import Strategy


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
    from .drivers.event_driven import run_event_driven

    return run_event_driven(
        workload, fabric, strategy, model, seed, transport=transport, failures=failures, **watching
    ).engine

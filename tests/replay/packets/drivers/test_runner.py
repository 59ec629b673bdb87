"""What the open-loop driver does not run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.runner import run_open_loop
from rocescope.replay.packets.model.model import Model, Workload
from rocescope.replay.packets.model.rules import Rules, Strategy
from rocescope.replay.packets.offers.offered import workload_of
from rocescope.replay.packets.run import needs_events
from rocescope.replay.strategies.registry import (
    PACKET_STRATEGIES,
    STRATEGIES,
    parse_packet_strategy,
)

PLANES = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G")
HOSTS = {"hopper", "mixed", "plb", "reps", "bitmap", "mrc"}


def _load() -> Workload:
    return workload_of(
        np.array([0]),
        np.array([3]),
        np.array([40_000]),
        None,
        Model(pfc=None),  # type: ignore[arg-type]
    )


def test_strategies_that_need_feedback_say_so() -> None:
    every = [parse_packet_strategy(name) for name in (*STRATEGIES, *PACKET_STRATEGIES)]
    assert {one.name for one in every if one.reacts} == HOSTS
    assert {one.name for one in every if needs_events(one)} == HOSTS
    assert {one.name for one in every if one.static_paths} == {"mrc"}


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_strategy_that_needs_feedback_is_refused(name: str) -> None:
    """Its hosts would learn nothing, and the result would look like any other."""
    with pytest.raises(UsageError, match=f"{name} needs feedback"):
        run_open_loop(_load(), PLANES, parse_packet_strategy(name), Model(pfc=None))


def test_hosts_that_learn_are_refused_even_where_nothing_is_said() -> None:
    @dataclass(frozen=True)
    class Silent(Strategy):
        name: str = "silent"

        def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
            return parse_packet_strategy("reps").rules(workload, fabric, seed)

    with pytest.raises(UsageError, match="silent needs feedback"):
        run_open_loop(_load(), PLANES, Silent(), Model(pfc=None))

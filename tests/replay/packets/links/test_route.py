"""The link on which a switch sends a packet on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rocescope.kernels.kernel import Int, Ints
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.drivers.runner import run_open_loop
from rocescope.replay.packets.model.model import Model, Workload
from rocescope.replay.packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from rocescope.replay.packets.offers.offered import workload_of

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=3,hosts=1,rate=100G,delay=40ns")


@chooser
def _position(state: Ints, links: Ints, at: Choice) -> Int:
    return state[0]


@dataclass(frozen=True)
class Stubborn(Strategy):
    """Always the same position."""

    position: int
    name: str = "stubborn"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        return Rules(_position(), no_label(), np.array([self.position]))


@pytest.mark.parametrize(
    ("position", "spine"), [(0, 1), (2, 3), (3, 1), (7, 2), (-1, 3), (-4, 3), (1 << 40, 2)]
)
def test_a_position_is_taken_modulo_the_size_of_the_group(position: int, spine: int) -> None:
    load = workload_of(
        np.array([0]),
        np.array([1]),
        np.array([40_000]),
        None,
        Model(pfc=None),  # type: ignore[arg-type]
    )
    strategy = Stubborn(position)
    used = FABRIC.find_links(f"leaf1>spine{spine}")[0]
    for result in (
        run_open_loop(load, FABRIC, strategy, Model(pfc=None)),
        run_event_driven(load, FABRIC, strategy, Model(pfc=None)).engine,
    ):
        assert result.link_packets[used] == load.packets[0]
        assert result.completed_ps[0] > 0

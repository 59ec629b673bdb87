"""Every switch sends every packet over a random one of its equal-cost links.

Source: RSQ in the theory part of "Load Balancing for AI Training Workloads" (arXiv 2507.21372);
Dixit et al., "On the Impact of Packet Spraying in Data Center Networks", INFOCOM 2013.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....kernels.kernel import Int, Ints
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, drawn
from ...packets.model.model import Workload
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from ..base import known_options
from ..packet_state import WITHOUT_FLAGS, state_of


@dataclass(frozen=True)
class SwitchRandom(Strategy):
    """No options."""

    options: Mapping[str, str]
    name: str = "switch-random"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ())
        return Rules(_choose(), no_label(), state_of([seed]))


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    return drawn(state[0], SWITCH_PORT, at.packet & np.int64(WITHOUT_FLAGS), at.switch, at.size)

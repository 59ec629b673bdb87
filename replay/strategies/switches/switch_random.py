"""Every switch sends every packet over a random equal-cost link.

Source: RSQ in the theory part of "Load Balancing for AI Training Workloads" (arXiv 2507.21372);
Dixit et al., "On the Impact of Packet Spraying in Data Center Networks", INFOCOM 2013.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, drawn
from ...packets.model.model import Workload
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from ..base import Configured
from ..packet_state import WITHOUT_FLAGS, state_of


class SwitchRandom(Configured, Strategy):
    """No options."""

    name = "switch-random"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known()
        return Rules(_choose(), no_label(), state_of([seed]))


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    return drawn(state[0], SWITCH_PORT, at.packet & np.int64(WITHOUT_FLAGS), at.switch, at.size)

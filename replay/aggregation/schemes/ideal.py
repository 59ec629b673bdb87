"""Unlimited memory: ATP's rules, and a slot for every fragment, so that no two ever collide."""

from __future__ import annotations

from collections.abc import Mapping

from ....kernels.kernel import pointer_to
from ..memory import at_switch_signature
from .atp import TIMERS, at_switch
from .base import Conduct
from .options import Options


class Ideal:
    """ATP without limits of memory."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = Options("ideal", given, TIMERS)
        self.name, self.parameters = options.name, options.values
        self._conduct = Conduct(
            pointer_to(at_switch, at_switch_signature),
            private_slots=True,
            rto_ps=options.ps("rto"),
            first_rto_ps=options.ps("first-rto"),
            trigger=options.number("trigger", 0, 1000),
        )

    def conduct(self) -> Conduct:
        """See `Scheme`."""
        return self._conduct

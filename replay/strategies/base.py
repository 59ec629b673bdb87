"""What every strategy is: a rule that gives each unit of traffic its way through a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ..fabrics.fabric import Fabric
from ..flows.loads import Placement
from ..packets.model.model import Workload
from ..packets.model.rules import Rules
from ..results.replay import SolverReport
from ..traffic.traffic import Traffic


class Outcome(NamedTuple):
    """Where the units went."""

    traffic: Traffic
    """What was placed: a strategy may split flows."""
    placement: Placement
    parameters: dict[str, str]
    """Everything that was chosen, for the report."""
    solver: SolverReport | None = None
    notes: tuple[str, ...] = ()
    origin: NDArray[np.int64] | None = None
    """int64[placed units], ascending: unit of the given traffic each came from; None: the same."""


class Strategy(Protocol):
    """A strategy with its options."""

    @property
    def name(self) -> str:
        """Its standard name."""

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        """Give every unit its way. UsageError when options and fabric do not go together."""

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        """The same for the packets of a workload: `placed_rules` of what `place` gives."""


def known_options(name: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """UsageError when an option is not among the known ones."""
    for key in options:
        if key not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"{name} has no option {key!r}; it has {there}")


def whole_number(
    name: str, options: Mapping[str, str], key: str, default: int, least: int, most: int
) -> int:
    """An option that is a whole number from least to most; UsageError otherwise."""
    text = options.get(key, str(default))
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
        raise UsageError(f"{name}: {key}={text}: use a whole number from {least} to {most}")
    return int(text)

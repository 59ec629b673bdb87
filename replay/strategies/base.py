"""Common parts of strategies: whole-flow placement, and options.

What the drivers ask of a strategy is `packets.model.rules.Strategy`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from ...analyzer.errors import UsageError
from ..fabrics.fabric import Fabric
from ..packets.model.model import Workload
from ..packets.model.rules import Rules, Strategy
from ..traffic.traffic import Traffic
from .placed import Outcome, placed_rules


class FlowStrategy(Strategy, Protocol):
    """A strategy that gives every unit of traffic its whole path."""

    @abstractmethod
    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        """Give every unit its path. UsageError if options and fabric do not fit."""

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        """Packets follow the path that `place` finds for their unit."""
        return placed_rules(self.place(workload.traffic, fabric), workload, fabric)


def known_options(name: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """UsageError for an unknown option."""
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

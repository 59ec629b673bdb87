"""Common parts of strategies: options, and the placement of whole flows.

The drivers use strategies by the protocol `packets.model.rules.Strategy`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol, Self

from ...analyzer.spec import PS, Options
from ...analyzer.units import parse_duration
from ..fabrics.fabric import Fabric
from ..packets.model.model import Workload
from ..packets.model.rules import Rules, Strategy
from ..traffic.traffic import Traffic
from .placed import Outcome, placed_rules


class Configured:
    """Reads the options of a strategy; each method raises UsageError for an invalid value."""

    name: str
    """The standard name, set by each strategy."""

    def __init__(self, options: Mapping[str, str], name: str = "") -> None:
        """name: the strategy that uses this one, for messages."""
        self.name = name or self.name
        self.options = Options(options, self.name)

    def with_default(self, key: str, value: str) -> Self:
        """The same strategy with a value for an option that is not set."""
        return type(self)(self.options.with_defaults({key: value}))

    def known(self, *names: str) -> None:
        """UsageError for an option that is not one of these."""
        self.options.check_known(names, f"{self.name} has no option")

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        """An integer from least to most."""
        return self.options.whole(key, str(default), least, most)

    def word(self, key: str, *words: str) -> str:
        """One of these words, by default the first."""
        return self.options.word(key, *words)

    def duration_ps(self, key: str, default: str) -> tuple[int, str]:
        """A time in ps, and its text."""
        text = self.options.get(key, default)
        return parse_duration(text, f"{self.name}: {key}") * PS, text


class FlowStrategy(Strategy, Protocol):
    """A strategy that gives every unit of traffic its whole path."""

    @abstractmethod
    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        """Give every unit its path. UsageError if options and fabric do not fit."""

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        """Packets follow the path that `place` finds for their unit."""
        return placed_rules(self.place(workload.traffic, fabric), workload, fabric)

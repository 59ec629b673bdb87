"""The load-balancing strategies by name.

Strategies of STRATEGIES place whole flows and can also be replayed packet by packet;
strategies of PACKET_STRATEGIES decide packet by packet. Both tables hold `file:class`; a file is
loaded when its strategy is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_options
from ...analyzer.words import choices
from ..packets.model.rules import Strategy
from .base import FlowStrategy

STRATEGIES = {
    "ecmp": "ecmp:Ecmp",
    "ecmp-qpn": "ecmp:EcmpQpn",
    "wcmp": "ecmp:Wcmp",
    "subflow": "subflow:Subflow",
    "static": "static:Static",
    "srv6": "static:StaticSrv6",
    "assign": "assign:Assign",
}
PACKET_STRATEGIES = {
    "host-spray": "host_spray:HostSpray",
    "switch-random": "spread:SwitchRandom",
    "switch-rr": "spread:SwitchRoundRobin",
    "jsq": "shortest_queue:ShortestQueue",
    "drill": "shortest_queue:Drill",
    "adaptive": "adaptive:Adaptive",
    "flowlet": "adaptive:Flowlet",
    "adaptive-flowlet": "adaptive:AdaptiveFlowlet",
    "conga": "conga:Conga",
    "host-dr": "host_dr:HostRotation",
    "ofan": "ofan:Ofan",
    "plb": "plb:Plb",
    "hopper": "hopper:Hopper",
    "reps": "reps:Reps",
    "bitmap": "bitmap:Bitmap",
    "mixed": "mixed:Mixed",
    "mrc": "mrc:Mrc",
}
ALL = "all"
"""Selects every strategy that can run."""
_SAME = {"optimal": "assign", "letflow": "flowlet"}
"""Other names of strategies."""


def parse_strategy(text: str) -> FlowStrategy:
    """A strategy that places whole flows, such as `ecmp` or `ecmp:hash=crc32,seed=7`.

    UsageError for an invalid text.
    """
    name, options = _parts(text)
    if name in PACKET_STRATEGIES:
        raise UsageError(f"{name} decides packet by packet; replay with --packets")
    strategy: FlowStrategy = _class(STRATEGIES[name])(options)
    return strategy


def parse_packet_strategy(text: str) -> Strategy:
    """A strategy for the packet engine, such as `ofan` or `ecmp:seed=7`. UsageError as above."""
    name, options = _parts(text)
    strategy: Strategy = _class(PACKET_STRATEGIES.get(name) or STRATEGIES[name])(options)
    return strategy


def _class(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


def expanded(texts: Sequence[str], packets: bool) -> list[str]:
    """The requested strategies, with every strategy for `all`; packets: for the packet engine."""
    every = [*STRATEGIES, *(PACKET_STRATEGIES if packets else ())]
    return [name for text in texts for name in (every if text == ALL else [text])]


def needs_packets(text: str) -> bool:
    """Whether only the packet engine has this strategy."""
    return text.partition(":")[0] in PACKET_STRATEGIES


def _parts(text: str) -> tuple[str, Options]:
    written, _, rest = text.partition(":")
    name = _SAME.get(written, written)
    if name not in STRATEGIES and name not in PACKET_STRATEGIES:
        every = (*STRATEGIES, *PACKET_STRATEGIES)
        listed = name.split(",")
        if len(listed) > 1 and listed[0] in every:
            raise UsageError(f"give each strategy its own -s: -s {' -s '.join(listed)}")
        known = choices(name, every)
        raise UsageError(f"there is no strategy {name!r}; {known}")
    return name, parse_options(rest, name, len(written) + 2)

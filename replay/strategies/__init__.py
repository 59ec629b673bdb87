"""Load-balancing strategies, each in a file with its standard name.

Those of STRATEGIES place whole flows, and can be replayed packet by packet too; those
of PACKET_STRATEGIES decide packet by packet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...analyzer.errors import UsageError
from ..engine.rules import PacketStrategy
from .adaptive import Adaptive
from .adaptive_flowlet import AdaptiveFlowlet
from .assign import Assign
from .base import Outcome, Strategy
from .bitmap import Bitmap
from .conga import Conga
from .ecmp import Ecmp
from .ecmp_qpn import EcmpQpn
from .flowlet import Flowlet
from .host_dr import HostRotation
from .host_spray import HostSpray
from .jsq import ShortestQueue
from .mrc import Mrc
from .ofan import Ofan
from .plb import Plb
from .reps import Reps
from .static import Static
from .subflow import Subflow
from .switch_random import SwitchRandom
from .switch_rr import SwitchRoundRobin
from .wcmp import Wcmp

STRATEGIES: Mapping[str, Callable[[Mapping[str, str]], Strategy]] = {
    "ecmp": Ecmp,
    "ecmp-qpn": EcmpQpn,
    "wcmp": Wcmp,
    "subflow": Subflow,
    "static": Static,
    "assign": Assign,
}

PACKET_STRATEGIES: Mapping[str, Callable[[Mapping[str, str]], PacketStrategy]] = {
    "host-spray": HostSpray,
    "switch-random": SwitchRandom,
    "switch-rr": SwitchRoundRobin,
    "jsq": ShortestQueue,
    "adaptive": Adaptive,
    "flowlet": Flowlet,
    "adaptive-flowlet": AdaptiveFlowlet,
    "conga": Conga,
    "host-dr": HostRotation,
    "ofan": Ofan,
    "plb": Plb,
    "reps": Reps,
    "bitmap": Bitmap,
    "mrc": Mrc,
}
ALL = "all"
"""In place of names: every strategy that can run."""
_SAME: Mapping[str, str] = {"optimal": "assign"}
"""Other names of strategies."""


def parse_strategy(text: str) -> Strategy:
    """`ecmp`, `ecmp:hash=crc32,seed=7`, ...: a strategy that places whole flows.

    UsageError names what is wrong.
    """
    name, options = _parts(text)
    if name in PACKET_STRATEGIES:
        raise UsageError(f"{name} decides packet by packet; replay with --packets")
    return STRATEGIES[name](options)


def parse_packet_strategy(text: str) -> PacketStrategy:
    """`ofan`, `ecmp:hash=crc32`, ...: any strategy, for the packet engine. UsageError as above."""
    name, options = _parts(text)
    if name in PACKET_STRATEGIES:
        return PACKET_STRATEGIES[name](options)
    return STRATEGIES[name](options)


def expanded(texts: Sequence[str], packets: bool) -> list[str]:
    """What was asked for, with every strategy in place of `all`; packets: on the packet engine."""
    every = [*STRATEGIES, *(PACKET_STRATEGIES if packets else ())]
    return [name for text in texts for name in (every if text == ALL else [text])]


def needs_packets(text: str) -> bool:
    """Whether this strategy exists on the packet engine only."""
    return text.partition(":")[0] in PACKET_STRATEGIES


def _parts(text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition(":")
    name = _SAME.get(name, name)
    if name not in STRATEGIES and name not in PACKET_STRATEGIES:
        known = ", ".join((*STRATEGIES, *PACKET_STRATEGIES))
        raise UsageError(f"there is no strategy {name!r}; there are {known}")
    return name, parse_options(rest, name)


def parse_options(text: str, where: str) -> dict[str, str]:
    """`key=value,key=value` as a mapping; UsageError for anything else."""
    options: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not value:
            raise UsageError(f"{where}: {part!r} is not key=value")
        if key in options:
            raise UsageError(f"{where}: {key} is given twice")
        options[key] = value
    return options


__all__ = [
    "ALL",
    "PACKET_STRATEGIES",
    "STRATEGIES",
    "Outcome",
    "PacketStrategy",
    "Strategy",
    "expanded",
    "needs_packets",
    "parse_options",
    "parse_packet_strategy",
    "parse_strategy",
]

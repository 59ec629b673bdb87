"""The load-balancing strategies by name.

Strategies of STRATEGIES place whole flows and can also be replayed packet by packet;
strategies of PACKET_STRATEGIES decide packet by packet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...analyzer.errors import UsageError
from ...analyzer.key_values import parse_options
from ...analyzer.words import choices
from ..packets.model.rules import Strategy
from .base import FlowStrategy
from .flows.assign import Assign
from .flows.ecmp import Ecmp
from .flows.ecmp_qpn import EcmpQpn
from .flows.srv6 import StaticSrv6
from .flows.static import Static
from .flows.subflow import Subflow
from .flows.wcmp import Wcmp
from .hosts.bitmap import Bitmap
from .hosts.hopper import Hopper
from .hosts.host_dr import HostRotation
from .hosts.host_spray import HostSpray
from .hosts.mixed import Mixed
from .hosts.mrc import Mrc
from .hosts.plb import Plb
from .hosts.reps import Reps
from .switches.adaptive import Adaptive
from .switches.adaptive_flowlet import AdaptiveFlowlet
from .switches.conga import Conga
from .switches.drill import Drill
from .switches.flowlet import Flowlet
from .switches.jsq import ShortestQueue
from .switches.ofan import Ofan
from .switches.switch_random import SwitchRandom
from .switches.switch_rr import SwitchRoundRobin

STRATEGIES: Mapping[str, Callable[[Mapping[str, str]], FlowStrategy]] = {
    "ecmp": Ecmp,
    "ecmp-qpn": EcmpQpn,
    "wcmp": Wcmp,
    "subflow": Subflow,
    "static": Static,
    "srv6": StaticSrv6,
    "assign": Assign,
}

PACKET_STRATEGIES: Mapping[str, Callable[[Mapping[str, str]], Strategy]] = {
    "host-spray": HostSpray,
    "switch-random": SwitchRandom,
    "switch-rr": SwitchRoundRobin,
    "jsq": ShortestQueue,
    "drill": Drill,
    "adaptive": Adaptive,
    "flowlet": Flowlet,
    "adaptive-flowlet": AdaptiveFlowlet,
    "conga": Conga,
    "host-dr": HostRotation,
    "ofan": Ofan,
    "plb": Plb,
    "hopper": Hopper,
    "reps": Reps,
    "bitmap": Bitmap,
    "mixed": Mixed,
    "mrc": Mrc,
}
ALL = "all"
"""Selects every strategy that can run."""
_SAME: Mapping[str, str] = {"optimal": "assign", "letflow": "flowlet"}
"""Other names of strategies."""


def parse_strategy(text: str) -> FlowStrategy:
    """A strategy that places whole flows, such as `ecmp` or `ecmp:hash=crc32,seed=7`.

    UsageError for an invalid text.
    """
    name, options = _parts(text)
    if name in PACKET_STRATEGIES:
        raise UsageError(f"{name} decides packet by packet; replay with --packets")
    return STRATEGIES[name](options)


def parse_packet_strategy(text: str) -> Strategy:
    """A strategy for the packet engine, such as `ofan` or `ecmp:seed=7`. UsageError as above."""
    name, options = _parts(text)
    if name in PACKET_STRATEGIES:
        return PACKET_STRATEGIES[name](options)
    return STRATEGIES[name](options)


def expanded(texts: Sequence[str], packets: bool) -> list[str]:
    """The requested strategies, with every strategy for `all`; packets: for the packet engine."""
    every = [*STRATEGIES, *(PACKET_STRATEGIES if packets else ())]
    return [name for text in texts for name in (every if text == ALL else [text])]


def needs_packets(text: str) -> bool:
    """Whether only the packet engine has this strategy."""
    return text.partition(":")[0] in PACKET_STRATEGIES


def _parts(text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition(":")
    name = _SAME.get(name, name)
    if name not in STRATEGIES and name not in PACKET_STRATEGIES:
        known = choices(name, (*STRATEGIES, *PACKET_STRATEGIES))
        raise UsageError(f"there is no strategy {name!r}; {known}")
    return name, parse_options(rest, name)

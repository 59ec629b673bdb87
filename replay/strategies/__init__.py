"""Strategies that place whole flows, each in a file with its standard name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...analyzer.errors import UsageError
from .assign import Assign
from .base import Outcome, Strategy
from .ecmp import Ecmp
from .ecmp_qpn import EcmpQpn
from .static import Static
from .subflow import Subflow
from .wcmp import Wcmp

STRATEGIES: Mapping[str, Callable[[Mapping[str, str]], Strategy]] = {
    "ecmp": Ecmp,
    "ecmp-qpn": EcmpQpn,
    "wcmp": Wcmp,
    "subflow": Subflow,
    "static": Static,
    "assign": Assign,
}


def parse_strategy(text: str) -> Strategy:
    """`ecmp`, `ecmp:hash=crc32,seed=7`, ...; UsageError names what is wrong."""
    name, _, rest = text.partition(":")
    if name not in STRATEGIES:
        raise UsageError(f"there is no strategy {name!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name](parse_options(rest, name))


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


__all__ = ["STRATEGIES", "Outcome", "Strategy", "parse_options", "parse_strategy"]

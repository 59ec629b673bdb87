"""Titles of strategies: the name, with the parameters that distinguish it from others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..results.replay import StrategyResult

_ALWAYS = ("hash", "k", "by")
"""Parameters that are always in the title."""
_OF_FLOWS, _OF_PACKETS = ("seed",), ("evs", "reshuffle", "acks", "gap")
"""The same for strategies of whole flows, and for those packet by packet."""


def titled(strategies: Sequence[StrategyResult]) -> list[StrategyResult]:
    """The results with their titles; parameters in which results of one name differ are in them."""
    by_name: dict[str, list[StrategyResult]] = {}
    for one in strategies:
        by_name.setdefault(one.name, []).append(one)
    return [
        msgspec.structs.replace(one, title=_title(one, by_name[one.name])) for one in strategies
    ]


def _title(one: StrategyResult, of_name: Sequence[StrategyResult]) -> str:
    told = _ALWAYS + (_OF_FLOWS if one.packets is None else _OF_PACKETS)
    shown = [
        f"{key}={value}"
        for key, value in one.parameters.items()
        if key in told or any(other.parameters.get(key) != value for other in of_name)
    ]
    return f"{one.name} ({', '.join(shown)})" if shown else one.name

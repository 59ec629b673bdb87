"""Which header fields tell swallowed flows from those that pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb, log
from typing import Final

from ....results.flow import Flow
from ...case import Case

LEAST_FLOWS = 3
"""Swallowed flows, and flows that pass, from which a rule is looked for."""
CHANCE = 0.01
"""A rule is named only if flows drawn at random would fit one of the rules tried less often."""
MOST_BITS = 2

_FIELDS: Final[tuple[tuple[str, int, Callable[[Flow], int]], ...]] = (
    ("destination QP", 24, lambda flow: flow.dest_qp),
    ("DSCP", 6, lambda flow: next(iter(flow.congestion.dscp), 0)),
)


def dscp_selection(case: Case, swallowed: set[int], others: set[int]) -> str | None:
    """`DSCP 26`: the class of all flows that are swallowed and of none that pass."""
    classes = {f: next(iter(case.flows[f].congestion.dscp), None) for f in swallowed | others}
    wanted = {classes[f] for f in swallowed}
    if len(wanted) != 1 or None in wanted or wanted & {classes[f] for f in others}:
        return None
    tried = len(set(classes.values()))
    return f"DSCP {next(iter(wanted))}" if unlikely(swallowed, others, tried) else None


def unlikely(swallowed: set[int], others: set[int], tried: int, least: int = LEAST_FLOWS) -> bool:
    """Whether as many flows drawn at random would seldom be the ones of one of this many
    classes."""
    if len(swallowed) < least or len(others) < least:
        return False
    return tried / CHANCE <= comb(len(swallowed) + len(others), len(swallowed))


def seldom(others: int, hit: int, share: float, packets: int) -> bool:
    """Whether random loss of this share of the packets would seldom hit any `hit` flows, of these
    and this many others, in this many further packets: the number of ways to choose the flows,
    times the share for each packet. In logarithms: the number of ways exceeds any float."""
    return log(comb(others + hit, hit)) + packets * log(share) < log(CHANCE)


def selection(case: Case, swallowed: set[int], others: set[int]) -> str | None:
    """`destination QP bit 3 = 1`: the rule that fits all flows; None without a convincing one."""
    if len(swallowed) < LEAST_FLOWS or len(others) < LEAST_FLOWS:
        return None
    tried = sum(bits + bits * (bits - 1) // 2 for _, bits, _ in (*_FIELDS, ("", 16, None)))
    if tried * 4 * 0.5 ** (len(swallowed) + len(others)) > CHANCE:
        return None
    fields = [(name, bits, {f: of(case.flows[f]) for f in swallowed | others})
              for name, bits, of in _FIELDS]  # fmt: skip
    ports = {f: _port(case, f) for f in swallowed | others}
    if all(port is not None for port in ports.values()):
        fields.insert(0, ("UDP source port", 16, {f: p for f, p in ports.items() if p is not None}))
    for count in range(1, MOST_BITS + 1):
        for name, bits, values in fields:
            for chosen in combinations(range(bits), count):
                mask = sum(1 << bit for bit in chosen)
                wanted = {values[f] & mask for f in swallowed}
                if len(wanted) == 1 and not any(values[f] & mask in wanted for f in others):
                    value = next(iter(wanted))
                    rule = ", ".join(f"bit {bit} = {value >> bit & 1}" for bit in chosen)
                    return f"{name} {rule}"
    return None


def _port(case: Case, flow: int) -> int | None:
    """The UDP source port of a flow that has only one."""
    paths = case.measuring.entropy.paths(flow)
    return int(paths["key"][0]) & 0xFFFF if len(paths) == 1 else None
